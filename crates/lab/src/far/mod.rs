//! Another machine with the servers' processes. `ssh` starts a command there, which forwards the
//! messages between the runner and a side of a measurement.
//!
//! The measured traffic does not go through `ssh`. It uses the network between the two machines, by
//! their addresses.

mod machine;
mod relay;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use crate::host::{Build, Host};
use crate::process::Launcher;

pub use machine::{Far, Met, Path};
pub use relay::relay;

/// The hidden command of the far machine's `toehold`.
pub const NAME: &str = "lab-far";

/// The argument that asks for facts about the machine.
pub const ABOUT: &str = "--about";

/// Exit status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

/// Exit status of `ssh` without a connection.
const NOT_REACHED: i32 = 255;

/// Suppresses prompts, which no user would answer; a machine that is gone is detected within 15 s.
const OPTIONS: [&str; 9] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
];

/// A machine's facts about itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    host: Host,
    /// The address at which it was reached, from its own view.
    reached: Option<IpAddr>,
}

impl About {
    /// The facts about this machine, on which an `ssh` server has started this process.
    pub fn this() -> Self {
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        Self {
            host: Host::read(),
            // Client's address and port, server's address and port.
            reached: connection
                .split(' ')
                .nth(2)
                .and_then(|address| address.parse().ok()),
        }
    }
}

impl Far {
    /// Checks whether the machine can be used for measurements.
    ///
    /// # Errors
    ///
    /// The problem, and what to do about it.
    pub fn meet(&self) -> Result<Met, String> {
        let (host, toehold) = (&self.host, quoted(&self.toehold));
        let asked = format!("{toehold} version --json && {toehold} {NAME} {ABOUT}");
        let output = self.command(&asked).stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            let ssh = &self.ssh;
            format!("cannot run `{ssh}` ({error}): install openssh-client, or say with --ssh what to run")
        })?;
        let mut said = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let build = match said.next() {
            Some(Ok(build)) => serde_json::from_value::<Build>(build),
            _ => return Err(self.silence(&output)),
        };
        let here = Build::this();
        match build {
            Ok(there) if there == here => {}
            Ok(there) => {
                return Err(format!(
                    "{host} has another build, {}, than this machine, {}: install the same on both",
                    spoken(&there),
                    spoken(&here)
                ));
            }
            Err(_) => {
                return Err(format!(
                    "`{toehold} version --json` on {host} says something else"
                ));
            }
        }
        let about = said.next().and_then(Result::ok);
        let about = about.and_then(|about| serde_json::from_value::<About>(about).ok());
        let about = about.ok_or_else(|| self.silence(&output))?;
        let server = self.address_of(&about)?;
        let client = own_address(server)
            .ok_or_else(|| format!("there is no way from this machine to {server}, which {host} is"))?;
        Ok(Met {
            host: about.host,
            path: Path { server, client },
        })
    }

    fn address_of(&self, about: &About) -> Result<Ipv4Addr, String> {
        match (self.address, about.reached) {
            (Some(address), _) | (None, Some(IpAddr::V4(address))) => Ok(address),
            (None, _) => Err(format!(
                "{} does not say by which IPv4 address it was reached: say it with --far-address",
                self.host
            )),
        }
    }

    /// The reason for a missing answer.
    fn silence(&self, output: &Output) -> String {
        let Self { host, toehold, .. } = self;
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.trim().lines().last().unwrap_or("no reason given").trim();
        match output.status.code() {
            Some(NOT_REACHED) => format!("cannot reach {host}: {last}"),
            Some(NOT_FOUND) => format!(
                "there is no `{toehold}` on {host} ({last}): install this build there, or say with --far-toehold \
                 where it is"
            ),
            _ => format!(
                "`{toehold}` on {host} does not say what it is ({}): {last}",
                output.status
            ),
        }
    }

    /// The launcher of a side there, whose messages are on standard input and output.
    pub(crate) fn launcher(&self) -> Launcher {
        let command = self.command(&format!("{} {NAME}", quoted(&self.toehold)));
        Launcher {
            program: command.get_program().into(),
            arguments: command.get_args().map(Into::into).collect(),
        }
    }

    /// A command that runs `line` in the shell there.
    fn command(&self, line: &str) -> Command {
        let mut words = self.ssh.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words).args(OPTIONS).args(["--", &self.host, line]);
        command
    }
}

/// A path as one word for a shell, whatever it contains. The shell still expands a home directory
/// at its beginning.
fn quoted(path: &str) -> String {
    let end = match path.strip_prefix('~').and_then(|rest| rest.find('/')) {
        Some(user)
            if path[1..=user]
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) =>
        {
            user + 2
        }
        _ => 0,
    };
    let (home, rest) = path.split_at(end);
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

fn spoken(build: &Build) -> String {
    let commit = build.commit.get(..12).unwrap_or(&build.commit);
    let changed = if build.dirty { " with changes" } else { "" };
    let Build { version, profile, .. } = build;
    format!("{version} (commit {commit}{changed}, {profile})")
}

/// The address from which this machine sends to another one. No packet is sent.
fn own_address(other: Ipv4Addr) -> Option<Ipv4Addr> {
    /// Any port works.
    const PORT: u16 = 9;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((other, PORT)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests;
