//! All equations together, and the paper's two figures.

use serde::Serialize;

use super::exact::{self, Spread};
use super::*;

/// The value of every equation for some users, in the paper's order. Values count
/// PCBs examined unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// The users.
    pub users: Users,
    /// Number of hash chains.
    pub chains: f64,
    /// Equation 1.
    pub bsd: f64,
    /// Equation 5: PCBs that precede at an entry.
    pub move_to_front_entry: f64,
    /// N(2R): PCBs that precede at an acknowledgement.
    pub move_to_front_acknowledgement: f64,
    /// Equation 6: PCBs that precede.
    pub move_to_front_printed: f64,
    /// Equation 6 plus the found PCB.
    pub move_to_front_corrected: f64,
    /// Equation 8.
    pub sequent_uniform: f64,
    /// Equation 9, a probability.
    pub undisturbed: f64,
    /// Equation 10.
    pub sequent_acknowledgement_printed: f64,
    /// Equation 10 with the failing probe of the cache.
    pub sequent_acknowledgement_corrected: f64,
    /// Equation 11 to the letter, with its misprint.
    pub sequent_misprinted: f64,
    /// Equation 11 as intended.
    pub sequent_printed: f64,
    /// Equation 11 with the failing probe of the cache.
    pub sequent_corrected: f64,
    /// Values for a closed loop.
    pub exact: Exact,
}

/// The cost in a closed loop of users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exact {
    /// A list with a cache.
    pub bsd: f64,
    /// A list in the order of use.
    pub move_to_front: f64,
    /// Chains of equal length, with caches.
    pub sequent_even: f64,
    /// Chains of a good hash, with caches.
    pub sequent: f64,
    /// Share of segments that the chains' caches answer.
    pub sequent_cache_hits: f64,
    /// Chains of a good hash, in the order of use.
    pub hashed_move_to_front: f64,
    /// The flow table.
    pub flow_table: f64,
}

impl Model {
    /// Evaluates all equations for some users and a number of chains.
    pub fn of(users: Users, chains: u32) -> Self {
        let (of, chains) = (&users, f64::from(chains));
        Self {
            users,
            chains,
            bsd: bsd(of.users),
            move_to_front_entry: printed_entry(of),
            move_to_front_acknowledgement: printed_acknowledgement(of),
            move_to_front_printed: printed_move_to_front(of),
            move_to_front_corrected: corrected_move_to_front(of),
            sequent_uniform: sequent_uniform(of.users, chains),
            undisturbed: undisturbed(of, chains),
            sequent_acknowledgement_printed: printed_sequent_acknowledgement(of, chains),
            sequent_acknowledgement_corrected: corrected_sequent_acknowledgement(of, chains),
            sequent_misprinted: misprinted_sequent(of, chains),
            sequent_printed: printed_sequent(of, chains),
            sequent_corrected: corrected_sequent(of, chains),
            exact: Exact {
                bsd: exact::bsd(of),
                move_to_front: exact::move_to_front(of),
                sequent_even: exact::sequent(of, chains, Spread::Even),
                sequent: exact::sequent(of, chains, Spread::Random),
                sequent_cache_hits: exact::cache_hits(of, chains, Spread::Random),
                hashed_move_to_front: exact::hashed_move_to_front(of, chains, Spread::Random),
                flow_table: exact::flow_table(of),
            },
        }
    }
}

/// Spans of figure 4 that the text permits to check, in seconds.
pub const FIGURE_4_SPANS: [f64; 8] = [0.2, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0];

/// A point of figure 4.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure4 {
    /// The span in seconds.
    pub span: f64,
    /// Number of users that enter a transaction within the span.
    pub users: f64,
}

/// Computes figure 4: equation 3 for the spans.
pub fn figure_4(users: f64, rate: f64, spans: &[f64]) -> Vec<Figure4> {
    let point = |&span: &f64| Figure4 {
        span,
        users: others_within(users, rate, span),
    };
    spans.iter().map(point).collect()
}

/// Numbers of users of figure 9.
pub const FIGURE_9_USERS: [f64; 5] = [500.0, 1000.0, 2000.0, 5000.0, 10_000.0];

/// A point of every curve of figure 9 as the paper computes them. Move-to-front
/// counts preceding PCBs, and chains have a response time of 0.2 s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure9 {
    /// Number of users.
    pub users: f64,
    /// Equation 1.
    pub bsd: f64,
    /// Equation 6, R = 2 s, 1 s, 0.5 s and 0.2 s.
    pub move_to_front: [f64; 4],
    /// Equation 11, 19 chains.
    pub sequent_19: f64,
    /// Equation 11, 100 chains.
    pub sequent_100: f64,
}

/// Response times of figure 9, in seconds.
const FIGURE_9_RESPONSES: [f64; 4] = [2.0, 1.0, 0.5, 0.2];

/// Computes figure 9 for numbers of users with a mean think time of ten
/// seconds.
pub fn figure_9(users: &[f64]) -> Vec<Figure9> {
    let point = |&users: &f64| {
        let answered = |response| Users::thinking_ten_seconds(users, response);
        Figure9 {
            users,
            bsd: bsd(users),
            move_to_front: FIGURE_9_RESPONSES.map(|response| printed_move_to_front(&answered(response))),
            sequent_19: printed_sequent(&answered(0.2), 19.0),
            sequent_100: printed_sequent(&answered(0.2), 100.0),
        }
    };
    users.iter().map(point).collect()
}
