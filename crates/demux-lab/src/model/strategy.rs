//! The cost of a strategy: as printed, corrected, and for a closed loop.

use toehold_stack::DemuxStrategy;

use super::exact::{self, Spread};
use super::*;

/// The mean cost of segments in PCBs examined. `printed` counts preceding PCBs for
/// move-to-front. Fields without an equation are `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// PCBs for all segments.
    pub examined: f64,
    /// PCBs for entries.
    pub entry: Option<f64>,
    /// PCBs for acknowledgements.
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

/// Returns the printed cost, or `None` for a strategy without a printed
/// equation.
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

/// Returns the cost that is right under the paper's own assumptions.
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

/// Returns the cost for users that enter nothing while they wait, with a good
/// hash.
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
            // Others on the chain by the hash, if none of them sends while a
            // user waits.
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
