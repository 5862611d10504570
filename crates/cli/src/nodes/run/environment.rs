//! The environment of a program on a node, which the library reads.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use toehold_node::run::{self, Stay};
use toehold_node::usage::Usage;

/// What the library is told.
pub(super) struct ShimEnvironment<'a> {
    /// The library that the dynamic linker loads first.
    pub(super) library: &'a Path,
    /// The node.
    pub(super) stay: &'a Stay,
    /// Whether the library does not report what stays with the kernel.
    pub(super) is_quiet: bool,
    /// Where the program's processes count what they use.
    pub(super) usage: Option<&'a Usage>,
    /// Whether the program may use io_uring.
    pub(super) allows_io_uring: bool,
}

impl ShimEnvironment<'_> {
    /// Sets the variables of `command`. All others are inherited.
    pub(super) fn set(&self, command: &mut Command) {
        let former = std::env::var_os(run::PRELOAD);
        command
            .env(run::PRELOAD, run::preload(self.library, former.as_deref()))
            .env(run::FABRIC, self.stay.fabric().path())
            .env(run::NODE, self.stay.node());
        for (variable, told) in run::SANITIZERS {
            let former = std::env::var_os(variable);
            command.env(variable, run::relaxed(told, former.as_deref()));
        }
        // If the node has ended meanwhile, the program finds out itself.
        if let Some(networks) = self.stay.networks() {
            command.env(run::NETWORKS, networks.to_string());
        }
        set_or_remove(command, run::QUIET, self.is_quiet.then_some("1"));
        set_or_remove(command, run::STATS, self.usage.map(Usage::path));
        let allow = self.allows_io_uring.then_some(run::ALLOW);
        set_or_remove(command, run::IO_URING, allow);
    }
}

/// Sets a variable, or keeps the program from inheriting it.
fn set_or_remove(command: &mut Command, name: &str, value: Option<impl AsRef<OsStr>>) {
    match value {
        Some(value) => command.env(name, value),
        None => command.env_remove(name),
    };
}
