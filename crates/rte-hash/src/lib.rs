//! DPDK's `rte_hash`, of the library that a distribution has installed: a table to be compared
//! with, in one process and one run. Nothing of Toehold needs it, and nothing is compiled against
//! it: it is loaded when it is first asked for, or is said to be missing.

mod library;
mod table;

pub use library::{Missing, Rte};
pub use table::{BURST, Full, Table};
