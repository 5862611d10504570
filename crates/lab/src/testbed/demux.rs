//! The cost of finding a connection: by equations, in a simulation, and on this machine.

use std::io;
use std::time::Duration;

use toehold_demux_lab::model::{self, Expected, Users};
use toehold_demux_lab::set_up::Examined;
use toehold_demux_lab::{DemuxStrategy, set_up, simulate, speed, tpca};

use super::source::Source;
use super::stacks;
use crate::samples::Side;
use crate::workload::Workload;

/// The equations of McKenney and Dove's paper as printed.
pub(super) struct Printed;

/// The equations of McKenney and Dove's paper with corrections.
pub(super) struct Corrected;

/// Equations for users that enter no transaction while they wait.
pub(super) struct Model;

/// The strategies' code on users in virtual time.
pub(super) struct Simulation;

/// The strategies' code without virtual time, for other users: counted, and timed in bursts.
pub(super) struct Measured;

impl Source for Printed {
    const NAME: &'static str = "printed";
    const ABOUT: &'static str = "equations as a paper has them";

    fn supports(workload: &Workload) -> bool {
        is_entries(workload)
            || printed_set_up(workload).is_some()
            || expects(model::printed, workload).is_some()
    }

    fn find(workload: &Workload, _: u64) -> io::Result<Side> {
        if let (Workload::Entries { span_ms, .. }, Some(of)) = (workload, users(workload)) {
            let entered = model::others_within(of.users, of.rate, seconds(*span_ms));
            return Ok(Side::of_values([("", Some(entered))]));
        }
        if let Some(examined) = printed_set_up(workload) {
            return Ok(Side::of_values([("", Some(examined))]));
        }
        said(expects(model::printed, workload))
    }
}

impl Source for Corrected {
    const NAME: &'static str = "corrected";
    const ABOUT: &'static str = "equations as a paper must have them";

    fn supports(workload: &Workload) -> bool {
        expects(model::corrected, workload).is_some()
    }

    fn find(workload: &Workload, _: u64) -> io::Result<Side> {
        said(expects(model::corrected, workload))
    }
}

impl Source for Model {
    const NAME: &'static str = "model";
    const ABOUT: &'static str = "equations for a closed loop of users, and for what a good hash does";

    fn supports(workload: &Workload) -> bool {
        is_look_up(workload)
    }

    fn find(workload: &Workload, _: u64) -> io::Result<Side> {
        said(expects(
            |strategy, of| Some(model::closed_loop(strategy, of)),
            workload,
        ))
    }
}

impl Source for Simulation {
    const NAME: &'static str = "simulation";
    const ABOUT: &'static str = "the strategies' code under virtual time, PCBs counted";

    fn supports(workload: &Workload) -> bool {
        is_entries(workload) || is_set_up(workload) || is_look_up(workload)
    }

