//! `workers`: programs with several workers, each with its clients, over all candidates.

use super::{Comparison, Options, Plan};
use crate::testbed::{self, Candidate};
use crate::workload::{Cell, MeasuredProgram, Workload};

/// The factors of the plan.
#[derive(Debug, Clone)]
pub struct Factors {
    /// The programs.
    pub programs: Vec<MeasuredProgram>,
    /// The numbers of workers, for programs that have a choice.
    pub workers: Vec<u8>,
    /// The numbers of clients.
    pub clients: Vec<u8>,
    /// The numbers of busy loops that run at the same time.
    pub loops: Vec<u8>,
}

impl Factors {
    /// The default factors.
    pub fn usual() -> Self {
        Self {
            programs: MeasuredProgram::all().collect(),
            workers: vec![4],
            clients: vec![1, 8, 32],
            loops: vec![0, 2],
        }
    }

    /// The factors of the short form.
    pub fn quick() -> Self {
        Self {
            workers: vec![2],
            clients: vec![8],
            loops: vec![0],
            ..Self::usual()
        }
    }

    /// Every combination of the factors, each once.
    fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for &program in &self.programs {
            let only = [1];
            let workers = if program.has_workers() {
                &self.workers[..]
            } else {
                &only
            };
            for &workers in workers {
                for &clients in &self.clients {
                    for &loops in &self.loops {
                        let cell = Cell::from(Workload::Workers {
                            program,
                            workers,
                            clients,
                            loops,
                        });
                        if !cells.contains(&cell) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        cells
    }
}

/// The plan; everything is compared with the kernel's loopback. It ignores the sizes in the
/// options.
pub fn plan(options: Options, factors: &Factors) -> Plan {
    let others = testbed::WORKERS.iter().map(|Candidate { name, .. }| *name);
    let pairs: Vec<_> = others
        .filter(|name| *name != testbed::KERNEL_LOOPBACK)
        .map(|name| (name, testbed::KERNEL_LOOPBACK))
        .collect();
    Plan {
        experiment: "workers".into(),
        title: "Programs with several workers".into(),
        cells: factors.cells(),
        comparisons: Comparison::among(&options.candidates, &pairs),
        wanted: Vec::new(),
        show: Vec::new(),
        paper: None,
        stop: None,
        candidates: options.candidates,
        rounds: options.rounds,
        deployments: std::collections::BTreeMap::new(),
        seed: options.seed,
        settings: options.settings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;

    fn plan_of(factors: &Factors) -> Plan {
        let options = Options {
            sizes: Vec::new(),
            candidates: testbed::WORKERS.iter().map(|it| it.name.to_owned()).collect(),
            rounds: 3,
            seed: 1,
            settings: Settings {
                warm_up_ms: 200,
                span_ms: 1000,
                patience_ms: 1000,
                cores: [0, 1],
                congestion: "reno".into(),
                trace: None,
                far: None,
            },
        };
        plan(options, factors)
    }

    #[test]
    fn all_candidates_are_compared_with_kernel_loopback() {
        let plan = plan_of(&Factors::usual());
        assert_eq!(plan.check(testbed::ALL), Ok(()));
        let of = |it: &Comparison| format!("{}/{}", it.candidate, it.baseline);
        let comparisons: Vec<_> = plan.comparisons.iter().map(of).collect();
        assert_eq!(
            comparisons,
            [
                "direct/kernel-loopback",
                "adaptive/kernel-loopback",
                "kernel-veth/kernel-loopback",
                "unix/kernel-loopback"
            ]
        );
    }

    #[test]
    fn programs_without_workers_to_choose_are_measured_once() {
        let factors = Factors {
            programs: vec![MeasuredProgram::Nginx1K, MeasuredProgram::Postgresql],
            workers: vec![1, 2, 4],
            clients: vec![8, 8],
            loops: vec![0],
        };
        let plan = plan_of(&factors);
        assert_eq!(plan.check(testbed::ALL), Ok(()));
        let names: Vec<_> = plan.cells.iter().map(Cell::name).collect();
        assert_eq!(
            names,
            [
                "nginx-1k_1w_8c_0l",
                "nginx-1k_2w_8c_0l",
                "nginx-1k_4w_8c_0l",
                "postgresql_8c_0l"
            ]
        );
    }

    #[test]
    fn short_form_takes_a_quarter_of_an_hour_at_most() {
        let plan = plan_of(&Factors::quick());
        assert!(plan.length(testbed::ALL).as_secs() < 15 * 60);
    }
}
