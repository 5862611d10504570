//! Linux's socket interface as C programs have it, and what the stack calls the same things:
//! addresses, memory, scattered buffers, socket options, `errno`.
//!
//! Whatever stands between a C program and the stack translates with it. It holds nothing and
//! calls nothing.

pub mod address;
pub mod errno;
pub mod info;
pub mod memory;
pub mod message;
pub mod options;
