//! Counters of a link over UDP: frames carried, and frames dropped by reason.

use std::net::SocketAddr;

use rustix::io::Errno;

/// Counters of a link since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpStatistics {
    /// Sending system calls.
    pub send_calls: u64,
    /// Receiving system calls.
    pub receive_calls: u64,
    /// Frames sent to all peers because their destination was unknown.
    pub flooded: u64,
    /// Frames not sent because no peer is reachable.
    pub unreachable: u64,
    /// Frames not sent, or dropped, because of their length.
    pub bad_length: u64,
    /// Super-frames not sent because of a wrong checksum.
    pub bad_checksums: u64,
    /// Frames given back because the socket is full.
    pub full: u64,
    /// Multicast frames not sent to a peer because the socket is full.
    pub group_frames_dropped: u64,
    /// Datagrams from addresses of no peer.
    pub strangers: u64,
    /// Datagrams of another protocol, and truncated ones.
    pub malformed: u64,
    /// Datagrams of another version.
    pub other_version: u64,
    /// Datagrams of another fabric.
    pub other_fabric: u64,
    /// Datagrams without a tag though there is a key, with one though there is
    /// none, or with a wrong one.
    pub not_authentic: u64,
    /// This node's own datagrams that came back.
    pub reflected: u64,
    /// Datagrams that came before, or are too old to tell.
    pub replayed: u64,
    /// Datagrams without a token of a current association.
    pub unknown_token: u64,
    /// Hellos that hand over another token within an association. They do not prove
    /// that the peer has begun anew.
    pub unproven_hellos: u64,
    /// Fragments that belong to no frame, and frames that stayed incomplete.
    pub fragments_dropped: u64,
    /// Hardware addresses not learnt because the table is full.
    pub not_learned: u64,
    /// Super-frames merged from consecutive segments.
    pub merged: u64,
}

/// Counters of one peer since the link was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpPeerStatistics {
    /// Frames sent to the peer. Each segment of a super-frame counts.
    pub frames_sent: u64,
    /// Datagrams sent to the peer.
    pub datagrams_sent: u64,
    /// Frames sent in fragments.
    pub fragmented: u64,
    /// Datagrams lost because the path's MTU decreased.
    pub too_long: u64,
    /// Datagrams that the kernel refused for another reason.
    pub refused: u64,
    /// Datagrams received from the peer.
    pub datagrams_received: u64,
    /// Frames received from the peer.
    pub frames_received: u64,
    /// Associations begun with the peer.
    pub introductions: u64,
}

/// A link's facts about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPeerInfo {
    /// The peer's address and port.
    pub socket: SocketAddr,
    /// The peer's state.
    pub state: UdpPeerState,
    /// Most bytes of a datagram to the peer, by the known MTU of the path.
    pub datagram: usize,
    /// The peer's counters.
    pub statistics: UdpPeerStatistics,
}

/// State of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpPeerState {
    /// Frames flow.
    Connected {
        /// The peer's hardware address.
        address: [u8; 6],
    },
    /// The peer has not answered yet, or not for some time.
    Away {
        /// The kernel's error of the last datagram, if it failed. `NOTUNIQ` if the
        /// peer claims the hardware address of another node or of this one.
        error: Option<Errno>,
    },
    /// The peer has answered as a node of another fabric.
    Elsewhere {
        /// Number of that fabric.
        fabric: u32,
    },
}
