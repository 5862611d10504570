//! A node's status as data, for `toehold ps`, `sockets` and `stat`.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toehold_stack::{Counters, DemuxCounters, Info, Instant, State, Timer, TimerKind};
use toehold_wire::Mac;

use super::nanoseconds;
use crate::fabric::{Beyond, NodeRecord};
use crate::placement::Placement;
use crate::why::Unaccelerated;

/// A node's status at one moment. Rates come from two of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's record: its name and addresses.
    pub node: NodeRecord,
    /// Processor time the engine process has used.
    #[serde(rename = "cpu_time_ns", with = "nanoseconds")]
    pub cpu_time: Duration,
    /// Time since the engine process began.
    #[serde(rename = "uptime_ns", with = "nanoseconds")]
    pub uptime: Duration,
    /// Processes that are attached.
    pub processes: Vec<ProcessStatus>,
    /// Programs that were told of because they are not on the node.
    #[serde(default)]
    pub unaccelerated: Vec<Unaccelerated>,
    /// How often a program off the node was told of for which there is no room.
    #[serde(default)]
    pub unaccelerated_beyond: u64,
    /// Inodes of the descriptors by which programs keep the node.
    #[serde(default)]
    pub keepers: Vec<u64>,
    /// The node's stack.
    pub stack: StackStatus,
}

/// A process of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The process's number in the node.
    pub process: u16,
    /// The system's number of the process.
    pub pid: u32,
    /// The process's name; empty if it cannot be read.
    pub command: String,
    /// When it attached, in seconds since 1970.
    pub since: u64,
}

/// A node's stack at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackStatus {
    /// Which threads run it.
    pub placement: Placement,
    /// Number of the stack's independent parts.
    pub shards: u16,
    /// Peers whose frames reach it.
    pub peers: u32,
    /// Bytes of memory that its rings to them take up; a peer's to it are the peer's.
    #[serde(default)]
    pub peer_memory: u64,
    /// Connections, half-open and closing ones included.
    pub connections: u32,
    /// Most connections.
    pub connections_bound: u32,
    /// Listeners.
    pub listeners: u32,
    /// Bytes of payload memory in use.
    pub payload_used: u64,
    /// Bytes of payload memory.
    pub payload_bound: u64,
    /// Frames received since the node began.
    pub frames_received: u64,
    /// Frames sent since the node began.
    pub frames_sent: u64,
    /// Threads of programs that rest in a call until something happens.
    #[serde(default)]
    pub waiters: u32,
    /// Registrations of waiting threads and of polls.
    #[serde(default)]
    pub interests: u32,
    /// Polls.
    #[serde(default)]
    pub polls: u32,
    /// Connections, listeners and polls that processes have.
    #[serde(default)]
    pub possessions: u32,
    /// Connections whose bytes the engine carries to and from descriptors.
    #[serde(default)]
    pub relays: u32,
    /// Whether frames are being recorded.
    pub capturing: bool,
    /// The TAP device by which the kernel's stack is beside it, or that it is, if there is one.
    #[serde(default)]
    pub kernel: Option<KernelStatus>,
    /// Of an uplink: the other hosts it leads to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<RemoteStatus>,
    /// Of an uplink: the interface of the kernel it leads over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceStatus>,
    /// Of an uplink: the fabrics that it leads to, as their uplinks say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<Beyond>,
    /// Of an uplink: why it forwards nothing, if another one of its fabric leads to the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    /// Of an uplink: sentences about names and addresses that are on two hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
}

/// The TAP device of a node, or the interface that a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// The interface's present name.
    pub device: String,
    /// The name of the interface's network namespace, if it was given one.
    pub netns: Option<String>,
    /// The state of the interface.
    pub state: DeviceState,
}

/// The state of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// The interface carries frames.
    Up,
    /// A program has set the interface down.
    Down,
    /// The interface is up, but a program has taken its carrier away.
    #[serde(rename = "no carrier")]
    NoCarrier,
    /// A program has given the interface another hardware address than the one that peers know.
    Readdressed,
    /// A program has deleted the interface, or moved it to another network namespace.
    Gone,
}

