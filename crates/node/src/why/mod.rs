//! The reasons why a program, or something that it does, is the kernel's and not the node's.
//!
//! The reasons are one list ([`Reason`]), whose words are the same in the library, in `toehold
//! run`, `ps` and `stat`, and in the documentation. What is known of a program comes from its file
//! ([`crate::run::obstacle`]), from the library and from `/proc` (`inspect`). The library
//! [reports](Report) what it sees or could not do.

mod inspect;
mod reason;
mod record;

pub use self::inspect::inspect;
pub use self::reason::{Reason, document};
pub(crate) use self::record::Records;
pub use self::record::{Report, Unaccelerated};
