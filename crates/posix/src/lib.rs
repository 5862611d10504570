//! Translates between Linux's socket interface for C programs and the stack's
//! types: addresses, memory, scattered buffers, socket options, `errno`.
//!
//! Every interface between a C program and the stack uses this crate. The crate has
//! no state and makes no system call.

pub mod address;
pub mod errno;
pub mod extended_error;
pub mod info;
pub mod memory;
pub mod message;
pub mod options;
