//! The table.

use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use toehold_link::interface::NamespaceName;
use toehold_link::mq::MeshSettings;
use toehold_link::steering::MAX_SHARDS;
use toehold_stack::DemuxStrategy;
use toehold_wire::Mac;

use super::{Setting, Value};
use crate::config::MAX_CONNECTIONS;
use crate::fabric::{GroupId, GroupIds, UserIds};
use crate::kernel::{DEFAULT_DEVICE, InterfaceName};
use crate::placement::Placement;

/// Makes the structure and the table from the same rows. A row is a documented field with its
/// default; its name, variable and placeholder; its range in words and in code.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr,
        $name:literal $variable:literal $placeholder:literal, $range:literal $check:expr
        $(, bare $bare:expr)? $(, several $several:literal)?;)+) => {
        /// Settings of a node, all with defaults.
        ///
        /// ```
        /// use toehold_node::settings::{NodeSettings, Setting};
        ///
        /// let mut settings = NodeSettings::default();
        /// Setting::named("payload-memory").unwrap().set(&mut settings, "64M")?;
        /// assert_eq!(settings.payload_memory, 64 << 20);
        /// assert!(Setting::named("mtu").unwrap().set(&mut settings, "9").is_err());
        /// # Ok::<(), toehold_node::settings::InvalidSetting>(())
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct NodeSettings { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl Default for NodeSettings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// Every setting of a node.
        pub static TABLE: &[Setting] = &[$(Setting {
            name: $name,
            variable: $variable,
            placeholder: $placeholder,
            range: $range,
            bare: &[$($bare)?],
            is_several: [$($several,)? false][0],
            doc: concat!($($doc, "\n"),+),
            get: |settings| Value::show(&settings.$field),
            set: |settings, text| {
                let value: $type = Value::parse(text).ok_or(())?;
                let check: fn(&$type) -> bool = $check;
                if !check(&value) {
                    return Err(());
                }
                settings.$field = value;
                Ok(())
            },
        },)+];
    };
}

