//! Models of a site of several tiers: what its caches hit, and what its stations then do.
//!
//! The crate is arithmetic on numbers that its caller measured or chose. It knows no clock, no
//! file and no network. Every loop has a bound, and no input makes it panic.
//!
//! - [`cache`]: least-recently-used caches, one level or two, warm or cold.
//! - [`network`]: closed queueing networks, exactly; one chain of clients or two.
//! - [`costs`]: what events cost, from measured times. [`sensitivity`]: what each demand does.
//! - [`accuracy`]: how near predictions are.
//! - [`site`]: tiers, caches and disks as stations. [`disk`]: what misses need of a disk.
//! - [`advice`]: which change pays.

#![forbid(unsafe_code)]

pub mod accuracy;
pub mod advice;
pub mod cache;
pub mod costs;
pub mod disk;
pub mod network;
pub mod sensitivity;
pub mod site;
