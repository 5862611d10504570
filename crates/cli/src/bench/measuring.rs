//! Options of measurements, shared by all experiments.

use anyhow::{Result, bail};
use toehold_lab::experiment::Options;
use toehold_lab::testbed::Candidate;
use toehold_lab::{Settings, Size, host};

/// The user's choices.
#[derive(Debug, clap::Args)]
pub(super) struct Measuring {
    /// Few sizes and short measurements: a minute or so
    #[arg(long)]
    pub(super) quick: bool,

    /// Number of rounds [default: 9; quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Duration of each measurement, in milliseconds [default: 250; quick: 80]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(super) span: Option<u64>,

    /// Seed of the order within each round [default: different each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Cores of the server's and the client's process [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "SERVER,CLIENT")]
    cores: Option<Vec<usize>>,
}

/// Sizes of messages if the user chooses none.
pub(super) struct Usual {
    pub(super) full: &'static [&'static str],
    pub(super) quick: &'static [&'static str],
}

impl Measuring {
    /// The options of an experiment with these candidates; an empty choice means all.
    pub(super) fn options(
        &self,
        sizes: Vec<Size>,
        usual: &Usual,
        candidates: Vec<String>,
        all: &[Candidate],
    ) -> Result<Options> {
        let usual = if self.quick { usual.quick } else { usual.full };
        Ok(Options {
            sizes: match sizes.is_empty() {
                true => usual.iter().map(|size| size.parse()).collect::<Result<_, _>>()?,
                false => sizes,
            },
            candidates: match candidates.is_empty() {
                true => all.iter().map(|candidate| candidate.name.to_owned()).collect(),
                false => candidates,
            },
            rounds: self.rounds(),
            seed: seed(self.seed),
            settings: self.settings()?,
        })
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 5 } else { 9 })
    }

    fn settings(&self) -> Result<Settings> {
        let quick = self.quick;
        Ok(Settings {
            warm_up_ms: if quick { 20 } else { 50 },
            span_ms: self.span.unwrap_or(if quick { 80 } else { 250 }),
            patience_ms: if quick { 5_000 } else { 10_000 },
            cores: cores(self.cores.clone())?,
            congestion: "reno".into(),
            trace: None,
            far: None,
        })
    }
}

/// The seed of the order: the user's choice, or a different number each time.
pub(crate) fn seed(chosen: Option<u64>) -> u64 {
    chosen.unwrap_or_else(|| u64::from(std::process::id()) ^ clock())
}

/// Nanoseconds of the current second, which differ between successive runs.
fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()))
}

pub(crate) fn cores(chosen: Option<Vec<usize>>) -> Result<[usize; 2]> {
    let usable = host::usable_cores();
    let chosen = match chosen {
        Some(chosen) => chosen,
        None => usable.iter().copied().take(2).collect(),
    };
    if let Some(core) = chosen.iter().find(|core| !usable.contains(core)) {
        bail!("this process may not run on core {core}; it may use the cores {usable:?}");
    }
    match chosen[..] {
        [server, client] => Ok([server, client]),
        [only] => Ok([only, only]),
        _ => bail!("--cores takes two numbers, as in --cores 0,1"),
    }
}