    fn find(workload: &Workload, seed: u64) -> io::Result<Side> {
        match (workload, users(workload)) {
            (
                &Workload::SetUp {
                    strategy,
                    connections,
                },
                _,
            ) => Ok(of_set_up(set_up::simulate(strategy, connections, seed), None)),
            (Workload::Entries { span_ms, .. }, Some(of)) => {
                let entered = tpca::entered_within(&of, seconds(*span_ms), seed);
                Ok(Side::of_values([("", Some(entered))]))
            }
            (
                Workload::LookUp {
                    strategy, lookups, ..
                },
                Some(of),
            ) => {
                let cost = simulate(*strategy, &of, (*lookups).into(), seed);
                let has_caches = matches!(strategy, DemuxStrategy::Sequent { .. });
                let values = [
                    ("", Some(cost.together.examined)),
                    ("entry", Some(cost.entries.examined)),
                    ("acknowledgement", Some(cost.acknowledgements.examined)),
                    ("hits", has_caches.then_some(cost.acknowledgements.cache_hits)),
                ];
                Ok(Side {
                    messages: cost.together.lookups,
                    ..Side::of_values(values)
                })
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Source for Measured {
    const NAME: &'static str = "measured";
    const ABOUT: &'static str =
        "the strategies' code on this machine, PCBs counted, look-ups timed in bursts";

    fn supports(workload: &Workload) -> bool {
        is_look_up(workload) || is_set_up(workload)
    }

    fn find(workload: &Workload, seed: u64) -> io::Result<Side> {
        if let &Workload::SetUp {
            strategy,
            connections,
        } = workload
        {
            let done = stacks::set_up(strategy, connections, !seed)?;
            return Ok(of_set_up(done.examined, Some(done.took)));
        }
        let (
            Workload::LookUp {
                strategy, lookups, ..
            },
            Some(of),
        ) = (workload, users(workload))
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // Other users and keys than the simulation's, so that the results agree independently.
        let measured = speed::look_up(*strategy, &of, *lookups, !seed);
        let took_ns = u64::try_from(measured.took.as_nanos()).unwrap_or(u64::MAX);
        Ok(Side {
            messages: measured.lookups,
            span_ns: took_ns,
            ..Side::of_values([
                ("", Some(measured.examined)),
                ("ns", Some(took_ns as f64 / measured.lookups as f64)),
            ])
        })
    }
}

fn is_entries(workload: &Workload) -> bool {
    matches!(workload, Workload::Entries { .. })
}

fn is_look_up(workload: &Workload) -> bool {
    matches!(workload, Workload::LookUp { .. })
}

fn is_set_up(workload: &Workload) -> bool {
    matches!(workload, Workload::SetUp { .. })
}

fn printed_set_up(workload: &Workload) -> Option<f64> {
    match *workload {
        Workload::SetUp {
            strategy,
            connections,
        } => set_up::printed(strategy, connections),
        _ => None,
    }
}

fn of_set_up(examined: Examined, took: Option<Duration>) -> Side {
    Side::of_values([
        ("", Some(examined.packets as f64)),
        ("ports", Some(examined.ports as f64)),
        ("ns", took.map(|took| took.as_nanos() as f64)),
    ])
}

/// The paper's users. Those of figure 4 never wait, as the equation assumes.
fn users(workload: &Workload) -> Option<Users> {
    let of = |users: u32, response_s| Users::thinking_ten_seconds(users.into(), response_s);
    match workload {
        Workload::Entries { users, .. } => Some(of(*users, 0.0)),
        Workload::LookUp {
            users, response_ms, ..
        } => Some(of(*users, seconds(*response_ms))),
        _ => None,
    }
}

fn seconds(ms: u32) -> f64 {
    f64::from(ms) / 1e3
}

/// The results of equations for a look-up, if there are any.
fn expects(
    equations: impl Fn(DemuxStrategy, &Users) -> Option<Expected>,
    workload: &Workload,
) -> Option<Expected> {
    let Workload::LookUp { strategy, .. } = workload else {
        return None;
    };
    equations(*strategy, &users(workload)?)
}

fn said(expected: Option<Expected>) -> io::Result<Side> {
    let expected = expected.ok_or(io::ErrorKind::Unsupported)?;
    Ok(Side::of_values([
        ("", Some(expected.examined)),
        ("entry", expected.entry),
        ("acknowledgement", expected.acknowledgement),
        ("hits", expected.hits),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(strategy: &str) -> Workload {
        Workload::LookUp {
            strategy: strategy.parse().unwrap(),
            response_ms: 200,
            users: 2000,
            lookups: 1000,
        }
    }

    fn value(side: io::Result<Side>, part: &str) -> f64 {
        side.unwrap().values[part]
    }

    #[test]
    fn equations_match_paper() {
        let printed = |strategy, part| value(Printed::find(&look_up(strategy), 0), part);
        assert!((printed("bsd", "") - 1000.99975).abs() < 1e-9);
        assert!((printed("move-to-front", "") - 548.6).abs() < 0.05);
        assert!((printed("sequent:19", "") - 52.98).abs() < 0.005);
        assert!((printed("sequent:51", "hits") - 0.217).abs() < 0.0005);
        let corrected = value(Corrected::find(&look_up("sequent:19"), 0), "");
        assert!((corrected - 53.47).abs() < 0.005, "{corrected}");
        let model = value(Model::find(&look_up("move-to-front"), 0), "");
        assert!((model - 548.4 - 1.0).abs() < 0.06, "{model}");
        let entries = Workload::Entries {
            users: 2000,
            span_ms: 10_000,
        };
        assert!((value(Printed::find(&entries, 0), "") - 1263.6).abs() < 0.05);
    }

    #[test]
    fn source_omits_unknown_figures() {
        assert!(!Printed::supports(&look_up("flow-table")) && Model::supports(&look_up("flow-table")));
        assert!(!Measured::supports(&Workload::Bulk));
        assert!(Printed::find(&look_up("flow-table"), 0).is_err());
        let testbeds = super::super::SOCKETS.iter();
        assert!(testbeds.into_iter().all(|it| !(it.supports)(&look_up("bsd"))));
    }
}
