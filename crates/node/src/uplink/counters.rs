//! The counters of an uplink, by name.

use toehold_link::bridge::BridgeStatistics;
use toehold_link::ivshmem::{IvshmemPeerInfo, IvshmemStatistics};
use toehold_link::mq::{PeerState, PortStatistics};
use toehold_link::packet::PacketStatistics;
use toehold_link::tap::TapStatistics;
use toehold_link::udp::UdpStatistics;
use toehold_link::xdp::XdpStatistics;

use super::roster::AnnouncedStatistics;
use crate::control::Counter;

/// Makes counters of fields: each under its own name behind a prefix.
macro_rules! counters {
    ($prefix:expr, $statistics:expr, $($field:ident $doc:literal)+) => {
        vec![$(counter(format!("{}_{}", $prefix, stringify!($field)), $statistics.$field, $doc)),+]
    };
}

pub(super) fn counter(name: String, value: u64, doc: &str) -> Counter {
    Counter {
        name,
        value,
        doc: doc.to_owned(),
        shard: None,
    }
}

pub(super) fn of_direction(name: &str, statistics: &BridgeStatistics) -> Vec<Counter> {
    counters!(name, statistics,
        frames "Frames that came."
        bytes "Bytes of these."
        super_frames "Of these frames, super-frames."
        forwarded "Frames the other side took; pieces of one that was cut count each."
        segmented "Frames that were cut."
        fragmented "Packets that were fragmented."
        reported "Senders told that a packet is too long for the other side."
        completed "Frames whose checksums were filled in."
        held "Frames that had to wait for room."
        crowded "Frames dropped because too many waited already."
        late "Frames dropped because no room came in time."
        unreachable "Frames dropped because nobody beyond has their destination."
        too_long "Frames dropped because the other side does not carry their length."
        too_short "Frames dropped because they are shorter than their header."
        bad_super_frames "Super-frames dropped because of how many segments they would be."
        bad_checksums "Frames not cut because their checksum is wrong."
        foreign "Frames dropped because their source is not the interface."
        others "Frames dropped because another queue has them to pass."
    )
}

pub(super) fn of_fabric(port: &PortStatistics, states: impl Iterator<Item = PeerState>) -> Vec<Counter> {
    let mut counters = counters!("mesh", port,
        unreachable "Frames for addresses that no member has."
        bad_length "Frames not sent into the fabric because of their length."
        forged "Frames from beyond that said they were from a member."
        sent_beyond "Frames sent to another gateway."
        claims_refused "Frames not taken because they claim an address that the fabric gave another member."
    );
    let (mut full, mut dropped, mut forged) = (0, 0, 0);
    for state in states {
        if let PeerState::Connected { statistics, .. } = state {
            full += statistics.full;
            dropped += statistics.group_frames_dropped;
            forged += statistics.forged;
        }
    }
    counters.push(counter(
        "mesh_full".to_owned(),
        full,
        "Times a member's queue had no room, of those that are there.",
    ));
    counters.push(counter(
        "mesh_group_frames_dropped".to_owned(),
        dropped,
        "Group frames that a member's queue had no room for, of those that are there.",
    ));
    counters.push(counter(
        "mesh_forged_by_gateways".to_owned(),
        forged,
        "Frames of other gateways that were not taken: from beyond them, or in the name of a member.",
    ));
    counters
}

pub(super) fn of_hosts(statistics: &UdpStatistics) -> Vec<Counter> {
    counters!("udp", statistics,
        send_calls "Calls of the kernel that sent datagrams."
        receive_calls "Calls of the kernel that received datagrams."
        flooded "Frames sent to all hosts because nobody knew better."
        unreachable "Frames not sent because no host can be reached."
        bad_length "Frames dropped because of their length."
        bad_checksums "Super-frames not sent because their checksum is wrong."
        full "Frames given back because the socket took no more."
        group_frames_dropped "Group frames not sent to a host because the socket took no more."
        strangers "Datagrams from addresses that are no peer's."
        malformed "Datagrams that are not of this protocol, or cut."
        other_version "Datagrams of another version."
        other_fabric "Datagrams of another fabric."
        not_authentic "Datagrams without the key's tag, or with one where there is no key."
        reflected "Datagrams of this host that came back."
        replayed "Datagrams that came before, or too late to tell."
        unknown_token "Datagrams of an association that is none now."
        unproven_hellos "Hellos that would begin an association anew without proof that they are fresh."
        fragments_dropped "Fragments that belong to nothing, and frames not completed."
        not_learned "Hardware addresses not learned because too many are known."
        merged "Super-frames put together of segments."
    )
}

