//! Programs with several workers: servers, their clients, and busy loops beside them.
//!
//! Neither side has cores of its own: all may run on every core of this process. Databases are
//! created once in a run, in a directory that lasts as long (`Stock`). Nodes, namespaces and
//! processes are new in each measurement.

mod clients;
mod job;
mod lines;
mod said;

pub use clients::{NAME, ServerAddress, main};

use std::cell::OnceCell;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::place::{Places, Shape, Way};
use super::{Files, Lines, On, PATIENCE, ProgramsError, exchange_at_ports};
use crate::samples::Side;
pub(super) use job::Job;
use job::ListeningPlace;

/// Shared state of the measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    files: OnceCell<Files>,
}

impl Stock {
    /// The directory of files, created at its first use.
    fn files(&self, toehold: &Path) -> Result<&Files, ProgramsError> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let files = Files::make(toehold)?;
        Ok(self.files.get_or_init(|| files))
    }
}

/// The counts of a job's clients; the servers count nothing.
pub(super) fn measure(
    job: Job,
    on: On<'_>,
    stock: &Stock,
    stop: &AtomicBool,
) -> Result<(Side, Side), String> {
    let text = |error: ProgramsError| error.to_string();
    let files = stock.files(on.toehold).map_err(text)?;
    let renewed = files.renew_sockets();
    renewed.map_err(|error| format!("cannot make a directory of sockets: {error}"))?;
    let (way, up) = on.way();
    let shape = Shape {
        is_spread: true,
        up,
        ..Shape::default()
    };
    let places = Places::make(on.toehold, files, on.settings.cores, &shape).map_err(text)?;
    let spot = ListeningPlace {
        way,
        places: &places,
        files,
    };
    let run = lines::of(job, &spot, on.settings)?;
    let seconds = whole_seconds(on.settings.span_ms);
    let patience = Duration::from_millis(on.settings.warm_up_ms + on.settings.patience_ms);
    let lines = Lines {
        back: run.back.as_deref(),
        server: Some(&run.server),
        client: &run.client,
        loops: job.loops,
        seconds,
        limit: Duration::from_secs(seconds.into()) * 2 + patience + PATIENCE,
    };
    let before = places.offloaded();
    let said = exchange_at_ports(&places, &lines, way, stop)?;
    if !said.status.success() {
        return Err(said.complaint());
    }
    if way == Way::Toehold && places.offloaded() == before {
        return Err("nothing of it went over the node".into());
    }
    let client = (run.read)(&said.output).ok_or_else(|| said.complaint())?;
    Ok((client, Side::default()))
}

/// Whole seconds, for programs without fractions of seconds.
fn whole_seconds(ms: u64) -> u32 {
    u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_seconds_and_one_at_least() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (3000, 3)] {
            assert_eq!(whole_seconds(ms), seconds, "{ms}");
        }
    }
}
