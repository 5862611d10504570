//! Places of programs: over the kernel between two namespaces or within one, or on two nodes.
//!
//! The namespaces have no names. A process holds each, which ends with its input, for any reason.
//! Nodes are in a fabric of the run.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Serialize;

use super::running::Running;
use super::{Files, ProgramsError};

/// The address of the server over the kernel, between two namespaces.
const KERNEL_ADDRESS: &str = "10.198.0.1";

/// The address of the server's node.
const NODE_ADDRESS: &str = "10.77.0.1";

/// The interface of either namespace.
pub(super) const VETH: &str = "toe0";

/// Names of the nodes, by side.
const NODES: [&str; 2] = ["server", "client"];

/// The port of the first server. Each server has a port of its own, since those of ended
/// connections are not free at once.
const FIRST_PORT: u16 = 18_431;

/// Waits until an interface is up, for programs that look for one.
const IS_UP: &str = "until ip -brief link show toe0 | grep -q ' UP '; do sleep 0.02; done";

/// A prefix that mounts a `/sys` with the namespace's interfaces.
const WITH_INTERFACES: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t sysfs sysfs /sys && exec \"$@\"",
    "sh",
];

/// The carriers of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// The kernel's TCP between two namespaces.
    Kernel,
    /// Two nodes.
    Toehold,
    /// The kernel's TCP within a namespace.
    Loopback,
    /// Unix sockets.
    Unix,
}

impl Way {
    /// The server's address.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Kernel => KERNEL_ADDRESS,
            Self::Toehold => NODE_ADDRESS,
            Self::Loopback | Self::Unix => "127.0.0.1",
        }
    }
}

/// The two servers on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// The server that clients use.
    Front = 0,
    /// The server behind the front, if there is one.
    Back = 1,
}

/// The side of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Server = 0,
    Client = 1,
}

/// The options of both places.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Largest packet of either path; the default without one.
    pub(super) mtu: Option<u16>,
    /// Whether each node also has an interface, both in the client's namespace.
    pub(super) has_taps: bool,
    /// Whether programs and engines may run on every core of this process.
    pub(super) is_spread: bool,
    /// Additional arguments of `toehold up`. With them, engines have the cores of their programs.
    pub(super) up: Vec<String>,
}

/// The places of both sides. Dropping it ends their nodes and processes.
#[derive(Debug)]
pub(super) struct Places<'a> {
    holders: [Child; 2],
    toehold: PathBuf,
    files: &'a Files,
    /// `None` if programs may run on all cores.
    cores: Option<[usize; 2]>,
    port: Cell<u16>,
}

impl<'a> Places<'a> {
    /// Creates the namespaces and the nodes, for programs with their files in `files`.
    pub(super) fn make(
        toehold: &Path,
        files: &'a Files,
        cores: [usize; 2],
        shape: &Shape,
    ) -> Result<Self, ProgramsError> {
        let holders = [hold_namespace()?, hold_namespace()?];
        let places = Self {
            holders,
            toehold: toehold.to_owned(),
            files,
            cores: (!shape.is_spread).then_some(cores),
            port: Cell::new(FIRST_PORT),
        };
        places.connect_namespaces(shape.mtu)?;
        places.start_nodes(shape)?;
        Ok(places)
    }

    fn start_nodes(&self, shape: &Shape) -> Result<(), ProgramsError> {
        for end in [End::Server, End::Client] {
            let node = NODES[end as usize];
            let mut up = self.toehold(&["up", node]);
            up.args(&shape.up);
            if let Some(mtu) = shape.mtu {
                up.args(["--mtu", &mtu.to_string()]);
            }
            if shape.has_taps {
                let tap = format!("--tap={}", tap(node));
                up.args([&*tap, "--netns", &self.network(End::Client)]);
            }
            if !shape.up.is_empty() {
                up = self.pinned(&up, end);
            }
            self.succeed(up, "start a node")?;
        }
        Ok(())
    }

