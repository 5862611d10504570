//! A candidate for programs, and the stack of its programs.

use std::path::Path;

use super::place::Way;
use crate::settings::Settings;
use crate::testbed::{DIRECT, KERNEL_LOOPBACK, KERNEL_VETH, UNIX};

/// A candidate for programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct On<'a> {
    /// A stack of the kernel's, direct connections, or a placement of nodes' stacks.
    pub(crate) candidate: &'a str,
    /// The `toehold` command.
    pub(crate) toehold: &'a Path,
    /// How measurements are taken.
    pub(crate) settings: &'a Settings,
}

impl On<'_> {
    /// The stack of the candidate, and the additional arguments of `toehold up`.
    pub(super) fn way(&self) -> (Way, Vec<String>) {
        let words: &[&str] = match (way_of(self.candidate), self.candidate) {
            (Way::Toehold, DIRECT) => &["--direct", "yes"],
            // All other nodes are named after their placement, and compare TCP with TCP.
            (Way::Toehold, placement) => &["--direct", "no", "--placement", placement],
            _ => &[],
        };
        let words = words.iter().map(|&word| word.to_owned());
        (way_of(self.candidate), words.collect())
    }
}

/// The stack of a candidate, by its name.
pub(super) fn way_of(candidate: &str) -> Way {
    match candidate {
        KERNEL_VETH => Way::Kernel,
        KERNEL_LOOPBACK => Way::Loopback,
        UNIX => Way::Unix,
        _ => Way::Toehold,
    }
}
