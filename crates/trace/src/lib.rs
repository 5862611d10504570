//! Where the nanoseconds of a message go.
//!
//! The crate divides a round trip between two programs into stages of work and hops between
//! threads. It decides which edges are stamped, keeps stamps in memory that its caller gives, and
//! computes times from them. It has no thread. Only [`clock_source`] and
//! [`kernel::tracefs`] use files, and only the latter reads a clock.
//!
//! | step | module |
//! | --- | --- |
//! | which stages a message has, and the actor of each | [`stage`], [`actor`], [`layout`] |
//! | which two edges of a round trip are stamped | [`plan`] |
//! | which clock stamps are taken with | [`clock_source`] |
//! | taking stamps, and the memory that holds them | [`stamp`] |
//! | from stamps to times; whether they add up | [`account`] |
//! | what a change of stages would save | [`forecast`] |
//! | the kernel's own layout of a message, from its tracepoints | [`kernel`] |

#![forbid(unsafe_code)]

pub mod account;
pub mod actor;
pub mod clock_source;
pub mod forecast;
pub mod kernel;
pub mod layout;
mod mix;
pub mod plan;
pub mod stage;
pub mod stamp;
