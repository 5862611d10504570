//! Models of a site of several tiers: what its caches hit, and what its stations then do.
//!
//! The crate is arithmetic on numbers that its caller measured or chose. It knows no clock, no
//!
//! - [`cache`]: least-recently-used caches, one level or two, warm or cold.

#![forbid(unsafe_code)]

pub mod cache;
