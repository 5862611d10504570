//! Tagged messages, as a passive state machine.
#![forbid(unsafe_code)]

mod links;
pub mod matching;
