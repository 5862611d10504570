//! Carries a plan out: round after round, workload after workload, candidates in turn.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use crate::experiment::{Plan, PlanError};
use crate::far::Met;
use crate::group::Group;
use crate::pair::{Between, PairError};
use crate::process::Launcher;
use crate::programs;
use crate::samples::{Outcome, Sample, Side, Store, StoreError};
use crate::site::{self, SiteCandidate};
use crate::testbed::Candidate;
use crate::workload::{Cell, Workload};

/// Consecutive failures after which a candidate is not tried any more, or not on the failing
/// workload.
const FAILURES: u32 = 2;

/// Receives the progress of a run.
pub trait Observer {
    /// A measurement begins: number `sequence` of `total`.
    fn begins(&mut self, sequence: u32, total: u32, round: u32, workload: &str, candidate: &str);
    /// The measurement has ended. Measurements that were left out are not reported.
    fn ended(&mut self, sample: &Sample);
}

/// Reasons why a run could not continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Samples could not be saved.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The requirements for carrying a plan out.
#[derive(Debug)]
pub struct Runner<'a> {
    /// The launcher of processes. They live at most as long as the thread that calls
    /// [`Runner::run`].
    pub launcher: Launcher,
    /// All candidates that plans may name.
    pub candidates: &'a [Candidate],
    /// The result of meeting the plan's other machine, if it has one.
    pub far: Option<&'a Result<Met, String>>,
    /// Set by the caller to end the run early; samples so far are kept.
    pub stop: &'a AtomicBool,
}

impl Runner<'_> {
    /// Runs the measurements. Each sample is saved before the next is taken.
    pub fn run(
        &self,
        plan: &Plan,
        store: &mut Store,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Sample>, RunError> {
        self.go_on(plan, Vec::new(), store, observer)
    }

    /// Resumes a run with samples: no measurement is repeated. Returns all samples, including the
    /// earlier ones.
    pub fn go_on(
        &self,
        plan: &Plan,
        earlier: Vec<Sample>,
        store: &mut Store,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Sample>, RunError> {
        plan.check(self.candidates)?;
        let mut run = Run::new(self, plan, earlier);
        for round in 0..plan.most_rounds() {
            let wanted = plan.wanted_in(round, &run.samples);
            if !wanted.contains(&true) {
                break;
            }
            let mut steps = plan.order(round);
            steps.retain(|(cell, _)| wanted[*cell]);
            run.expect(round, steps.len());
            let mut groups = Groups::new();
            for (cell, candidate) in steps {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(run.samples);
                }
                run.step(round, cell, candidate, &mut groups, store, observer)?;
            }
            // The next round has new processes, so that effects of their memory layout differ
            // between rounds.
            groups.into_values().for_each(Group::dismiss);
        }
        Ok(run.samples)
    }

    /// Whether a candidate runs a workload with unmodified programs.
    fn is_of_programs(&self, candidate: &str, workload: &Workload) -> bool {
        let known = self.candidates.iter().find(|known| known.name == candidate);
        known.is_some_and(|known| known.is_of_programs(workload))
    }

    /// Whether a candidate's reason for a cell may not apply to other cells. Programs may be missing,
    /// a network may not carry packets of the cell's size, or the kernel may not be traced.
    fn may_miss_for_a_cell(&self, candidate: &str, cell: &Cell) -> bool {
        let known = self.candidates.iter().find(|known| known.name == candidate);
        let is_about_network = known.is_some_and(|known| known.is_between_hosts) && cell.mtu.is_some();
        is_about_network || cell.workload.is_followed() || self.is_of_programs(candidate, &cell.workload)
    }
}

/// The state of a candidate.
#[derive(Debug, Clone, Default)]
struct Standing {
    unavailable: bool,
    failures_in_a_row: u32,
    failures: HashMap<usize, u32>,
}

impl Standing {
    fn is_worth_trying(&self, cell: usize) -> bool {
        let failed = self.failures.get(&cell).copied().unwrap_or(0);
        !self.unavailable && self.failures_in_a_row < FAILURES && failed < FAILURES
    }

    /// Updates the state. A missing requirement may apply to one cell only. For programs with
    /// several workers, a failure tells nothing about the next cell.
    fn learn(&mut self, cell: usize, what: &Cell, of_cell: bool, outcome: &Outcome) {
        match outcome {
            Outcome::Measured { .. } => self.failures_in_a_row = 0,
            Outcome::Unavailable { .. } if of_cell => drop(self.failures.insert(cell, FAILURES)),
            Outcome::Unavailable { .. } => self.unavailable = true,
            Outcome::Failed { .. } => {
                self.failures_in_a_row += u32::from(!what.workload.is_of_workers());
                *self.failures.entry(cell).or_default() += 1;
            }
        }
    }
}