    fn toehold(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.toehold);
        command.args(words).env("TOEHOLD_FABRIC", self.fabric());
        command
    }

    fn fabric(&self) -> PathBuf {
        self.files.path().join("fabric")
    }

    /// The file of a side's namespace.
    fn network(&self, end: End) -> String {
        format!("/proc/{}/ns/net", self.holders[end as usize].id())
    }

    fn namespace(&self, end: End) -> String {
        format!("--net={}", self.network(end))
    }

    fn connect_namespaces(&self, mtu: Option<u16>) -> Result<(), ProgramsError> {
        let client = self.holders[End::Client as usize].id();
        let make = format!("ip link add toe0 type veth peer name toe0 netns {client}");
        let mtu = mtu.map_or(String::new(), |mtu| format!("mtu {mtu}"));
        for (end, make, address) in [
            (End::Server, &*make, KERNEL_ADDRESS),
            (End::Client, "true", "10.198.0.2"),
        ] {
            // Congestion control without losses, like Toehold's.
            let script = format!(
                "{make} && ip address add {address}/24 dev toe0 && ip link set lo up && ip link set toe0 {mtu} up \
                 && echo reno > /proc/sys/net/ipv4/tcp_congestion_control"
            );
            let mut command = Command::new("nsenter");
            command.args([&self.namespace(end), "--", "sh", "-c", &script]);
            self.succeed(command, "join two network namespaces with a veth pair")?;
        }
        // The kernel reports both ends up a moment later.
        for end in [End::Server, End::Client] {
            let mut command = Command::new("nsenter");
            command.args([&self.namespace(end), "--", "timeout", "10", "sh", "-c", IS_UP]);
            self.succeed(command, "see both ends of a veth pair up")?;
        }
        Ok(())
    }

    /// A file's path.
    pub(super) fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    /// The prefix of a launcher of ranks, on the client's core and in its namespace, with its
    /// interfaces in `/sys`.
    pub(super) fn launcher(&self, words: &[String]) -> io::Result<Command> {
        let mut within = Command::new("nsenter");
        within
            .arg(self.namespace(End::Client))
            .args(WITH_INTERFACES)
            .args(words);
        self.prepared(&self.pinned(&within, End::Client))
    }

    /// The prefix of a rank. The rank ends with its launcher, for any reason, and has its
    /// interface's name in a variable.
    pub(super) fn rank(&self, way: Way, end: End, variable: &str) -> Vec<String> {
        let mut words = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).to_vec();
        if let Some(cores) = self.cores {
            words.extend(["taskset".to_owned(), "--cpu-list".to_owned()]);
            words.push(cores[end as usize].to_string());
        }
        match way {
            // The client's rank is in the launcher's namespace.
            Way::Kernel if end == End::Client => {}
            Way::Kernel | Way::Loopback | Way::Unix => {
                words.extend(["nsenter".to_owned(), self.namespace(end)]);
                words.extend(WITH_INTERFACES.map(str::to_owned));
            }
            Way::Toehold => {
                words.push(self.toehold.display().to_string());
                words.extend(["run", "--quiet", "--node", NODES[end as usize], "--"].map(str::to_owned));
            }
        }
        let interface = match way {
            Way::Kernel => VETH.to_owned(),
            Way::Loopback | Way::Unix => "lo".to_owned(),
            Way::Toehold => tap(NODES[end as usize]),
        };
        words.extend(["env".to_owned(), format!("{variable}={interface}")]);
        words
    }

    /// A command on the core of a side, if sides have cores.
    fn pinned(&self, command: &Command, end: End) -> Command {
        match self.cores {
            Some(cores) => pinned(command, cores[end as usize]),
            None => copied(command),
        }
    }

    /// A shell's line on one side, on that side's core.
    pub(super) fn command(&self, way: Way, end: End, line: &str, seconds: u32) -> io::Result<Command> {
        let within = match way {
            Way::Kernel | Way::Loopback | Way::Unix => {
                let end = if way == Way::Kernel { end } else { End::Server };
                let mut command = Command::new("nsenter");
                command.args([&self.namespace(end), "--"]);
                command
            }
            Way::Toehold => self.toehold(&["run", "--quiet", "--node", NODES[end as usize], "--"]),
        };
        let mut command = self.pinned(&within, end);
        command.args(["sh", "-c", line]);
        command.env("SPAN", seconds.to_string());
        command
            .env("ADDRESS", way.address())
            .env("PORT", self.port_of(Tier::Front).to_string())
            .env("BACK", self.port_of(Tier::Back).to_string())
            .env("SOCKET", self.socket_of(Tier::Front))
            .env("BACK_SOCKET", self.socket_of(Tier::Back));
        self.prepared(&command)
    }

    /// A command with the common variables, in a group of its own.
    fn prepared(&self, command: &Command) -> io::Result<Command> {
        let mut command = self.files.keeper().watched(command)?;
        command
            .env("TOEHOLD_FABRIC", self.fabric())
            .env("TOEHOLD", &self.toehold)
            .env("DIR", self.files.path());
        command.env("PATH", super::find::path());
        command.current_dir(self.files.path());
        Ok(command)
    }

    /// Starts one of its commands.
    pub(super) fn start(&self, command: Command) -> io::Result<Running<'a>> {
        Running::start(command, self.files.keeper())
    }

    /// Runs a command of the setup to its end.
    fn succeed(&self, mut command: Command, what: &str) -> Result<(), ProgramsError> {
        if let Ok(held) = self.files.keeper().hold() {
            command.stdin(held);
        }
        succeed(command, what)
    }

    /// A server's port.
    pub(super) fn port_of(&self, server: Tier) -> u16 {
        self.port.get() + server as u16
    }

    /// A server's Unix socket: in a directory that servers of other users may write, and named like
    /// PostgreSQL's.
    pub(super) fn socket_of(&self, server: Tier) -> PathBuf {
        let name = format!(".s.PGSQL.{}", self.port_of(server));
        self.files.sockets().join(name)
    }

    /// Gives the next servers other ports.
    pub(super) fn renew_port(&self) {
        let next = self.port.get() + 2;
        self.port.set(if next < 30_000 { next } else { FIRST_PORT });
    }

    /// Whether a socket listens at the port. It is not connected to: the server would take that for
    /// a client.
    pub(super) fn is_served(&self, way: Way, server: Tier) -> bool {
        let tables = format!("/proc/{}/net", self.holders[0].id());
        let table = |name: &str| fs::read_to_string(format!("{tables}/{name}")).unwrap_or_default();
        match way {
            Way::Kernel | Way::Loopback => listens(&(table("tcp6") + &table("tcp")), self.port_of(server)),
            Way::Unix => listens_at(&table("unix"), &self.socket_of(server)),
            Way::Toehold => {
                let said = self.toehold(&["sockets", "server", "--json"]).output();
                let Ok(said) = said else { return false };
                let sockets: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
                let at = format!(":{}", self.port_of(server));
                sockets["sockets"].as_array().into_iter().flatten().any(|socket| {
                    let local = socket["local"].as_str().unwrap_or_default();
                    socket["state"] == "LISTEN" && local.ends_with(&at)
                })
            }
        }
    }

    /// The processes of the nodes' engines, the server's first.
    pub(super) fn engines(&self) -> Vec<u32> {
        let said = self.toehold(&["ps", "--json"]).output();
        let said = said.map(|said| said.stdout).unwrap_or_default();
        let lines: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
        let of = |name: &&str| {
            let line = lines["nodes"]
                .as_array()?
                .iter()
                .find(|line| line["node"]["name"] == *name)?;
            u32::try_from(line["node"]["pid"].as_u64()?).ok()
        };
        NODES.iter().filter_map(of).collect()
    }

    /// The number of connections of the server's node.
    pub(super) fn offloaded(&self) -> u64 {
        let said = self.toehold(&["stat", "server", "--json"]).output();
        let said = said.map(|said| said.stdout).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_slice(&said).unwrap_or_default();
        let counters = status["counters"].as_array().into_iter().flatten();
        let opened = ["tcp_passive_opens", "direct_accepted"];
        let opened = counters.filter(|counter| opened.iter().any(|name| counter["name"] == *name));
        opened.filter_map(|counter| counter["value"].as_u64()).sum()
    }
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        // There may be no nodes yet.
        let _ = self.toehold(&["down", "--all"]).stdout(Stdio::null()).status();
        for holder in &mut self.holders {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

fn hold_namespace() -> Result<Child, ProgramsError> {
    let mut command = Command::new("unshare");
    // Its answer shows that it runs.
    command.args(["--net", "--", "sh", "-c", "echo; exec cat"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let what = "make a network namespace (it takes root)";
    let mut child = command.spawn().map_err(|_| ProgramsError::Step(what.into()))?;
    let mut answer = [0];
    let output = child.stdout.as_mut();
    let said = output.map(|output| std::io::Read::read(output, &mut answer));
    match said {
        Some(Ok(1)) => Ok(child),
        _ => {
            let _ = child.wait();
            Err(ProgramsError::Step(what.into()))
        }
    }
}

/// Runs a command to its end. `what` completes the sentence "cannot …" about a failure.
pub(crate) fn succeed(mut command: Command, what: &str) -> Result<(), ProgramsError> {
    let failed = |reason: String| ProgramsError::Step(format!("{what}: {reason}"));
    let output = command.output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The name of a node's interface.
fn tap(node: &str) -> String {
    format!("toe-{node}")
}

/// A copy of a command on one core.
fn pinned(command: &Command, core: usize) -> Command {
    let mut pinned = Command::new("taskset");
    pinned
        .args(["--cpu-list", &core.to_string()])
        .arg(command.get_program());
    with_words_of(command, pinned)
}

/// A copy of a command.
fn copied(command: &Command) -> Command {
    with_words_of(command, Command::new(command.get_program()))
}

/// The beginning of a command with the arguments and variables of another.
fn with_words_of(command: &Command, mut begun: Command) -> Command {
    begun.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            begun.env(name, value);
        }
    }
    begun
}

/// Whether a table of the kernel has a listener at a port.
fn listens(table: &str, port: u16) -> bool {
    let at = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&at)) && words.nth(1) == Some("0A")
    })
}

/// Whether the kernel's table of Unix sockets has a listener at a path.
fn listens_at(table: &str, path: &Path) -> bool {
    table.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // The fourth word has a flag of sockets that accept.
        words.get(3) == Some(&"00010000") && words.get(7).is_some_and(|at| Path::new(at) == path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_listener_is_found_by_its_path() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1234 /tmp/a.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 1235 /tmp/b.sock\n";
        assert!(listens_at(table, Path::new("/tmp/a.sock")));
        assert!(!listens_at(table, Path::new("/tmp/b.sock")));
        assert!(!listens_at(table, Path::new("/tmp/a")));
    }

    #[test]
    fn listener_is_found_in_kernel_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 00000000:47FF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
            1: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0\n";
        assert!(listens(table, 0x47ff));
        assert!(!listens(table, 0x1f90));
        assert!(!listens("", 0));
    }
}
