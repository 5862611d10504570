//! The order of look-ups.

use serde::Serialize;

use crate::model::Users;
use crate::tpca::Arrivals;

/// Kinds of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Users of TPC/A with a response time of 0.2 s.
    Tpca,
    /// Trains of 16 segments of one connection each.
    Trains,
    /// Zipf's law with exponent 1: few connections have most of the segments.
    Zipf,
    /// Look-ups of missing connections.
    Misses,
    /// One connection removed and entered again for every eight look-ups.
    Churn,
}

/// Number of segments in a train.
const TRAIN: usize = 16;

impl Traffic {
    /// All kinds of traffic.
    pub const ALL: [Self; 5] = [Self::Tpca, Self::Trains, Self::Zipf, Self::Misses, Self::Churn];

    /// Returns the name of the traffic.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpca => "tpca",
            Self::Trains => "trains",
            Self::Zipf => "zipf",
            Self::Misses => "misses",
            Self::Churn => "churn",
        }
    }

    /// Returns ids of connections to look up. Ids from `connections` on are not in
    /// the tables.
    pub fn numbers(self, connections: u32, lookups: usize, seed: u64) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(seed);
        match self {
            Self::Tpca => {
                let of = Users::thinking_ten_seconds(connections.into(), 0.2);
                let arrivals = Arrivals::new(&of, seed);
                arrivals.map(|(user, _)| user).take(lookups).collect()
            }
            Self::Trains => {
                let trains = std::iter::repeat_with(|| random.u32(..connections));
                let segments = trains.flat_map(|one| std::iter::repeat_n(one, TRAIN));
                segments.take(lookups).collect()
            }
            Self::Zipf => {
                // The inverse of the distribution function, which is nearly a
                // logarithm's. A connection's rank is independent of its position
                // in memory.
                let ln = (f64::from(connections) + 1.0).ln();
                let rank = std::iter::repeat_with(|| (random.f64() * ln).exp() as u64 - 1);
                let spread = |rank: u64| (rank * 0x9e37_79b1 % u64::from(connections)) as u32;
                rank.map(spread).take(lookups).collect()
            }
            Self::Misses => {
                let absent = std::iter::repeat_with(|| connections + random.u32(..connections));
                absent.take(lookups).collect()
            }
            Self::Churn => {
                let any = std::iter::repeat_with(|| random.u32(..connections));
                any.take(lookups).collect()
            }
        }
    }
}