impl DeviceState {
    /// The remark in brackets behind the interface's name; empty if all is well.
    pub fn remark(self) -> &'static str {
        match self {
            DeviceState::Up => "",
            DeviceState::Down => " (down)",
            DeviceState::NoCarrier => " (no carrier)",
            DeviceState::Readdressed => " (readdressed)",
            DeviceState::Gone => " (gone)",
        }
    }
}

impl KernelStatus {
    /// The fault of the interface, and what to do about it. `address` is the one that peers know.
    pub fn advice(&self, address: Mac) -> Option<String> {
        let name = &self.device;
        match self.state {
            DeviceState::Up => None,
            DeviceState::Down => Some(format!(
                "{name} carries nothing while it is down; `ip link set {name} up` sets it up"
            )),
            DeviceState::NoCarrier => Some(format!(
                "{name} carries nothing while it has no carrier; `ip link set {name} carrier on` gives it one"
            )),
            DeviceState::Readdressed => Some(format!(
                "{name} has another hardware address than others know, and does not reach them; \
                 `ip link set {name} address {address}` gives it that again"
            )),
            DeviceState::Gone => Some(format!(
                "{name} was deleted, or moved to another network namespace; `toehold down` and a new start bring \
                 it back"
            )),
        }
    }
}

impl Display for KernelStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        if let Some(netns) = &self.netns {
            write!(f, "@{netns}")?;
        }
        f.write_str(self.state.remark())
    }
}

/// An interface of the kernel, as an uplink knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// The interface's name when it was opened.
    pub name: String,
    /// The way in which frames are taken from the interface.
    pub access: String,
    /// The state of the interface.
    pub state: DeviceState,
    /// The reason why frames are not taken from the interface in a better way.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Display for InterfaceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InterfaceStatus { name, access, .. } = self;
        match self.state {
            DeviceState::Up => write!(f, "{name}: through {access}"),
            DeviceState::Down => write!(f, "{name}: down; through {access}"),
            DeviceState::NoCarrier => write!(f, "{name}: no carrier; through {access}"),
            DeviceState::Readdressed => write!(f, "{name}: readdressed; through {access}"),
            DeviceState::Gone => return write!(f, "{name}: gone; start the uplink anew once it is back"),
        }?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Another host, as an uplink knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteStatus {
    /// The address at which the host listens.
    pub address: SocketAddr,
    /// Whether frames flow.
    pub connected: bool,
    /// The system's error when something was last sent to the host, if that failed.
    pub error: Option<String>,
    /// Bytes of a datagram to it, at most.
    pub datagram: u32,
    /// Frames sent to it; each segment of a super-frame counts.
    pub frames_sent: u64,
    /// Frames received from it.
    pub frames_received: u64,
    /// How often the host was met anew.
    pub introductions: u64,
}

/// A counter of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The counter's name: lower case, with underscores.
    pub name: String,
    /// The count since the node began; it only grows.
    pub value: u64,
    /// A sentence that says what is counted.
    pub doc: String,
    /// The shard that counts, in a node with several shards that each count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
}

impl Counter {
    /// The counters of a stack.
    pub fn of_stack(counters: &Counters, shard: Option<u16>) -> Vec<Counter> {
        let counter = |named| Self::documented(named, shard);
        counters.iter().zip(Counters::DOCS).map(counter).collect()
    }

    /// The counters of a demultiplexer.
    pub fn of_demux(counters: &DemuxCounters, shard: Option<u16>) -> Vec<Counter> {
        let counter = |named| Self::documented(named, shard);
        counters.iter().zip(DemuxCounters::DOCS).map(counter).collect()
    }

    fn documented(((name, value), doc): ((&str, u64), &&str), shard: Option<u16>) -> Counter {
        Counter {
            name: name.to_owned(),
            value,
            doc: (*doc).to_owned(),
            shard,
        }
    }
}

