//! What a link over UDP has carried and dropped, and why.

use std::net::SocketAddr;

use rustix::io::Errno;

/// Counters of a link, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpStatistics {
    /// Calls of the kernel that sent datagrams.
    pub send_calls: u64,
    /// Calls of the kernel that received datagrams.
    pub receive_calls: u64,
    /// Frames sent to all peers because nobody knew better.
    pub flooded: u64,
    /// Frames not sent because no peer can be reached.
    pub unreachable: u64,
    /// Frames not sent, or dropped, because of their length.
    pub bad_length: u64,
    /// Super-frames not sent because their checksum is wrong.
    pub bad_checksums: u64,
    /// Frames given back because the socket takes no more.
    pub full: u64,
    /// Group frames not sent to a peer because the socket takes no more.
    pub group_frames_dropped: u64,
    /// Datagrams from addresses that are no peer's.
    pub strangers: u64,
    /// Datagrams that are not of this protocol, or cut.
    pub malformed: u64,
    /// Datagrams of another version.
    pub other_version: u64,
    /// Datagrams of another fabric.
    pub other_fabric: u64,
    /// Datagrams without a tag where there is a key, with one where there is none, or
    /// with a wrong one.
    pub not_authentic: u64,
    /// Datagrams of this node that came back.
    pub reflected: u64,
    /// Datagrams that came before, or too late to tell.
    pub replayed: u64,
    /// Datagrams of an association that is none now.
    pub unknown_token: u64,
    /// Hellos that hand over another token within an association, which is not proof that the
    /// peer has begun anew.
    pub unproven_hellos: u64,
    /// Fragments that belong to nothing, and frames that were not completed.
    pub fragments_dropped: u64,
    /// Hardware addresses not learned because too many are known.
    pub not_learned: u64,
    /// Super-frames put together of segments that came in a row.
    pub merged: u64,
}

/// Counters of one peer, since the link was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpPeerStatistics {
    /// Frames sent to it; each segment of a super-frame counts.
    pub frames_sent: u64,
    /// Datagrams sent to it.
    pub datagrams_sent: u64,
    /// Frames that had to be sent in fragments.
    pub fragmented: u64,
    /// Datagrams lost because the path carries less than it did.
    pub too_long: u64,
    /// Datagrams the kernel did not send for another reason.
    pub refused: u64,
    /// Datagrams received from it.
    pub datagrams_received: u64,
    /// Frames received from it.
    pub frames_received: u64,
    /// Associations begun with it.
    pub introductions: u64,
}

/// What a link knows of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPeerInfo {
    /// Where it is.
    pub socket: SocketAddr,
    /// How things stand with it.
    pub state: UdpPeerState,
    /// Bytes of a datagram to it at most: what the path is known to carry.
    pub datagram: usize,
    /// What was exchanged.
    pub statistics: UdpPeerStatistics,
}

/// How things stand with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpPeerState {
    /// Frames flow.
    Connected {
        /// Its hardware address.
        address: [u8; 6],
    },
    /// It has not answered yet, or not for some time.
    Away {
        /// What the kernel said when a datagram was last sent, if that failed; `NOTUNIQ` if
        /// another node, or this one, has the hardware address that it says it has.
        error: Option<Errno>,
    },
    /// It has answered, as a node of another fabric.
    Elsewhere {
        /// Which one that is.
        fabric: u32,
    },
}