/// Processes kept from cell to cell, by candidate and MTU.
type Groups = HashMap<(usize, Option<u16>), Group>;

struct Run<'a> {
    runner: &'a Runner<'a>,
    plan: &'a Plan,
    standing: Vec<Standing>,
    samples: Vec<Sample>,
    /// The samples of an earlier run: round, cell and candidate.
    taken: HashSet<(u32, String, String)>,
    /// Shared state of measurements of programs.
    stock: programs::Stock,
    sequence: u32,
    total: u32,
}

impl<'a> Run<'a> {
    fn new(runner: &'a Runner<'a>, plan: &'a Plan, earlier: Vec<Sample>) -> Self {
        let mut standing = vec![Standing::default(); plan.candidates.len()];
        for sample in &earlier {
            let cell = plan.cells.iter().position(|cell| *cell == sample.cell);
            let candidate = plan.candidates.iter().position(|name| *name == sample.candidate);
            if let (Some(cell), Some(candidate)) = (cell, candidate) {
                let of_cell = runner.may_miss_for_a_cell(&sample.candidate, &sample.cell);
                standing[candidate].learn(cell, &sample.cell, of_cell, &sample.outcome);
            }
        }
        let key = |sample: &Sample| (sample.round, sample.name.clone(), sample.candidate.clone());
        Self {
            runner,
            plan,
            standing,
            taken: earlier.iter().map(key).collect(),
            stock: programs::Stock::default(),
            samples: earlier,
            sequence: 0,
            total: 0,
        }
    }

    /// The number of steps in this round, and in all other certain rounds.
    fn expect(&mut self, round: u32, steps: usize) {
        let rounds = self.plan.rounds.saturating_sub(round + 1);
        let to_come = steps.saturating_mul(1 + rounds as usize);
        self.total = self
            .sequence
            .saturating_add(u32::try_from(to_come).unwrap_or(u32::MAX));
    }

    /// Takes one measurement, unless it is pointless.
    fn step(
        &mut self,
        round: u32,
        cell: usize,
        candidate: usize,
        groups: &mut Groups,
        store: &mut Store,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let sequence = self.sequence;
        self.sequence += 1;
        let name = &self.plan.candidates[candidate];
        let what = self.plan.cells[cell];
        if self.taken.contains(&(round, what.name(), name.clone())) {
            return Ok(());
        }
        if !self.supports(name, &what.workload) || !self.standing[candidate].is_worth_trying(cell) {
            return Ok(());
        }
        observer.begins(sequence, self.total, round, &what.name(), name);
        let began_unix_ms = unix_ms();
        let began = Instant::now();
        let Some(outcome) = self.measure(round, what, candidate, groups, store)? else {
            return Ok(());
        };
        let of_cell = self.runner.may_miss_for_a_cell(name, &what);
        self.standing[candidate].learn(cell, &what, of_cell, &outcome);
        let sample = Sample {
            round,
            sequence,
            candidate: name.clone(),
            name: what.name(),
            cell: what,
            factors: what.factors(),
            began_unix_ms,
            took_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            outcome,
        };
        store.append(&sample)?;
        observer.ended(&sample);
        self.samples.push(sample);
        Ok(())
    }

    /// Whether a candidate can be measured with a workload.
    fn supports(&self, name: &str, workload: &Workload) -> bool {
        if let Some(deployment) = self.plan.deployments.get(name) {
            return deployment.check(workload).is_ok();
        }
        let mut known = self.runner.candidates.iter();
        known.any(|known| known.name == name && (known.supports)(workload))
    }

