//! Where the nanoseconds of a message go.
//!
//! The crate divides a round trip between two programs into stages of work and hops between
//! threads. It decides which edges are stamped, keeps stamps in memory that its caller gives, and
//! computes times from them. It has no clock, no thread and no I/O.
//!
//! | step | module |
//! | --- | --- |
//! | which stages a message has, and the actor of each | [`stage`], [`actor`], [`layout`] |
//!
//! The method is that of "Splintering TCP/IP" style accounts, as SPLINTER.md §7 decides it.

#![forbid(unsafe_code)]

pub mod actor;
pub mod layout;
pub mod stage;
