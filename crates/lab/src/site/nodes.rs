//! The rooms of a site and the network between them: nodes of a fabric, or network namespaces on a
//! bridge.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::deployment::SiteStack;
use super::error::SiteFailure;
use super::room::{RoomDoor, RoomHolder, RoomNetwork, bound_to};
use crate::cgroup::ControlGroup;
use crate::keeper::Keeper;
use crate::programs::{ProgramsError, succeed};

/// The network of namespaces. Only these namespaces know it.
const NETWORK: &str = "10.198.1";

/// The name of a room's interface.
const INTERFACE: &str = "site0";

/// What all rooms of a site have in common.
#[derive(Debug)]
pub(super) struct SiteGround<'a> {
    pub(super) stack: SiteStack,
    /// The command that starts nodes.
    pub(super) toehold: &'a Path,
    /// The site's directory, in which `fabric` becomes that of its nodes.
    pub(super) directory: &'a Path,
    /// The control group of the whole site, which is there.
    pub(super) group: &'a ControlGroup,
    pub(super) keeper: &'a Keeper,
}

/// A room to be made.
#[derive(Debug)]
pub(super) struct RoomOrder<'a> {
    pub(super) name: &'a str,
    /// The core that its programs and its node's engine are bound to, if they are.
    pub(super) core: Option<usize>,
    /// A directory, and where the room sees it.
    pub(super) content: Option<(&'a Path, &'a Path)>,
}

/// The rooms, for as long as this lives.
#[derive(Debug)]
pub(super) struct SiteRooms {
    pub(super) doors: Vec<RoomDoor>,
    _holders: Vec<RoomHolder>,
}

impl SiteRooms {
    /// Makes the rooms in order, and the network between them.
    pub(super) fn make(ground: &SiteGround<'_>, orders: &[RoomOrder<'_>]) -> Result<Self, SiteFailure> {
        match ground.stack.node_arguments() {
            Some(arguments) => on_nodes(ground, orders, arguments),
            None => on_bridge(ground, orders),
        }
    }
}

fn on_nodes(
    ground: &SiteGround<'_>,
    orders: &[RoomOrder<'_>],
    arguments: &[&str],
) -> Result<SiteRooms, SiteFailure> {
    let fabric = ground.directory.join("fabric");
    let mut doors = Vec::new();
    let mut holders = Vec::new();
    for order in orders {
        let group = ground.group.child(order.name);
        let engine = ground.group.child(&format!("{}-engine", order.name));
        let holder = RoomHolder::start(&group, false, order.content)?;
        let what = format!("start the node {}", order.name);
        let failed = |reason: String| SiteFailure::Step(ProgramsError::Step(format!("{what}: {reason}")));
        engine.make().map_err(|error| failed(error.to_string()))?;
        let mut words = bound_to(order.core);
        words.push(ground.toehold.display().to_string());
        let mut up = Command::new(&words[0]);
        up.args(&words[1..])
            .args(["up", order.name, "--json", "--fabric"])
            .arg(&fabric);
        up.arg("--log")
            .arg(ground.directory.join("engines.log"))
            .args(arguments);
        let mut up = engine.joined_by(&up);
        up.stdin(ground.keeper.hold().map_err(|error| failed(error.to_string()))?);
        let output = up.output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let address = address_in(&output.stdout).ok_or_else(|| failed("it has no IPv4 address".into()))?;
        doors.push(RoomDoor {
            holder: holder.id(),
            group,
            network: RoomNetwork::Node {
                toehold: ground.toehold.to_owned(),
                fabric: fabric.clone(),
                node: order.name.to_owned(),
                engine,
            },
            address,
            core: order.core,
        });
        holders.push(holder);
    }
    Ok(SiteRooms {
        doors,
        _holders: holders,
    })
}

/// The IPv4 address of the first node in a document of `toehold up --json`.
fn address_in(document: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(document).ok()?;
    let address = document["nodes"][0]["ipv4"].as_str()?;
    let (address, _) = address.split_once('/').unwrap_or((address, ""));
    Some(address.to_owned())
}

fn on_bridge(ground: &SiteGround<'_>, orders: &[RoomOrder<'_>]) -> Result<SiteRooms, SiteFailure> {
    let bridge = RoomHolder::start(&ground.group.child("bridge"), true, None)?;
    let mut holders = Vec::new();
    let mut doors = Vec::new();
    let mut plan = "link add bridge0 type bridge\nlink set bridge0 up\n".to_owned();
    for (number, order) in (1..).zip(orders) {
        let group = ground.group.child(order.name);
        let holder = RoomHolder::start(&group, true, order.content)?;
        let port = format!("port{number}");
        plan += &format!(
            "link add {port} type veth peer name {INTERFACE} netns {}\nlink set {port} master bridge0\n\
             link set {port} addrgenmode none\nlink set {port} up\n",
            holder.id()
        );
        doors.push(RoomDoor {
            holder: holder.id(),
            group,
            network: RoomNetwork::Namespace,
            address: format!("{NETWORK}.{number}"),
            core: order.core,
        });
        holders.push(holder);
    }
    batch(ground, bridge.id(), &plan)?;
    for door in &doors {
        let plan = format!(
            "link set lo up\nlink set {INTERFACE} addrgenmode none\naddress add {}/24 dev {INTERFACE}\n\
             link set {INTERFACE} up\n",
            door.address
        );
        batch(ground, door.holder, &plan)?;
        // Congestion control without losses, like Toehold's.
        let set = "echo reno > /proc/sys/net/ipv4/tcp_congestion_control";
        let mut command = Command::new("nsenter");
        command.args([&namespace(door.holder), "--", "sh", "-c", set]);
        succeed(command, "choose the kernel's congestion control")?;
    }
    holders.push(bridge);
    Ok(SiteRooms {
        doors,
        _holders: holders,
    })
}

fn namespace(holder: u32) -> String {
    format!("--net=/proc/{holder}/ns/net")
}

/// Runs commands of `ip` in a network namespace.
fn batch(ground: &SiteGround<'_>, holder: u32, plan: &str) -> Result<(), SiteFailure> {
    let path = ground.directory.join("network");
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(plan.as_bytes()));
    written.map_err(|error| SiteFailure::File(path.clone(), error))?;
    let mut command = Command::new("nsenter");
    command
        .args([&namespace(holder), "--", "ip", "-batch"])
        .arg(&path);
    command.stdin(Stdio::null());
    Ok(succeed(command, "join network namespaces by a bridge")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_node_is_read_from_its_document() {
        let document = br#"{"schema": "toehold/up/1", "nodes": [{"name": "a", "ipv4": "10.77.0.2/16"}]}"#;
        assert_eq!(address_in(document).as_deref(), Some("10.77.0.2"));
        assert_eq!(address_in(b"{}"), None);
        assert_eq!(address_in(b"nonsense"), None);
    }
}
