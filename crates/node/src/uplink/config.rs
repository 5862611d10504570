//! The configuration of an uplink or a device.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toehold_link::Link;
use toehold_link::bridge::Bridge;
use toehold_link::interface::{Interface, Namespace, NamespaceError};
use toehold_link::ivshmem::{IvshmemLink, IvshmemSettings};
use toehold_link::mq::{Bound, Gateway, Mesh, MeshSettings};
use toehold_link::packet::PacketLink;
use toehold_link::steering::Steering;
use toehold_link::tap::{Tap, TapSettings};
use toehold_link::udp::{UdpLink, UdpSettings};
use toehold_link::xdp::{Mode, XdpLink};

use super::lanes::Lane;
use super::roster::{Announced, Exchange};
use super::vacancy::ask_behind;
use crate::engine::HostError;
use crate::fabric::{Place, Role};
use crate::kernel::Watched;
use crate::local::random;
use crate::settings::NodeSettings;

/// The ends that are joined: two with each other, or one with the fabric.
#[derive(Debug, Clone, Default)]
pub struct UplinkConfig {
    /// An interface of the kernel.
    pub tap: Option<TapEnd>,
    /// Other hosts.
    pub udp: Option<UdpEnd>,
    /// An interface that exists; with the fabric only.
    pub ethernet: Option<EthernetEnd>,
    /// Other members of a segment; not beside other hosts.
    pub segment: Option<SegmentEnd>,
}

/// An interface of the kernel that exists, and the network behind it.
#[derive(Debug, Clone)]
pub struct EthernetEnd {
    /// The interface's name.
    pub interface: String,
    /// The network namespace of the interface, if it is not the process's own.
    pub namespace: Option<PathBuf>,
    /// The way in which frames are taken from the interface.
    pub access: Access,
    /// Most queues of the interface for which AF_XDP has a socket; as many as there are if this
    /// does not say.
    pub queues: Option<u32>,
}

/// A way in which frames are taken from an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// AF_XDP without copies, or else a packet socket. Where frames are copied anyhow, streams
    /// are faster through that: over it, long frames stay long.
    #[default]
    Best,
    /// AF_XDP, without copies.
    ZeroCopy,
    /// AF_XDP, with copies by the driver.
    Copy,
    /// AF_XDP, with copies by the kernel.
    Generic,
    /// A packet socket.
    Packet,
}

impl Access {
    fn modes(self) -> &'static [Mode] {
        match self {
            Access::Best | Access::ZeroCopy => &[Mode::ZeroCopy],
            Access::Copy => &[Mode::Copy],
            Access::Generic => &[Mode::Generic],
            Access::Packet => &[],
        }
    }
}

/// An interface of the kernel, which is made, and lasts as long as its process.
#[derive(Debug, Clone)]
pub struct TapEnd {
    /// The interface's name.
    pub interface: String,
    /// The network namespace in which the interface is made, if it is not the process's own.
    pub namespace: Option<PathBuf>,
    /// Whether others are behind it, because it is a port of a bridge of the kernel's.
    /// It has no addresses of its own then.
    pub bridged: bool,
    /// The device's queues, 1 to 16, each with a thread of its own, among which flows are shared
    /// out. Straight to others there are as many ports, from the one that is given on, or parts of
    /// the memory. All ends have to have as many queues.
    pub queues: u8,
}

impl TapEnd {
    /// The interface, once it is made. As the port of a bridge it may have any address.
    pub(super) fn watch(&self, mac: [u8; 6]) -> Result<Watched, HostError> {
        let file = self.namespace.as_deref();
        let address = (!self.bridged).then_some(mac);
        Ok(Watched::find(&self.interface, &namespace(file)?, file, address)?)
    }
}

/// Other hosts, over UDP.
#[derive(Debug, Clone)]
pub struct UdpEnd {
    /// The address at which this host listens.
    pub bind: SocketAddr,
    /// The addresses at which the others listen.
    pub peers: Vec<SocketAddr>,
    /// The key that only the hosts know.
    pub key: Option<[u8; 32]>,
}

/// Memory that several machines or processes map, see [`toehold_link::ivshmem`].
#[derive(Debug, Clone)]
pub struct SegmentEnd {
    /// The path of the memory.
    pub path: PathBuf,
    /// Bytes of the file, if it is to be made where there is none.
    pub size: Option<u64>,
    /// Members of a fresh segment.
    pub members: usize,
    /// The member that this is, if not any.
    pub member: Option<usize>,
}

/// The reason why there is nothing to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUplink {
    /// Only the fabric is given.
    #[error(
        "nothing is beyond the fabric: name an interface of the kernel, peers on other hosts, or a segment"
    )]
    Nothing,
    /// Several ends are given, and frames from one would not go on to the other.
    #[error("an uplink leads over an interface, to other hosts or through a segment: start one for each")]
    Several,
    /// An interface is given with no queues, or with too many.
    #[error("an interface has 1 to 16 queues")]
    Queues,
    /// Each queue has a port.
    #[error(
        "{0} has no ports behind it for the other queues: there is one for each, from the one that is named on"
    )]
    Ports(SocketAddr),
    /// The uplink would talk to itself.
    #[error("{0} is where this host listens: name the others' addresses, and leave out its own")]
    Itself(SocketAddr),
}

