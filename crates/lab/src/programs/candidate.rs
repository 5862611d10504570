//! A candidate for programs, and the stack of its programs.

use std::path::Path;

use super::place::Way;
use crate::settings::Settings;
use crate::testbed::{KERNEL_LOOPBACK, KERNEL_VETH, UNIX};

/// A candidate for programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct On<'a> {
    /// The kernel's stack over veth, or a placement of nodes' stacks.
    pub(crate) candidate: &'a str,
    /// The `toehold` command.
    pub(crate) toehold: &'a Path,
    /// How measurements are taken.
    pub(crate) settings: &'a Settings,
}

/// Candidates that are nodes with the defaults of `toehold up`, and its additional arguments. All
/// other nodes are named after their placement.
const NODES: &[(&str, &[&str])] = &[("toehold", &[])];

impl On<'_> {
    /// The stack of the candidate, and its placement.
    pub(super) fn way(&self) -> (Way, Option<String>) {
        let way = way_of(self.candidate);
        let is_placed = way == Way::Toehold && !NODES.iter().any(|(name, _)| *name == self.candidate);
        (way, is_placed.then(|| self.candidate.to_owned()))
    }

    /// Additional arguments of `toehold up`.
    pub(super) fn up(&self) -> &'static [&'static str] {
        let known = NODES.iter().find(|(name, _)| *name == self.candidate);
        known.map_or(&[], |(_, words)| words)
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
