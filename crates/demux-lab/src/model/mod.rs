//! The demux paper's equations, as printed and corrected.
//!
//! All equations count PCBs examined for a segment that reaches the server of a
//! TPC/A benchmark. Users think for an exponentially distributed time, enter a
//! transaction, and get its result after a response time. The server sees two
//! segments of each transaction: the one with the query (the *entry*) and the
//! acknowledgement of the result.
//!
//! Sums and integrals of the paper are in closed form here. Names tell deviations
//! from the print. `printed_…` is the printed equation, and `corrected_…` is right
//! under the paper's own assumptions. [`exact`] drops two of these: that users
//! enter transactions while they wait for a result, and that chains are equally
//! long.

mod bsd;
pub mod exact;
mod move_to_front;
mod sequent;
mod strategy;
mod table;
#[cfg(test)]
mod tests;

pub use bsd::*;
pub use move_to_front::*;
pub use sequent::*;
pub use strategy::{Expected, closed_loop, corrected, printed};
pub use table::{FIGURE_4_SPANS, FIGURE_9_USERS, Figure4, Figure9, Model, figure_4, figure_9};

/// The users of a TPC/A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Users {
    /// Number of users. Each has a connection.
    pub users: f64,
    /// Transactions that a user enters in a second of thinking: 1 over the mean
    /// think time. (The paper's `a`, whose unit it once gives as seconds per
    /// transaction.)
    pub rate: f64,
    /// Seconds from a transaction's entry to its result.
    pub response_time: f64,
}

impl Users {
    /// Returns the paper's example: `users` users with a mean think time of ten
    /// seconds.
    pub fn thinking_ten_seconds(users: f64, response_time: f64) -> Self {
        Self {
            users,
            rate: 0.1,
            response_time,
        }
    }

    /// The dimensionless response time: a·R.
    fn load(&self) -> f64 {
        self.rate * self.response_time
    }
}
