//! Plans in files, and how they are carried out. With a file for each command.

pub(crate) mod compare;
mod far;
pub(crate) mod list;
pub(crate) mod reproduce;
pub(crate) mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use toehold_lab::experiment::{PlanFile, builtin};
use toehold_lab::report::Report;
use toehold_lab::{Plan, say};

use crate::bench::{cores, seed};
use crate::interrupt;
use crate::measurement::{self, Begin, Output};

/// The options of a measurement, for plans from any source.
#[derive(Debug, clap::Args)]
struct Measuring {
    /// The plans' short forms: fewer sizes, fewer and shorter measurements
    #[arg(long)]
    quick: bool,

    /// Resume the interrupted run in DIR
    #[arg(long, value_name = "DIR", conflicts_with = "fresh")]
    resume: Option<PathBuf>,

    /// Start a new run even if there is an interrupted run of the same plan, settings and build
    #[arg(long)]
    fresh: bool,

    /// Seed of the order within each round [default: different each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Cores of the servers' and the clients' processes [default: the first two]
    #[arg(long, value_delimiter = ',', value_name = "SERVER,CLIENT")]
    cores: Option<Vec<usize>>,

    /// A published log of the 1998 World Cup's web site. Clients of web servers that follow a trace
    /// take their files and requests from it [default: a synthetic trace]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    other: far::OtherMachine,

    #[command(flatten)]
    output: Output,
}

impl Measuring {
    fn plan(&self, file: &PlanFile) -> Result<Plan> {
        let plan = file.plan(self.quick, seed(self.seed), cores(self.cores.clone())?);
        let plan = match &self.trace {
            Some(trace) => {
                let followed = plan.following(trace);
                followed.with_context(|| format!("cannot use {} as a trace", trace.display()))?
            }
            None => plan,
        };
        Ok(match self.other.far() {
            Some(far) => plan.between(far)?,
            None => plan,
        })
    }

    fn begin(&self) -> Begin {
        match (&self.resume, self.fresh) {
            (Some(directory), _) => Begin::Resume(directory.clone()),
            (None, true) => Begin::Anew,
            (None, false) => Begin::ResumeLatest,
        }
    }

    /// Measures one plan after the other, under one lock.
    fn carry_out(&self, plans: Vec<Plan>) -> Result<ExitCode> {
        if self.resume.is_some() && plans.len() != 1 {
            bail!("--resume continues one run: name its plan and no other");
        }
        self.output.check()?;
        let stop = interrupt::flag()?;
        let Some(_lock) = measurement::lock(&stop)? else {
            return Ok(ExitCode::from(interrupt::STATUS));
        };
        let results = self.output.results()?;
        let mut reports: Vec<Report> = Vec::new();
        let many = plans.len();
        for (number, plan) in (1..).zip(plans) {
            if many > 1 {
                say(&format!(
                    "{number} of {many}: {}, {}",
                    plan.experiment, plan.title
                ));
            }
            let report = measurement::measure(plan, &results, &self.begin(), &stop)?;
            let complete = report.complete;
            if !self.output.is_json_only() {
                measurement::show(&report)?;
            }
            reports.push(report);
            if !complete {
                break;
            }
        }
        self.output.deliver(&reports)?;
        Ok(measurement::status(&reports))
    }
}

/// The plans of names: a plan's, a paper's, or `all`.
fn chosen(names: &[String]) -> Result<Vec<PlanFile>> {
    let all = builtin::all()?;
    let mut chosen: Vec<PlanFile> = Vec::new();
    for name in names {
        let is_meant = |plan: &&PlanFile| {
            let paper = plan.name().split('/').next();
            name == "all" || name == plan.name() || paper == Some(name.as_str())
        };
        let mut meant = all.iter().filter(is_meant).peekable();
        if meant.peek().is_none() {
            bail!("there is no plan and no paper `{name}`: `toehold list` shows them");
        }
        for plan in meant {
            if !chosen.iter().any(|other| other.name() == plan.name()) {
                chosen.push(plan.clone());
            }
        }
    }
    Ok(chosen)
}
