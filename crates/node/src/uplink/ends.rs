//! The reports of a bridge's ends.

use toehold_link::Link;
use toehold_link::bridge::Bridge;
use toehold_link::ivshmem::IvshmemLink;
use toehold_link::mq::Mesh;
use toehold_link::packet::PacketLink;
use toehold_link::tap::Tap;
use toehold_link::udp::{UdpLink, UdpPeerInfo, UdpPeerState};
use toehold_link::xdp::XdpLink;

use super::counters;
use super::lanes::Lane;
use super::roster::{Announced, Findings};
use crate::control::peers;
use crate::control::{Counter, DeviceState, InterfaceStatus, RemoteStatus};

/// The report of an uplink at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    /// Members of the fabric that frames are exchanged with.
    pub(super) members: u32,
    /// Other hosts.
    pub(super) remotes: Vec<RemoteStatus>,
    /// The interface beyond.
    pub(super) interface: Option<InterfaceStatus>,
    /// The findings about other uplinks.
    pub(super) findings: Findings,
    pub(super) frames_received: u64,
    pub(super) frames_sent: u64,
    pub(super) counters: Vec<Counter>,
}

impl Report {
    pub(super) fn of<A: End, B: End>(bridge: &Bridge<A, B>) -> Report {
        let mut report = Report::default();
        let [forth, back] = bridge.statistics();
        let names = [
            format!("{}_to_{}", A::NAME, B::NAME),
            format!("{}_to_{}", B::NAME, A::NAME),
        ];
        for (name, statistics) in names.iter().zip([&forth, &back]) {
            report.frames_received += statistics.frames;
            report.frames_sent += statistics.forwarded;
            report.counters.extend(counters::of_direction(name, statistics));
        }
        let (a, b) = bridge.links();
        a.describe(&mut report);
        b.describe(&mut report);
        report
    }

    /// Sums up the reports of the queues of one interface.
    pub(super) fn together(reports: impl Iterator<Item = Report>) -> Report {
        let mut all = Report::default();
        for (queue, mut report) in reports.enumerate() {
            for counter in &mut report.counters {
                counter.shard = Some(queue as u16);
            }
            all.members = all.members.max(report.members);
            all.remotes.extend(report.remotes);
            if queue == 0 {
                // It is the interface's, whichever queue says it.
                all.findings = report.findings;
            }
            all.frames_received += report.frames_received;
            all.frames_sent += report.frames_sent;
            all.counters.extend(report.counters);
        }
        all
    }
}

/// A link that can be an end.
pub(super) trait End: Link + 'static {
    const NAME: &'static str;

    fn describe(&self, report: &mut Report);
}

impl End for Mesh {
    const NAME: &'static str = "mesh";

    fn describe(&self, report: &mut Report) {
        report.members = self.nodes() as u32;
        let states = self.peers().into_iter().map(|peer| peer.state);
        let counters = counters::of_fabric(&self.port_statistics(), states);
        report.counters.extend(counters);
        report
            .counters
            .extend(peers::of_membership(&self.statistics(), None));
        report
            .findings
            .conflicts
            .extend(self.conflict().map(peers::sentence));
    }
}

impl End for UdpLink {
    const NAME: &'static str = "udp";

    fn describe(&self, report: &mut Report) {
        let lane = Lane::of_fabric(self.fabric());
        report.remotes = self.peers().map(|peer| remote(&peer, lane)).collect();
        report.counters.extend(counters::of_hosts(&self.statistics()));
    }
}

impl<L: End> End for Announced<L> {
    const NAME: &'static str = L::NAME;

    fn describe(&self, report: &mut Report) {
        self.link().describe(report);
        let said = std::mem::take(&mut report.findings.conflicts);
        report.findings = self.exchange().findings();
        report.findings.conflicts.extend(said);
        let malformed = self.exchange().malformed();
        let counters = counters::of_roster(&self.statistics(), malformed);
        report.counters.extend(counters);
    }
}

impl End for IvshmemLink {
    const NAME: &'static str = "segment";

    fn describe(&self, report: &mut Report) {
        let counters = counters::of_segment(&self.statistics(), self.member(), self.peers());
        report.counters.extend(counters);
    }
}

impl End for Tap {
    const NAME: &'static str = "tap";

    fn describe(&self, report: &mut Report) {
        let counters = counters::of_kernel(&self.statistics(), self.is_gone());
        report.counters.extend(counters);
    }
}

impl End for PacketLink {
    const NAME: &'static str = "ethernet";

    fn describe(&self, report: &mut Report) {
        let access = "a packet socket".to_owned();
        report.interface = Some(interface(self, access));
        report.counters.extend(counters::of_packet(&self.statistics()));
    }
}

impl End for XdpLink {
    const NAME: &'static str = "ethernet";

    fn describe(&self, report: &mut Report) {
        let queues = match self.queues() {
            1 => "1 queue".to_owned(),
            queues => format!("{queues} queues"),
        };
        report.interface = Some(interface(self.packet(), format!("{}, {queues}", self.mode())));
        report.counters.extend(counters::of_xdp(&self.statistics()));
        let beside = self.packet().statistics();
        report.counters.extend(counters::of_packet(&beside));
    }
}

fn interface(link: &PacketLink, access: String) -> InterfaceStatus {
    InterfaceStatus {
        name: link.interface().to_owned(),
        access,
        state: match link {
            link if link.is_gone() => DeviceState::Gone,
            link if !link.is_up() => DeviceState::Down,
            link if !link.is_running() => DeviceState::NoCarrier,
            _ => DeviceState::Up,
        },
        reason: None,
    }
}

/// `lane`: the one that leads there.
fn remote(peer: &UdpPeerInfo, lane: Option<Lane>) -> RemoteStatus {
    let error = match peer.state {
        UdpPeerState::Connected { .. } => None,
        UdpPeerState::Away { error } => error.map(|error| std::io::Error::from(error).to_string()),
        UdpPeerState::Elsewhere { fabric } => lane.map(|lane| lane.difference(Lane::of_fabric(fabric))),
    };
    RemoteStatus {
        address: peer.socket,
        connected: matches!(peer.state, UdpPeerState::Connected { .. }),
        error,
        datagram: peer.datagram as u32,
        frames_sent: peer.statistics.frames_sent,
        frames_received: peer.statistics.frames_received,
        introductions: peer.statistics.introductions,
    }
}