pub(super) fn of_roster(statistics: &AnnouncedStatistics, malformed: u64) -> Vec<Counter> {
    let mut counters = counters!("roster", statistics,
        pages_received "Frames in which other uplinks said who is in their fabrics."
        pages_sent "Frames in which this one said who is in its own."
        forged "Frames of members that looked like those, and were not sent."
        stood_by "Frames not forwarded because another uplink leads to the same fabric."
    );
    counters.push(counter(
        "roster_malformed".to_owned(),
        malformed,
        "Frames of other uplinks that could not be read.",
    ));
    counters
}

pub(super) fn of_packet(statistics: &PacketStatistics) -> Vec<Counter> {
    counters!("packet", statistics,
        frames_received "Frames that came through the packet socket."
        bytes_received "Bytes of these."
        super_frames_received "Of these frames, super-frames."
        frames_sent "Frames handed to the packet socket."
        bytes_sent "Bytes of these."
        super_frames_sent "Of these frames, super-frames."
        segmented "Super-frames cut because the kernel does not take them."
        dropped "Frames that came while the socket's buffer was full."
        bad_headers "Frames that came, dropped for their virtio-net header."
        bad_length "Frames dropped because of their length."
        bad_super_frames "Super-frames not sent because they are none of TCP or UDP."
        bad_checksums "Super-frames not sent because their checksum is wrong."
        down "Frames not sent because the interface is down."
        gone "Frames not sent because the interface was removed."
        full "Times there was no room for a frame."
        refused "Frames the kernel refused."
        read_errors "Reads that failed."
        not_served "Nodes whose frames are not taken: too many, or refused by the kernel."
    )
}

pub(super) fn of_xdp(statistics: &XdpStatistics) -> Vec<Counter> {
    counters!("xdp", statistics,
        frames_received "Frames that came through AF_XDP."
        bytes_received "Bytes of these."
        unfinished "Of these frames, those without their checksum, from a kernel at the other end."
        frames_sent "Frames sent through AF_XDP."
        bytes_sent "Bytes of these."
        bad_length "Frames dropped because of their length."
        full "Times there was no place for a frame."
        calls "Calls of the kernel to send frames, or to take places for them."
        down "Of these, calls that failed because the interface is down or gone."
        dropped "Frames the kernel dropped because there was no place for them."
        not_served "Nodes whose frames are not taken through AF_XDP, because there are too many."
    )
}

/// `member`: its own number, if it has one now.
pub(super) fn of_segment(
    statistics: &IvshmemStatistics,
    member: Option<usize>,
    peers: impl Iterator<Item = IvshmemPeerInfo>,
) -> Vec<Counter> {
    let mut counters = counters!("segment", statistics,
        flooded "Frames sent to all members because nobody knew better."
        unreachable "Frames not sent because no member is there to receive them."
        bad_length "Frames dropped because of their length."
        full "Times a member's ring had no room."
        group_frames_dropped "Group frames that a member's ring had no room for."
        malformed "Records dropped because they are no frames."
        broken "Times a member's ring held nonsense, and was begun anew."
        not_learned "Hardware addresses not learned because too many are known."
        evicted "Times another one took this member's number while this one did nothing."
    );
    let (mut present, mut connected, mut sessions) = (0, 0, 0);
    for peer in peers {
        present += 1;
        connected += u64::from(peer.is_connected);
        sessions += peer.statistics.sessions;
    }
    let more = [
        (
            "member",
            member.map_or(u64::MAX, |member| member as u64),
            "Its own number in the segment.",
        ),
        ("members_present", present, "Other members that are there."),
        (
            "members_connected",
            connected,
            "Of these, the ones that frames are exchanged with.",
        ),
        (
            "sessions",
            sessions,
            "Times a ring was begun, of the members that are there.",
        ),
    ];
    counters.extend(more.map(|(name, value, doc)| counter(format!("segment_{name}"), value, doc)));
    counters
}

pub(super) fn of_kernel(statistics: &TapStatistics, is_gone: bool) -> Vec<Counter> {
    let mut counters = counters!("tap", statistics,
        frames_received "Frames the kernel sent."
        bytes_received "Bytes of these."
        super_frames_received "Of these frames, super-frames."
        frames_sent "Frames handed to the kernel."
        bytes_sent "Bytes of these."
        super_frames_sent "Of these frames, super-frames."
        segmented "Super-frames cut because the kernel does not take them."
        bad_headers "Frames from the kernel dropped for their virtio-net header."
        bad_length "Frames dropped because of their length."
        bad_super_frames "Super-frames not sent because they are none of TCP or UDP."
        bad_checksums "Super-frames not sent because their checksum is wrong."
        down "Frames not sent because the interface is down."
        gone "Frames not sent because the interface was deleted."
        full "Times the kernel had no memory for a frame."
        refused "Frames the kernel refused."
        read_errors "Reads that failed."
    );
    counters.push(counter(
        "tap_interface_gone".to_owned(),
        is_gone.into(),
        "1 if somebody deleted the interface.",
    ));
    counters
}
