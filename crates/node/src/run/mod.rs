//! Running programs on a node as they are, with a library that is preloaded into them.
//!
//! This module has what the launcher and the library must agree on: variables of the environment,
//! and one descriptor.
//!
//! The library needs [`FABRIC`] and [`NODE`] to attach to the node, and does so when the program
//! first needs it. Where one of them is missing it leaves everything to the kernel. By [`NETWORKS`]
//! it knows what is none of the kernel's when the node is gone. What it counts, it adds to the
//! [counters](crate::usage) at [`STATS`], if that is given.
//!
//! Every process that the program starts inherits the descriptor. The node lasts as long as a
//! process that lives has it, or has attached. A program may not be allowed to look for the node by
//! its name, as another user or in another root. It attaches by the descriptor. Through the
//! descriptor the library also tells of programs that will not use the node.

mod keeper;
mod library;
mod program;
mod stay;

pub use self::keeper::{keeper_of, name_of_keeper};
pub use self::library::{LibraryError, find as find_library, preload, relaxed, without as preload_without};
pub use self::program::{ProgramError, find as find_program, obstacle};
pub use self::stay::{Stay, StayError, name_of};

/// The library's file.
pub const LIBRARY: &str = "libtoehold.so";

/// The variable of the environment that says where the library is, for the launcher.
pub const LIBRARY_VARIABLE: &str = "TOEHOLD_LIBRARY";

/// The variable that names the fabric: its directory, absolute. Commands that the program
/// runs find the same fabric by it.
pub const FABRIC: &str = crate::fabric::VARIABLE;

/// The variable that names the node.
pub const NODE: &str = "TOEHOLD_NODE";

/// The variable that says which [networks](crate::fabric::Networks) are the fabric's.
pub const NETWORKS: &str = "TOEHOLD_NETWORKS";

/// The variable that names the file of the [counters](crate::usage::Usage::open), if there
/// is one.
pub const STATS: &str = "TOEHOLD_STATS";

/// The variable that says [`ALLOW`] if programs may have rings of io_uring(7), whose calls the library does not see.
pub const IO_URING: &str = "TOEHOLD_IO_URING";

/// The value of [`IO_URING`].
pub const ALLOW: &str = "allow";

/// The variable that says which of the program's descriptors keeps the node, see
/// [`Stay::inherited`]: its number, and which pipe it is of. The library keeps programs from
/// closing it that close whatever they do not know.
pub const KEEPER: &str = "TOEHOLD_KEEPER";

/// The variable that is there if the library is to say nothing on the standard error output.
pub const QUIET: &str = "TOEHOLD_QUIET";

/// Inherited descriptors have this number at least: shells and runtimes have those below to
/// themselves.
pub const FIRST_DESCRIPTOR: i32 = 100;

/// The variable of the dynamic linker.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The variables of sanitizers, and the settings that [`relaxed`] adds for programs that have one.
/// They let a sanitizer begin although a library is preloaded before its own, whose functions that
/// library calls. They also let it accept what another library does with memory.
pub const SANITIZERS: [(&str, &str); 2] = [
    ("ASAN_OPTIONS", "verify_asan_link_order=0"),
    ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TABLE;

    #[test]
    fn variables_are_not_those_of_settings() {
        let variables = [
            LIBRARY_VARIABLE,
            FABRIC,
            NODE,
            NETWORKS,
            STATS,
            IO_URING,
            KEEPER,
            QUIET,
        ];
        let taken = |variable: &&str| TABLE.iter().any(|setting| setting.variable == *variable);
        assert_eq!(variables.iter().find(|variable| taken(variable)), None);
    }
}
