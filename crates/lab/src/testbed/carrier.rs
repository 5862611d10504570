//! A kernel interface as a member of a fabric, carried by a thread of the side. This is what
//! `toehold device` does, with optional faults on the path.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use toehold_link::bridge::Bridge;
use toehold_link::impair::{Impair, ImpairSettings};
use toehold_link::interface::Namespace;
use toehold_link::mq::{Mesh, MeshSettings};
use toehold_link::tap::{Offloads, Tap, TapSettings};
use toehold_shm::Doorbell;

use super::Role;
use crate::workload::{Faults, QUEUE};

/// The interface's name in its namespace.
const INTERFACE: &str = "toe1";
/// Time for the members of the fabric to meet.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interface, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Carrier {
    stop: Doorbell,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Creates the interface in this thread's namespace, as a member of the fabric in the current
    /// directory. If required, returns only after it has met another member.
    pub(super) fn start(
        role: Role,
        address: (Ipv4Addr, u8),
        mtu: u16,
        faults: Option<(Faults, u64)>,
        meets: bool,
    ) -> io::Result<Self> {
        let (name, number) = match role {
            Role::Server => ("interface-s", 1),
            Role::Client => ("interface-c", 2),
        };
        let mac = [2, 0x7e, 0, 0, 1, number];
        let wire = Wire {
            mac,
            address,
            mtu,
            queue: faults.map(|_| QUEUE),
        };
        let tap = open(&wire, &Namespace::Own)?;
        let faults = match faults {
            Some((faults, seed)) => faults.settings(seed),
            None => ImpairSettings::default(),
        };
        let mut mesh = Mesh::join(&MeshSettings {
            mtu,
            ..MeshSettings::new(".", name.parse().map_err(io::Error::other)?, mac)
        })
        .map_err(io::Error::other)?;
        if meets {
            meet(&mut mesh)?;
        }
        let stop = Doorbell::new()?;
        let bell = stop.try_clone()?;
        let mut bridge = Bridge::new(Impair::new(tap, faults), mesh);
        let carry = move || bridge.drive(bell.as_fd());
        let thread = std::thread::Builder::new().name("carrier".into()).spawn(carry)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

/// The parameters of an interface.
#[derive(Debug)]
pub(super) struct Wire {
    /// Hardware address of both its ends.
    pub(super) mac: [u8; 6],
    /// The address, and the length of its network's prefix.
    pub(super) address: (Ipv4Addr, u8),
    pub(super) mtu: u16,
    /// Frames in its queue, on a path with faults.
    pub(super) queue: Option<usize>,
}

/// Creates the interface and brings it up. On a path with faults, its queue is as long as the
/// path's, and each frame is a segment. A lost super-frame would be a burst. The usual queue of a
/// thousand frames is shorter than the data in flight on a long path. Frames that the interface
/// lost would then count as the receiver's fault.
pub(super) fn open(wire: &Wire, namespace: &Namespace) -> io::Result<Tap> {
    let settings = TapSettings {
        interface_address: Some(wire.mac),
        mtu: wire.mtu,
        offloads: match wire.queue {
            Some(_) => Offloads::NONE,
            None => Offloads::ALL,
        },
        ..TapSettings::new(INTERFACE, wire.mac)
    };
    let (tap, mut interface) = Tap::create(&settings, namespace).map_err(io::Error::other)?;
    let mut make = || {
        let (address, prefix) = wire.address;
        interface.add_address(address.into(), prefix)?;
        if let Some(frames) = wire.queue {
            interface.set_queue(frames as u32)?;
        }
        interface.set_up(true)
    };
    make().map_err(io::Error::other)?;
    Ok(tap)
}

/// Waits until there is another member.
fn meet(mesh: &mut Mesh) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while mesh.connected() == 0 {
        mesh.settle(Duration::from_millis(20));
        if Instant::now() >= deadline {
            return Err(io::Error::other("the fabric has no other member"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
