//! Closed queueing networks: a fixed number of clients, each of which asks again after its answer.
//!
//! All results are exact for networks with product form (Baskett, Chandy, Muntz and Palacios, 1975).
//! Stations with processor sharing have it, and those with exponential times in order of arrival.

mod bounds;
mod chains;
mod closed;
mod fork;
mod load_dependent;
mod mva;
mod pool;

pub use bounds::ThroughputBounds;
pub use chains::{ChainDemands, ChainSolution, TwoChains};
pub use closed::{ClosedNetwork, ModelStation, NetworkError, NetworkSolution, StationKind, StationSolution};
pub use fork::ForkedReads;
pub use load_dependent::MOST_STATES;
pub use pool::thread_pool;