settings! {
    /// IPv4 address and the length of its network's prefix. By default the lowest
    /// that is free in the fabric's network.
    ipv4: Option<Ipv4Net> = None,
        "ipv4" "TOEHOLD_IPV4" "ADDRESS/PREFIX", "an address like 10.77.0.1/16"
        |net| net.is_none_or(is_host);

    /// IPv6 address and the length of its network's prefix. By default the one
    /// whose last digits are those of the IPv4 address in its network.
    ipv6: Option<Ipv6Net> = None,
        "ipv6" "TOEHOLD_IPV6" "ADDRESS/PREFIX", "an address like fd77::1/64"
        |net| net.is_none_or(|net| !net.addr().is_multicast() && !net.addr().is_unspecified());

    /// Hardware address, unique in the fabric. By default it follows from the
    /// node's name.
    mac: Option<Mac> = None,
        "mac" "TOEHOLD_MAC" "ADDRESS", "an address like 02:00:00:00:00:01"
        |mac| mac.is_none_or(Mac::is_unicast);

    /// Largest IP packet in bytes. Bulk data cross the fabric in super-frames
    /// whatever it is.
    mtu: u16 = 1500,
        "mtu" "TOEHOLD_MTU" "BYTES", "68 to 65521"
        |mtu| (MeshSettings::MIN_MTU..=MeshSettings::MAX_MTU).contains(mtu);

    /// Bytes of the ring to each peer.
    ring: u64 = 1 << 20,
        "ring" "TOEHOLD_RING" "BYTES", "a power of two from 64K to 16M"
        |ring| {
            let bounds = MeshSettings::MIN_RING_CAPACITY as u64..=MeshSettings::MAX_RING_CAPACITY as u64;
            ring.is_power_of_two() && bounds.contains(ring)
        };

    /// Most peers at once; one with several shards counts once for each.
    peers: u16 = 256,
        "peers" "TOEHOLD_PEERS" "N", "1 to 512"
        |peers| (1..=MeshSettings::MAX_PEERS as u16).contains(peers);

    /// Most peers of one process at once, shards of one node or several nodes. The last eighth of
    /// `--peers` is for processes with 16 at most.
    peers_per_process: u16 = 64,
        "peers-per-process" "TOEHOLD_PEERS_PER_PROCESS" "N", "1 to 512"
        |peers| (1..=MeshSettings::MAX_PEERS as u16).contains(peers);

    /// Most peers of one user at once. By default as many as `--peers` of the node's own user, and
    /// half as many of any other.
    peers_per_user: Option<u16> = None,
        "peers-per-user" "TOEHOLD_PEERS_PER_USER" "N", "1 to 512"
        |peers| peers.is_none_or(|peers| (1..=MeshSettings::MAX_PEERS as u16).contains(&peers));

    /// Whether peers of the same user read bulk data where they lie. Each maps, for reading, a
    /// memory file that holds what is sent to it and nothing else.
    zero_copy: bool = true,
        "zero-copy" "TOEHOLD_ZERO_COPY" "YES|NO", "yes or no"
        |_| true;

    /// Whether connections within this host carry their bytes over memory that both nodes map,
    /// without TCP. Both nodes of a connection have to say yes.
    direct: bool = false,
        "direct" "TOEHOLD_DIRECT" "YES|NO", "yes or no"
        |_| true;

    /// Most connections at once, half-open and closing ones included. Each takes
    /// about half a KiB of memory from its first use on.
    connections: u32 = 65_536,
        "connections" "TOEHOLD_CONNECTIONS" "N", "1 to 16000000"
        |connections| (1..=MAX_CONNECTIONS).contains(connections);

    /// Bytes that may wait in all send and receive queues together. Each connection may hold 16 KiB
    /// in each direction whatever others hold, or an equal share if there is not so much. Memory is
    /// taken up as it is used.
    payload_memory: u64 = 128 << 20,
        "payload-memory" "TOEHOLD_PAYLOAD_MEMORY" "BYTES", "1M to 1T"
        |bytes| (1 << 20..=1 << 40).contains(bytes);

    /// How the connection of a segment is found: a strategy of McKenney and Dove's, which
    /// are there to be compared, or the flow table, which is better than them.
    demux: DemuxStrategy = DemuxStrategy::FlowTable,
        "demux" "TOEHOLD_DEMUX" "STRATEGY",
        "bsd, move-to-front, sequent[:chains], hashed-move-to-front[:chains] or flow-table"
        |_| true;

    /// Whether to count what finding connections costs: `toehold stat` shows it.
    demux_counters: bool = false,
        "demux-counters" "TOEHOLD_DEMUX_COUNTERS" "YES|NO", "yes or no"
        |_| true;

    /// Independent stacks in the node: so many processors can run them at once, as a server with
    /// several workers wants to. The bounds of connections and payload memory are shared out among
    /// them, and each has a ring to each shard of every peer.
    shards: u16 = 1,
        "shards" "TOEHOLD_SHARDS" "N", "1 to 16"
        |shards| (1..=u16::from(MAX_SHARDS)).contains(shards);

    /// Who runs the stack: the threads of programs while they are in a call
    /// (inline), the engine process (engine), or the engine process only while no
    /// thread is in a call (adaptive).
    placement: Placement = Placement::Adaptive,
        "placement" "TOEHOLD_PLACEMENT" "PLACEMENT", "inline, engine or adaptive"
        |_| true;

    /// A TAP device of this name, by which the kernel takes part: what is not for the
    /// node's own stack (UDP, ICMP, TCP to ports that no program of the node has) is the
    /// kernel's; with the placement inline, only while a thread is in a call. Without a
    /// name it is toe0. It takes CAP_NET_ADMIN.
    tap: Option<InterfaceName> = None,
        "tap" "TOEHOLD_TAP" "NAME", "a name of up to 15 letters, digits, '-', '_' or '.'"
        |_| true, bare DEFAULT_DEVICE;

    /// Queues of the TAP device, among which the kernel shares out what it sends: so many
    /// threads carry that to the fabric. Each of the node's shards hands its frames to queues
    /// of its own, as far as there are as many.
    queues: u8 = 1,
        "queues" "TOEHOLD_QUEUES" "N", "1 to 16"
        |queues| (1..=MAX_SHARDS).contains(queues);

    /// The network namespace of the TAP device: its name, or its file (/proc/PID/ns/net). It
    /// is made if there is none of the name, and removed at the end of the node then.
    netns: Option<NamespaceName> = None,
        "netns" "TOEHOLD_NETNS" "NAME", "a name as of `ip netns`, or a path as other processes see it"
        |_| true;

    /// Users beside the node's own whose programs may attach to the node, by name or number.
    allow_user: UserIds = UserIds::default(),
        "allow-user" "TOEHOLD_ALLOW_USER" "USER", "names or numbers of users, with commas between them"
        |_| true, several true;

    /// Groups whose members' programs may attach to the node, by name or number.
    allow_group: GroupIds = GroupIds::default(),
        "allow-group" "TOEHOLD_ALLOW_GROUP" "GROUP", "names or numbers of groups, with commas between them"
        |_| true, several true;

    /// The group whose members may end the node, record its frames and place its stack.
    admin_group: Option<GroupId> = None,
        "admin-group" "TOEHOLD_ADMIN_GROUP" "GROUP", "the name or number of a group"
        |_| true;

    /// How long the end of the node waits for what its programs have written and
    /// closed to arrive, at most.
    drain: Duration = Duration::from_secs(2),
        "drain" "TOEHOLD_DRAIN" "SPAN", "0s to 1h"
        |span| *span <= Duration::from_secs(3600);
}

/// Whether the address can belong to a node of its network.
fn is_host(net: Ipv4Net) -> bool {
    let address = net.addr();
    let special = address.is_unspecified() || address.is_multicast() || address.is_broadcast();
    let edge = net.prefix_len() < 31 && (address == net.network() || address == net.broadcast());
    !special && !edge
}
