//! A node: one network identity, shared by the processes of its programs.
//!
//! | file | what |
//! | --- | --- |
//! | `placement` | who runs the node's stack |

#![forbid(unsafe_code)]

mod placement;

pub use self::placement::{InvalidPlacement, Placement};