/// A socket's status at one moment, as `ss` shows one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketStatus {
    /// State, by RFC 9293's names with the hyphens of `ss`: `ESTAB`, `LISTEN`, ….
    pub state: SocketState,
    /// Bytes the program has not read; of a listener, connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes the peer has not acknowledged; of a listener, its backlog.
    pub send_queue: u32,
    /// The socket's own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The process that owns it, by its number in the node.
    pub process: Option<u16>,
    /// The process that owns it, by the system's number; the server fills it in.
    pub pid: Option<u32>,
    /// The user of that process; the server fills it in.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The inode of the socket's descriptors, as in `/proc/PID/fd`; 0 if no program has it any
    /// more.
    #[serde(default)]
    pub inode: u64,
    /// The system's cookie of the socket (`SO_COOKIE`).
    #[serde(default)]
    pub cookie: u64,
    /// Whether it is a socket of IPv6, which may have addresses of IPv4.
    #[serde(default)]
    pub ipv6: bool,
    /// The socket's shard.
    pub shard: u16,
    /// The timers that run, the one that is due next first.
    #[serde(default)]
    pub timers: Vec<TimerStatus>,
    /// TCP's state, of a connection.
    pub tcp: Option<TcpStatus>,
    /// The memory of a direct connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectStatus>,
}

/// Facts of a direct connection, which has no TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectStatus {
    /// The node's own number of the bank that it is in.
    pub bank: u16,
    /// The connection's number in the bank.
    pub number: u16,
    /// Tells it from earlier ones of the number.
    pub generation: u32,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Bytes that the program has received.
    pub bytes_received: u64,
}

/// A timer of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStatus {
    /// The timer's kind: `retransmission`, `keepalive`, `time-wait`, ….
    pub kind: String,
    /// Time until it is due; zero if it is due and was not served yet.
    #[serde(rename = "expires_in_ns", with = "nanoseconds")]
    pub expires_in: Duration,
    /// How often it has run out in a row.
    pub retries: u8,
}

impl TimerStatus {
    fn new(timer: &Timer, now: Instant) -> Self {
        let kind = match timer.kind {
            TimerKind::Retransmission => "retransmission",
            TimerKind::TailProbe => "tail-probe",
            TimerKind::Reordering => "reordering",
            TimerKind::Persist => "persist",
            TimerKind::Cork => "cork",
            TimerKind::Pacing => "pacing",
            TimerKind::DelayedAck => "delayed-ack",
            TimerKind::Keepalive => "keepalive",
            TimerKind::FinWait2 => "fin-wait-2",
            TimerKind::UserTimeout => "user-timeout",
            TimerKind::TimeWait => "time-wait",
        };
        Self {
            kind: kind.to_owned(),
            expires_in: timer.due.since(now),
            retries: timer.retries,
        }
    }
}

/// Facts of a connection, as `ss -tin` shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpStatus {
    /// Smoothed round trip; zero before the first measurement.
    #[serde(rename = "rtt_ns", with = "nanoseconds")]
    pub rtt: Duration,
    /// The mean deviation of the round trip.
    #[serde(rename = "rtt_variation_ns", with = "nanoseconds")]
    pub rtt_variation: Duration,
    /// Smallest round trip seen lately.
    #[serde(rename = "min_rtt_ns", with = "nanoseconds")]
    pub min_rtt: Duration,
    /// Retransmission timeout, with its present backoff.
    #[serde(rename = "rto_ns", with = "nanoseconds")]
    pub rto: Duration,
    /// Largest payload of a segment, bytes.
    pub mss: u16,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow start threshold, bytes.
    pub ssthresh: u32,
    /// The peer's window, bytes.
    pub send_window: u32,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// Bytes queued and never sent.
    pub unsent: u32,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Bytes the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// The options in use, by the names of `ss`: `ts`, `sack`, `wscale`, `ecn`.
    pub options: Vec<String>,
}

/// States of sockets, by the names of `ss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
#[expect(missing_docs, reason = "RFC 9293 §3.3.2 says what they are")]
pub enum SocketState {
    Listen,
    SynSent,
    SynRecv,
    Estab,
    #[serde(rename = "FIN-WAIT-1")]
    FinWait1,
    #[serde(rename = "FIN-WAIT-2")]
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    #[serde(rename = "UNCONN")]
    Closed,
}

