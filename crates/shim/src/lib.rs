//! `libtoehold.so`: Toehold under programs that know nothing of it.
//!
//! The library is loaded before libc (`LD_PRELOAD`). It has functions of the same names as those of libc that
//! have to do with sockets and descriptors. TOEHOLD_NODE names the node, and TOEHOLD_FABRIC its fabric.
//! Connections within the fabric become the node's. Everything else goes on to the kernel as it was.
//!
//! | file | what |
//! | --- | --- |
//! | `entry` | the functions, by what they are about |
//! | `next` | the functions they stand in for |
//! | `table`, `file` | what the program's descriptors are |
//! | `socket` | TCP sockets from `socket` to `close` |
//! | `epoll`, `wait`, `select`, `readiness` | waiting for the node's and the kernel's at once |
//! | `node`, `hosts`, `listing`, `diagnosis` | the node, what is for it, the names of all nodes, and its sockets |
//! | `start`, `process`, `borrower`, `inherited`, `rights` | beginnings, forks, and what crosses them |
//! | `dispatch` | system calls that the program makes itself |
//! | `usage` | what is counted |
//! | `inside`, `signals`, `sleep`, `cancel` | what may come in the middle of a call |
//! | `memory`, `faults`, `stack` | whether what a program passes is there, and room on its stacks |
//!
//! *Architecture Invariant*: a program that runs without it runs with it. What cannot be done
//! on a node is done in the kernel, and nothing is written to the program's terminal.

// In tests libc's functions stay libc's, so that no call reaches ours.
#![cfg_attr(test, allow(dead_code))]

mod answer;
mod borrower;
#[cfg(all(test, target_arch = "x86_64"))]
mod calls;
mod cancel;
mod diagnosis;
#[cfg(target_arch = "x86_64")]
mod dispatch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "dispatch/none.rs"]
mod dispatch;
mod entry;
mod epoll;
#[cfg(target_arch = "x86_64")]
mod faults;
#[cfg(not(target_arch = "x86_64"))]
#[path = "faults/none.rs"]
mod faults;
mod file;
mod hosts;
mod inherited;
mod inside;
mod listing;
mod memory;
mod next;
mod node;
mod process;
mod readiness;
mod relay;
mod rights;
mod select;
mod signals;
mod sleep;
mod socket;
mod stack;
mod start;
mod stderr;
mod table;
#[cfg(all(target_arch = "x86_64", not(test)))]
mod unwinder;
mod usage;
mod wait;
