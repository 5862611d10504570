//! Two network namespaces joined by a veth pair.
//!
//! The namespaces have no names. Only the two processes hold them, so that the namespaces and the
//! pair vanish with the processes. A user without privileges gets them in a user namespace, if the
//! kernel allows that.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

use super::{Context, Program, Role, TestbedError};

/// Required programs.
pub(super) const PROGRAMS: &[Program] = &[("ip", "iproute2")];

/// The server's address.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 198, 0, 1);
/// The first client's address.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 198, 0, 2);
/// The networks of the second client and those after it.
const OTHERS: u8 = 100;
/// The name of its end in a client's namespace, and of the first one in the server's.
const DEVICE: &str = "toe0";

/// Moves this process to a network namespace of its own.
pub(super) fn enter(context: &Context) -> Result<(), TestbedError> {
    if find_ip().is_none() {
        return Err(TestbedError::Unavailable(
            "the `ip` tool is missing: install iproute2 (`apt-get install iproute2`)".into(),
        ));
    }
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => enter_as_user(context),
        Err(error) => Err(unavailable(error)),
    }
}

/// Enters a namespace without privilege. Both network namespaces must belong to one user namespace,
/// or their ends could not be joined. The server creates it, and the client follows.
fn enter_as_user(context: &Context) -> Result<(), TestbedError> {
    match context.role {
        Role::Server => {
            let (user, group) = (geteuid(), getegid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(unavailable)?;
            let write = |file: &str, text: String| {
                fs::write(format!("/proc/self/{file}"), text)
                    .map_err(|error| TestbedError::failed("become root of a user namespace", error))
            };
            write("setgroups", "deny".into())?;
            write("uid_map", format!("0 {user} 1"))?;
            write("gid_map", format!("0 {group} 1"))
        }
        Role::Client => {
            let path = format!("/proc/{}/ns/user", context.server);
            let theirs =
                File::open(&path).map_err(|error| TestbedError::failed(&format!("open {path}"), error))?;
            setns(theirs, CloneFlags::CLONE_NEWUSER).map_err(unavailable)?;
            unshare(CloneFlags::CLONE_NEWNET).map_err(unavailable)
        }
    }
}

fn unavailable(error: Errno) -> TestbedError {
    TestbedError::Unavailable(format!(
        "cannot make a network namespace ({error}): run as root, or allow users to \
         (`sysctl user.max_user_namespaces user.max_net_namespaces kernel.unprivileged_userns_clone`; \
         in a container: --privileged)"
    ))
}

/// Creates this side's ends. The server's side creates those of all clients: a pair for each, in a
/// network of its own.
pub(super) fn join(context: &Context) -> Result<(), TestbedError> {
    let commands = match context.role {
        Role::Server => {
            let numbered = (0..).zip(&context.clients);
            numbered
                .map(|(number, process)| ends_of(number, *process, context.mtu))
                .collect()
        }
        Role::Client => {
            let number = context.client;
            let way = match number {
                0 => String::new(),
                _ => format!("route add {SERVER}/32 via {}\n", server_of(number)),
            };
            format!("{}{way}", end(DEVICE, client(number), context.mtu))
        }
    };
    let commands = format!("link set lo up\n{commands}");
    batch(&commands).map_err(|error| TestbedError::failed("set up the veth pair", error))
}

/// The command that creates the pair of a client, and the server's end of it.
fn ends_of(number: u8, process: u32, mtu: Option<u16>) -> String {
    let device = match number {
        0 => DEVICE.to_owned(),
        _ => format!("toev{number}"),
    };
    let make = format!("link add {device} type veth peer name {DEVICE} netns {process}\n");
    format!("{make}{}", end(&device, server_of(number), mtu))
}

/// The command that brings an end up. Without link-local addresses, only the measured traffic
/// flows.
fn end(device: &str, address: Ipv4Addr, mtu: Option<u16>) -> String {
    let mtu = mtu.map_or(String::new(), |mtu| format!("link set {device} mtu {mtu}\n"));
    format!(
        "{mtu}\
         link set {device} addrgenmode none\n\
         address add {address}/24 dev {device}\n\
         link set {device} up\n"
    )
}

/// The server's address in its network with a client.
fn server_of(number: u8) -> Ipv4Addr {
    in_network(SERVER, number)
}

/// A client's address.
pub(super) fn client(number: u8) -> Ipv4Addr {
    in_network(CLIENT, number)
}

/// The address of a host in the network of a client. Networks of later clients avoid other networks
/// here.
fn in_network(host: Ipv4Addr, number: u8) -> Ipv4Addr {
    let [a, b, first, d] = host.octets();
    let network = if number == 0 { first } else { OTHERS + number };
    Ipv4Addr::new(a, b, network, d)
}

/// Runs `commands` with `ip`.
fn batch(commands: &str) -> io::Result<()> {
    let ip = find_ip().ok_or(io::ErrorKind::NotFound)?;
    let mut child = Command::new(ip)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "`ip` says: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// The path of the `ip` tool. For users without privileges, PATH often lacks its directory.
fn find_ip() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut found = std::env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join("ip"));
    found.find(|path| path.is_file())
}
