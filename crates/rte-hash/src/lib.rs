//! DPDK's `rte_hash` from the installed library, as a table to compare with in one
//! process and one run. Nothing in Toehold depends on it. It is loaded at its first
//! use, without headers at compile time, or reported as missing.

mod library;
mod table;

pub use library::{Missing, Rte};
pub use table::{BURST, Full, Table};
