//! A deterministic network of stacks under virtual time.
#![forbid(unsafe_code)]

pub mod packet;
pub mod script;
pub mod seed;
pub mod stream;
