//! A measurement of a program with several workers: its parameters, its shell lines, and the place
//! of its servers.

use std::process::{Command, Stdio};

use super::said;
use crate::programs::files::Files;
use crate::programs::find;
use crate::programs::place::{Places, Tier, Way, succeed};
use crate::workload::MeasuredProgram;

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub(in crate::programs) struct Job {
    pub(in crate::programs) service: MeasuredProgram,
    pub(in crate::programs) workers: u8,
    pub(in crate::programs) clients: u8,
    pub(in crate::programs) loops: u8,
}

/// Shell lines of a job, which use the variables of
/// [`Places::command`](crate::programs::place::Places::command).
pub(super) struct JobLines {
    pub(super) back: Option<String>,
    pub(super) server: String,
    pub(super) client: String,
    pub(super) read: said::Reader,
}

/// The listening address of a measurement's servers, and their directory.
pub(super) struct ListeningPlace<'a> {
    pub(super) way: Way,
    pub(super) places: &'a Places<'a>,
    pub(super) files: &'a Files,
}

impl ListeningPlace<'_> {
    /// A server's listening address in the common form: a port, or a path.
    pub(super) fn listen(&self, server: Tier) -> String {
        match self.way {
            Way::Unix => self.path(server),
            _ => self.places.port_of(server).to_string(),
        }
    }

    /// The address for clients.
    pub(super) fn reach(&self, server: Tier) -> String {
        match self.way {
            Way::Unix => self.path(server),
            way => format!("{}:{}", way.address(), self.places.port_of(server)),
        }
    }

    /// The path of a server on Unix sockets.
    pub(super) fn path(&self, server: Tier) -> String {
        self.places.socket_of(server).display().to_string()
    }

    /// Writes a file for the servers and returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.files.path().join(name);
        let written = std::fs::write(&path, text);
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// Runs a shell line, which may use `$DIR`, once in a run.
    pub(super) fn make_once(&self, name: &str, what: &str, line: &str) -> Result<(), String> {
        let made = self.files.path().join(format!("made.{name}"));
        if made.exists() {
            return Ok(());
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .env("DIR", self.files.path())
            .env("PATH", find::path())
            .current_dir(self.files.path())
            .stdin(self.files.keeper().hold().unwrap_or_else(|_| Stdio::null()));
        succeed(command, what).map_err(|error| error.to_string())?;
        std::fs::write(made, "").map_err(|error| error.to_string())
    }
}