impl UplinkConfig {
    /// The role of the member to others.
    pub fn role(&self) -> Role {
        match &self.tap {
            Some(tap) if !tap.bridged => Role::Device,
            _ => Role::Uplink,
        }
    }

    /// Whether an interface leads straight to others, past the fabric.
    pub fn is_straight(&self) -> bool {
        self.tap.is_some() && self.leads_to_others()
    }

    /// Whether there are other uplinks beyond, or devices like this one.
    pub(super) fn leads_to_others(&self) -> bool {
        self.udp.is_some() || self.segment.is_some()
    }
}

/// The links that are joined.
pub(super) enum Joined {
    FabricWithHosts(Box<Bridge<Mesh, Announced<UdpLink>>>),
    FabricWithXdp(Box<Bridge<Mesh, XdpLink>>),
    /// With the reason why it is not AF_XDP, if that was to be.
    FabricWithPacket(Box<Bridge<Mesh, PacketLink>>, Option<String>),
    FabricWithSegment(Box<Bridge<Mesh, Announced<IvshmemLink>>>),
    KernelWithFabric(Vec<Bridge<Tap, Mesh>>),
    KernelWithHosts(Vec<Bridge<Tap, Announced<UdpLink>>>),
    KernelWithSegment(Vec<Bridge<Tap, Announced<IvshmemLink>>>),
}

impl Joined {
    /// Makes the uplink of the configuration, in a place that was taken for it.
    pub(super) fn make(
        config: &UplinkConfig,
        place: &Place,
        settings: &NodeSettings,
        exchange: &Arc<Exchange>,
    ) -> Result<Joined, HostError> {
        let mac = place.record().mac.0;
        // What can fail for others to see comes first: no peer is to meet a gateway that leads
        // nowhere.
        if let Some(ethernet) = &config.ethernet {
            if config.tap.is_some() || config.udp.is_some() || config.segment.is_some() {
                return Err(InvalidUplink::Several.into());
            }
            return Joined::with_ethernet(ethernet, place, settings);
        }
        Ok(match (&config.tap, &config.udp, &config.segment) {
            (None, None, None) => return Err(InvalidUplink::Nothing.into()),
            (_, Some(_), Some(_)) => return Err(InvalidUplink::Several.into()),
            (None, Some(udp), None) => {
                let hosts = Announced::new(open_udp(udp, Lane::SOLE, mac, settings)?, exchange);
                Joined::FabricWithHosts(Box::new(Bridge::new(join(place, settings)?, hosts)))
            }
            (None, None, Some(segment)) => {
                let others = Announced::new(open_segment(segment, Lane::SOLE, mac, settings)?, exchange);
                Joined::FabricWithSegment(Box::new(Bridge::new(join(place, settings)?, others)))
            }
            (Some(tap), None, None) => {
                Lane::all(tap.queues).map(drop)?;
                let kernel = open_queues(tap, place, settings)?;
                let fabric = join_all(place, settings, tap)?;
                let queues = kernel.into_iter().zip(fabric);
                let bridges = queues.map(|(queue, (fabric, steering))| {
                    of_one(Bridge::new(queue, fabric).only_share_of(steering), tap, mac)
                });
                Joined::KernelWithFabric(bridges.collect())
            }
            (Some(tap), Some(udp), None) => {
                let open = |lane| Ok(Announced::new(open_udp(udp, lane, mac, settings)?, exchange));
                let hosts = Lane::all(tap.queues)?.map(open);
                let hosts = hosts.collect::<Result<_, HostError>>()?;
                Joined::KernelWithHosts(by_queue(open_queues(tap, place, settings)?, hosts, tap, mac))
            }
            (Some(tap), None, Some(segment)) => {
                let open = |lane| {
                    Ok(Announced::new(
                        open_segment(segment, lane, mac, settings)?,
                        exchange,
                    ))
                };
                let others = Lane::all(tap.queues)?.map(open);
                let others = others.collect::<Result<_, HostError>>()?;
                Joined::KernelWithSegment(by_queue(open_queues(tap, place, settings)?, others, tap, mac))
            }
        })
    }
}