    /// Takes a measurement; `None` if it was interrupted. Failed processes are not used again.
    /// Neither are unpinned ones, which would disturb others.
    fn measure(
        &self,
        round: u32,
        cell: Cell,
        candidate: usize,
        groups: &mut Groups,
        store: &mut Store,
    ) -> Result<Option<Outcome>, StoreError> {
        let (stop, settings) = (self.runner.stop, &self.plan.settings);
        let workload = cell.workload;
        if let Some(deployment) = self.plan.deployments.get(&self.plan.candidates[candidate]) {
            return Ok(self.measure_deployment(&workload, deployment));
        }
        if self
            .runner
            .is_of_programs(&self.plan.candidates[candidate], &workload)
        {
            return Ok(self.measure_programs(cell, candidate));
        }
        // Many processes would disturb others even while idle.
        let is_kept = workload.is_pinned() && workload.clients() <= 1;
        let key = (candidate, cell.mtu);
        let kept = if is_kept { groups.remove(&key) } else { None };
        let (mut group, is_new) = match kept {
            Some(group) => (group, false),
            None => {
                let between = match self.between(candidate) {
                    Ok(between) => between,
                    Err(reason) => return Ok(Some(failed(reason))),
                };
                if between.is_some() {
                    // Both machines know the ports beforehand, so that only one group may exist.
                    let others = groups.extract_if(|(other, _), _| *other == candidate);
                    others.for_each(|(_, group)| group.dismiss());
                }
                match Group::start(&self.runner.launcher, between, settings, workload) {
                    Ok(group) => (group, true),
                    Err(error) => return Ok(Some(self.cannot_start(&error))),
                }
            }
        };
        let entered = if is_new {
            let name = &self.plan.candidates[candidate];
            let scratch = store.new_scratch()?;
            group.enter(name, cell.mtu, &scratch, settings, self.seed(round), stop)
        } else {
            Ok(())
        };
        let measured = entered.and_then(|()| group.measure(workload, settings, stop));
        Ok(match measured {
            Ok((client, server)) => {
                if is_kept {
                    groups.insert(key, group);
                } else {
                    group.dismiss();
                }
                let [client, server] = [client, server].map(Box::new);
                Some(Outcome::Measured { client, server })
            }
            Err(PairError::Unavailable(reason)) => Some(Outcome::Unavailable { reason }),
            Err(PairError::Failed(reason)) => {
                let output = group.end();
                Some(Outcome::Failed { reason, output })
            }
            Err(PairError::Interrupted) => None,
        })
    }

    /// Seed of the sides' random decisions in a round, which differs from that of the order.
    fn seed(&self, round: u32) -> u64 {
        self.plan.seed.rotate_left(32).wrapping_add(round.into())
    }

    /// Takes a measurement whose sides are unmodified programs: they and their places are new each
    /// time.
    fn measure_programs(&self, cell: Cell, candidate: usize) -> Option<Outcome> {
        let toehold = match self.runner.launcher.program.canonicalize() {
            Ok(toehold) => toehold,
            Err(error) => return Some(self.cannot_start(&error)),
        };
        let on = programs::On {
            candidate: &self.plan.candidates[candidate],
            toehold: &toehold,
            settings: &self.plan.settings,
        };
        outcome(programs::measure_cell(cell, on, &self.stock, self.runner.stop))
    }

    /// Takes a measurement on a deployment, all of which is new each time.
    fn measure_deployment(&self, workload: &Workload, candidate: &SiteCandidate) -> Option<Outcome> {
        let toehold = match self.runner.launcher.program.canonicalize() {
            Ok(toehold) => toehold,
            Err(error) => return Some(self.cannot_start(&error)),
        };
        let run = site::DeploymentRun {
            candidate,
            toehold: &toehold,
            settings: &self.plan.settings,
        };
        outcome(site::measure(workload, run, self.runner.stop))
    }

    /// The other machine of a candidate between two, or the reason why it cannot be used.
    fn between(&self, candidate: usize) -> Result<Option<Between<'a>>, String> {
        let name = self.plan.candidates[candidate].as_str();
        let known = self.runner.candidates.iter().find(|known| known.name == name);
        match (&self.plan.settings.far, self.runner.far) {
            (Some(far), Some(met)) if known.is_some_and(|known| known.is_between_hosts) => {
                let met = met.as_ref().map_err(String::clone)?;
                Ok(Some((far, met.path)))
            }
            _ => Ok(None),
        }
    }

    fn cannot_start(&self, error: &io::Error) -> Outcome {
        let program = self.runner.launcher.program.display();
        failed(format!("cannot start {program}: {error}"))
    }
}

/// The outcome of a measurement of programs; `None` if it was interrupted.
fn outcome(measured: Result<(Side, Side), PairError>) -> Option<Outcome> {
    match measured {
        Ok((client, server)) => {
            let [client, server] = [client, server].map(Box::new);
            Some(Outcome::Measured { client, server })
        }
        Err(PairError::Unavailable(reason)) => Some(Outcome::Unavailable { reason }),
        Err(PairError::Failed(reason)) => Some(failed(reason)),
        Err(PairError::Interrupted) => None,
    }
}

fn failed(reason: String) -> Outcome {
    let output = String::new();
    Outcome::Failed { reason, output }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
