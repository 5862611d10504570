//! The laboratory of demultiplexing. It computes the cost of finding a connection
//! by the equations of the demux paper (McKenney and Dove, 1992). It also simulates
//! the paper's workload with the strategies' real code, and measures on this
//! machine.
//!
//! The crate knows strategies and tuples only: it uses no node and no link.

#![forbid(unsafe_code)]

mod connections;
pub mod model;
pub mod paper;
pub mod set_up;
mod simulation;
pub mod speed;
pub mod tpca;

pub use connections::{Connections, connection, secret};
pub use simulation::{Cost, Simulated, simulate};
pub use toehold_stack::DemuxStrategy;