impl Joined {
    fn with_ethernet(end: &EthernetEnd, place: &Place, settings: &NodeSettings) -> Result<Joined, HostError> {
        let (mac, modes) = (place.record().mac.0, end.access.modes());
        let namespace = namespace(end.namespace.as_deref())?;
        let mut reason = None;
        if !modes.is_empty() {
            match XdpLink::open(&end.interface, &namespace, mac, modes, end.queues)? {
                Ok(mut interface) => {
                    ask_behind(&end.interface, &mut interface, place)?;
                    let fabric = join(place, settings)?;
                    return Ok(Joined::FabricWithXdp(Box::new(Bridge::new(fabric, interface))));
                }
                Err(error) if end.access == Access::Best => reason = Some(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        let mut interface = PacketLink::open(&end.interface, &namespace, mac)?;
        ask_behind(&end.interface, &mut interface, place)?;
        let bridge = Bridge::new(join(place, settings)?, interface);
        Ok(Joined::FabricWithPacket(Box::new(bridge), reason))
    }
}

/// Each queue of an interface with the lane that is its own.
fn by_queue<B: Link>(queues: Vec<Tap>, lanes: Vec<B>, tap: &TapEnd, mac: [u8; 6]) -> Vec<Bridge<Tap, B>> {
    let joined = queues.into_iter().zip(lanes);
    joined
        .map(|(queue, lane)| of_one(Bridge::new(queue, lane), tap, mac))
        .collect()
}

/// The kernel speaks for its interface alone, unless others are behind that.
fn of_one<B: Link>(bridge: Bridge<Tap, B>, tap: &TapEnd, mac: [u8; 6]) -> Bridge<Tap, B> {
    match tap.bridged {
        true => bridge,
        false => bridge.only_from(mac),
    }
}

fn join(place: &Place, settings: &NodeSettings) -> Result<Mesh, HostError> {
    Ok(Mesh::join(&mesh(place, settings, Gateway::Uplink))?)
}

/// A member of the fabric for each queue of an interface, as shards of one.
fn join_all(
    place: &Place,
    settings: &NodeSettings,
    tap: &TapEnd,
) -> Result<Vec<(Mesh, Steering)>, HostError> {
    let [life, key, more] = [random()?, random()?, random()?];
    let key = (u128::from(key) << 64 | u128::from(more)).to_le_bytes();
    let gateway = match tap.bridged {
        true => Gateway::BridgePort,
        false => Gateway::None,
    };
    let join = |index| {
        let steering = match tap.queues {
            1 => Steering::SOLE,
            count => Steering { index, count, key },
        };
        let settings = MeshSettings {
            steering,
            incarnation: (tap.queues > 1).then_some(life),
            ..mesh(place, settings, gateway)
        };
        Ok((Mesh::join(&settings)?, steering))
    };
    (0..tap.queues).map(join).collect()
}

pub(super) fn mesh(place: &Place, settings: &NodeSettings, gateway: Gateway) -> MeshSettings {
    let record = place.record();
    MeshSettings {
        mtu: settings.mtu,
        ring_capacity: settings.ring as usize,
        max_peers: MeshSettings::MAX_PEERS,
        quotas: settings.quotas(),
        bound: Bound::new(Some(record.ipv4.addr()), Some(record.ipv6.addr())),
        registry: place.fabric().registry().ok(),
        gateway,
        ..MeshSettings::new(place.fabric().path(), record.name, record.mac.0)
    }
}

fn open_udp(udp: &UdpEnd, lane: Lane, mac: [u8; 6], settings: &NodeSettings) -> Result<UdpLink, HostError> {
    let UdpEnd { bind, peers, key } = lane.hosts(udp)?;
    if peers.contains(&bind) {
        return Err(InvalidUplink::Itself(bind).into());
    }
    let udp = UdpSettings {
        key,
        mtu: settings.mtu,
        fabric: lane.fabric(),
        ..UdpSettings::new(bind, peers, mac)
    };
    Ok(UdpLink::open(&udp)?)
}

fn namespace(file: Option<&Path>) -> Result<Namespace, NamespaceError> {
    file.map_or(Ok(Namespace::Own), Namespace::at)
}

fn open_segment(
    segment: &SegmentEnd,
    lane: Lane,
    mac: [u8; 6],
    settings: &NodeSettings,
) -> Result<IvshmemLink, HostError> {
    let segment = IvshmemSettings {
        size: segment.size,
        members: segment.members,
        member: segment.member,
        part: lane.part(),
        mtu: settings.mtu,
        ..IvshmemSettings::new(&segment.path, mac)
    };
    Ok(IvshmemLink::open(&segment)?)
}

fn open_queues(end: &TapEnd, place: &Place, settings: &NodeSettings) -> Result<Vec<Tap>, HostError> {
    let record = place.record();
    let namespace = namespace(end.namespace.as_deref())?;
    let tap = TapSettings {
        interface_address: (!end.bridged).then_some(record.mac.0),
        mtu: settings.mtu,
        multi_queue: end.queues > 1,
        ..TapSettings::new(&end.interface, record.mac.0)
    };
    let (tap, mut interface) = Tap::create(&tap, &namespace)?;
    let mut queues = vec![tap];
    for _ in 1..end.queues {
        queues.push(queues[0].another_queue(&namespace)?);
    }
    if !end.bridged {
        add_addresses(&mut interface, place, settings.mtu)?;
    }
    interface.set_up(true)?;
    Ok(queues)
}

/// The addresses that the fabric gives its member.
fn add_addresses(interface: &mut Interface, place: &Place, mtu: u16) -> Result<(), HostError> {
    const LEAST_OF_IPV6: u16 = 1280;
    let record = place.record();
    interface.add_address(record.ipv4.addr().into(), record.ipv4.prefix_len())?;
    if mtu >= LEAST_OF_IPV6 {
        interface.add_address(record.ipv6.addr().into(), record.ipv6.prefix_len())?;
    }
    Ok(())
}
