//! Another machine, on which servers' processes run: a command there, started by `ssh`, that
//! passes on what the runner and a side of a measurement say to one another.
//!
//! The path of the traffic is not `ssh`'s. It is the network between the two machines, by their
//! addresses.

mod relay;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use crate::host::{Build, Host};
use crate::process::Launcher;

pub use relay::relay;

/// The hidden command of the far machine's `toehold`.
pub const NAME: &str = "lab-far";

/// What it is asked to say about its machine with.
pub const ABOUT: &str = "--about";

/// What shells say of a program that they do not find.
const NOT_FOUND: i32 = 127;

/// What `ssh` says when it has not come to the command.
const NOT_REACHED: i32 = 255;

/// No questions that nobody would answer; a machine that is gone is found out within 15 s.
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

/// Which machine it is, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// As `ssh` knows it: `USER@HOST`, or a name in its configuration.
    pub host: String,
    /// The `ssh` command, with options of its own: words with spaces between them.
    pub ssh: String,
    /// The `toehold` command there, as the shell there finds it.
    pub toehold: String,
    /// Where this machine reaches it, if that is not where `ssh` does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<Ipv4Addr>,
}

/// A machine that was reached, and has the same build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Met {
    /// What it is.
    pub host: Host,
    /// Between which addresses there is traffic.
    pub path: Path,
}

/// The addresses of two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Of the server's.
    pub server: Ipv4Addr,
    /// Of the clients'.
    pub client: Ipv4Addr,
}

/// What a machine says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    host: Host,
    /// Where it was reached, as it knows itself.
    reached: Option<IpAddr>,
}

impl About {
    /// This one's, on which an `ssh` server has started this process.
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
    /// Finds out whether the machine can be measured with.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to do about it.
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

    /// Why it said nothing of use.
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

    /// What starts a side there, whose conversation is on standard input and output.
    pub(crate) fn launcher(&self) -> Launcher {
        let command = self.command(&format!("{} {NAME}", quoted(&self.toehold)));
        Launcher {
            program: command.get_program().into(),
            arguments: command.get_args().map(Into::into).collect(),
        }
    }

    /// `line` for the shell there.
    fn command(&self, line: &str) -> Command {
        let mut words = self.ssh.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("ssh"));
        command.args(words).args(OPTIONS).args(["--", &self.host, line]);
        command
    }
}

/// A path as one word for a shell, whatever is in it. A home directory in front of it is still the shell's to
/// find.
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

/// The address from which this machine sends to another one. Nothing is sent.
fn own_address(other: Ipv4Addr) -> Option<Ipv4Addr> {
    /// Any port will do.
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
