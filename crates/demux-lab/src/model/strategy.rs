//! What a strategy costs: by the equations as printed, corrected, and for a closed loop.

use toehold_stack::DemuxStrategy;

use super::exact::{self, Spread};
use super::*;

/// What segments cost on average: PCBs examined, or in `printed` for move-to-front those that
/// precede. Nothing where there is no equation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Of both kinds.
    pub examined: f64,
    /// Of entries.
    pub entry: Option<f64>,
    /// Of acknowledgements.
    pub acknowledgement: Option<f64>,
    /// Share of the acknowledgements that a chain's cache answers.
    pub hits: Option<f64>,
}

impl Expected {
    fn of_both(examined: f64) -> Self {
        Self {
            examined,
            entry: None,
            acknowledgement: None,
            hits: None,
        }
    }
}

/// As the paper has it; nothing of strategies that it has no equation for.
pub fn printed(strategy: DemuxStrategy, of: &Users) -> Option<Expected> {
    match strategy {
        DemuxStrategy::Bsd => Some(Expected::of_both(bsd(of.users))),
        DemuxStrategy::MoveToFront => Some(Expected {
            entry: Some(printed_entry(of)),
            acknowledgement: Some(printed_acknowledgement(of)),
            ..Expected::of_both(printed_move_to_front(of))
        }),
        DemuxStrategy::Sequent { chains } => {
            let chains = f64::from(chains);
            Some(Expected {
                entry: Some(sequent_uniform(of.users, chains)),
                acknowledgement: Some(printed_sequent_acknowledgement(of, chains)),
                hits: Some(undisturbed(of, chains)),
                ..Expected::of_both(printed_sequent(of, chains))
            })
        }
        DemuxStrategy::HashedMoveToFront { .. } | DemuxStrategy::FlowTable => None,
    }
}

/// As it must stand there for the paper's own assumptions.
pub fn corrected(strategy: DemuxStrategy, of: &Users) -> Option<Expected> {
    let printed = printed(strategy, of)?;
    Some(match strategy {
        DemuxStrategy::MoveToFront => Expected {
            entry: printed.entry.map(|preceding| preceding + 1.0),
            acknowledgement: printed.acknowledgement.map(|preceding| preceding + 1.0),
            ..Expected::of_both(corrected_move_to_front(of))
        },
        DemuxStrategy::Sequent { chains } => {
            let chains = f64::from(chains);
            Expected {
                examined: corrected_sequent(of, chains),
                acknowledgement: Some(corrected_sequent_acknowledgement(of, chains)),
                ..printed
            }
        }
        _ => printed,
    })
}

/// For users who enter nothing while they wait, on chains as a good hash makes them.
pub fn closed_loop(strategy: DemuxStrategy, of: &Users) -> Expected {
    let silent = exact::silent(of, of.response_time);
    match strategy {
        DemuxStrategy::Bsd => Expected::of_both(exact::bsd(of)),
        DemuxStrategy::MoveToFront => {
            let both = exact::move_to_front(of);
            let acknowledgement = 1.0 + (of.users - 1.0) * (1.0 - silent);
            Expected {
                entry: Some(2.0 * both - acknowledgement),
                acknowledgement: Some(acknowledgement),
                ..Expected::of_both(both)
            }
        }
        DemuxStrategy::Sequent { chains } => {
            let chains = f64::from(chains);
            // Others on the chain by the hash, none of whom sends while a user waits.
            let hits = (1.0 - (1.0 - silent) / chains).powf(of.users - 1.0);
            Expected {
                hits: Some(hits),
                ..Expected::of_both(exact::sequent(of, chains, Spread::Random))
            }
        }
        DemuxStrategy::HashedMoveToFront { chains } => {
            Expected::of_both(exact::hashed_move_to_front(of, chains.into(), Spread::Random))
        }
        DemuxStrategy::FlowTable => Expected::of_both(exact::flow_table(of)),
    }
}
