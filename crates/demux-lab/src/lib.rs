//! The laboratory of demultiplexing: what finding a connection costs by the equations
//! of the demux paper (McKenney and Dove, 1992), in a simulation of its workload that
//! runs the strategies' real code, and on this machine.
//!
//! It knows of strategies and tuples, and of nothing else in Toehold: no node, no link.

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