impl SocketState {
    /// The state's name, as `ss` writes it.
    pub fn name(self) -> &'static str {
        match self {
            SocketState::Listen => "LISTEN",
            SocketState::SynSent => "SYN-SENT",
            SocketState::SynRecv => "SYN-RECV",
            SocketState::Estab => "ESTAB",
            SocketState::FinWait1 => "FIN-WAIT-1",
            SocketState::FinWait2 => "FIN-WAIT-2",
            SocketState::CloseWait => "CLOSE-WAIT",
            SocketState::Closing => "CLOSING",
            SocketState::LastAck => "LAST-ACK",
            SocketState::TimeWait => "TIME-WAIT",
            SocketState::Closed => "UNCONN",
        }
    }
}

impl From<State> for SocketState {
    fn from(state: State) -> Self {
        match state {
            State::Closed => SocketState::Closed,
            State::SynSent => SocketState::SynSent,
            State::SynReceived => SocketState::SynRecv,
            State::Established => SocketState::Estab,
            State::FinWait1 => SocketState::FinWait1,
            State::FinWait2 => SocketState::FinWait2,
            State::CloseWait => SocketState::CloseWait,
            State::Closing => SocketState::Closing,
            State::LastAck => SocketState::LastAck,
        }
    }
}

impl SocketStatus {
    /// The status of a connection, from what its stack tells `now`. The caller fills in owner and
    /// shard.
    pub fn connection(local: SocketAddr, remote: SocketAddr, info: &Info, now: Instant) -> Self {
        let mut timers: Vec<_> = info.timers.into_iter().flatten().collect();
        timers.sort_unstable_by_key(|timer| timer.due);
        Self {
            state: info.state.into(),
            receive_queue: info.unread,
            send_queue: info.unacknowledged.saturating_add(info.unsent),
            local,
            remote: Some(remote),
            process: None,
            pid: None,
            uid: None,
            inode: 0,
            cookie: 0,
            ipv6: local.is_ipv6(),
            shard: 0,
            timers: timers.iter().map(|timer| TimerStatus::new(timer, now)).collect(),
            tcp: Some(TcpStatus::from(info)),
            direct: None,
        }
    }

    /// The status of a direct connection with `unread` bytes that the program has not read, and
    /// `unacked` that the peer has not.
    pub fn direct(
        state: SocketState,
        [local, remote]: [SocketAddr; 2],
        [unread, unacked]: [u64; 2],
        direct: DirectStatus,
    ) -> Self {
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            state,
            remote: Some(remote),
            direct: Some(direct),
            ..Self::listener(local, bytes(unread), bytes(unacked))
        }
    }

    /// The status of what remains of a connection that this side closed first.
    pub fn time_wait(local: SocketAddr, remote: SocketAddr, timer: &Timer, now: Instant) -> Self {
        Self {
            state: SocketState::TimeWait,
            remote: Some(remote),
            timers: vec![TimerStatus::new(timer, now)],
            ..Self::listener(local, 0, 0)
        }
    }

    /// The status of a listener with `waiting` connections of at most `backlog`.
    pub fn listener(local: SocketAddr, waiting: u32, backlog: u32) -> Self {
        Self {
            state: SocketState::Listen,
            receive_queue: waiting,
            send_queue: backlog,
            local,
            remote: None,
            process: None,
            pid: None,
            uid: None,
            inode: 0,
            cookie: 0,
            ipv6: local.is_ipv6(),
            shard: 0,
            timers: Vec::new(),
            tcp: None,
            direct: None,
        }
    }
}

impl From<&Info> for TcpStatus {
    fn from(info: &Info) -> Self {
        let options = [
            ("ts", info.timestamps),
            ("sack", info.sack),
            ("wscale", info.window_scaling),
            ("ecn", info.ecn),
        ];
        let used = options.into_iter().filter(|(_, used)| *used);
        Self {
            rtt: Duration::from_nanos(info.rtt_ns),
            rtt_variation: Duration::from_nanos(info.rtt_variation_ns),
            min_rtt: Duration::from_nanos(info.min_rtt_ns),
            rto: Duration::from_nanos(info.rto_ns),
            mss: info.segment_size,
            cwnd: info.congestion_window,
            ssthresh: info.slow_start_threshold,
            send_window: info.send_window,
            unacked: info.unacknowledged,
            unsent: info.unsent,
            retransmits: info.retransmits,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            options: used.map(|(name, _)| name.to_owned()).collect(),
        }
    }
}
