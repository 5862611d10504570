//! An uplink as its engine process has it: threads that forward, and the questions to them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use toehold_link::bridge::Bridge;
use toehold_shm::Doorbell;

use super::config::{Joined, UplinkConfig};
use super::ends::{End, Report};
use super::forwarder::Forwarder;
use super::roster::{Exchange, Roster};
use crate::control::{
    Attachment, CaptureRequest, CaptureSummary, Client, Counter, Host, InterfaceStatus, Refusal,
    SocketStatus, StackStatus,
};
use crate::engine::HostError;
use crate::fabric::Place;
use crate::kernel::Watched;
use crate::placement::Placement;
use crate::settings::NodeSettings;

/// A member of a fabric that forwards and has no stack.
#[derive(Debug)]
pub struct UplinkHost {
    /// The forwarders: one for each queue of an interface with several queues, and one otherwise.
    forwarders: Vec<Forwarder>,
    exchange: Arc<Exchange>,
    /// The roster's thread, if there is one.
    roster: Mutex<Option<JoinHandle<()>>>,
    /// The reason why frames are not taken from the interface in a better way.
    reason: Option<String>,
    /// The interface that was made.
    device: Option<Watched>,
}

impl UplinkHost {
    /// Makes a host that forwards between the ends of `config`, for
    /// [`Engine::start`](crate::engine::Engine::start).
    ///
    /// # Errors
    ///
    /// If an end cannot be made: the interface's name or the port is taken, or a right is missing.
    /// Also if the system refuses memory, descriptors or a thread.
    pub fn host(
        config: &UplinkConfig,
        place: &Place,
        settings: &NodeSettings,
    ) -> Result<Arc<dyn Host>, HostError> {
        let bell = Arc::new(Doorbell::new()?);
        let exchange = Arc::new(Exchange::new(&bell));
        let joined = Joined::make(config, place, settings, &exchange)?;
        let device = match &config.tap {
            Some(tap) => Some(tap.watch(place.record().mac.0)?),
            None => None,
        };
        let mut reason = None;
        let forwarders = match joined {
            Joined::FabricWithHosts(bridge) => vec![Forwarder::start(bridge, bell)?],
            Joined::FabricWithXdp(bridge) => vec![Forwarder::start(bridge, bell)?],
            Joined::FabricWithPacket(bridge, why) => {
                reason = why;
                vec![Forwarder::start(bridge, bell)?]
            }
            Joined::FabricWithSegment(bridge) => vec![Forwarder::start(bridge, bell)?],
            Joined::KernelWithFabric(bridges) => by_queue(bridges, &bell)?,
            Joined::KernelWithHosts(bridges) => by_queue(bridges, &bell)?,
            Joined::KernelWithSegment(bridges) => by_queue(bridges, &bell)?,
        };
        let host = UplinkHost {
            forwarders,
            exchange,
            roster: Mutex::default(),
            reason,
            device,
        };
        if config.leads_to_others() {
            let leads_from_fabric = config.tap.is_none();
            let roster = Roster::start(&host.exchange, place, leads_from_fabric, settings.mtu)?;
            *host.roster() = Some(roster);
        }
        Ok(Arc::new(host))
    }

    fn roster(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> Report {
        match &self.forwarders[..] {
            [sole] => sole.ask(),
            several => Report::together(several.iter().map(Forwarder::ask)),
        }
    }
}

/// Begins a thread for each queue. The first one is told of what the roster has to say.
fn by_queue<A: End, B: End>(bridges: Vec<Bridge<A, B>>, bell: &Arc<Doorbell>) -> io::Result<Vec<Forwarder>> {
    let mut first = Some(Arc::clone(bell));
    let start = |bridge| {
        let bell = first.take().map_or_else(|| Doorbell::new().map(Arc::new), Ok)?;
        Forwarder::start(Box::new(bridge), bell)
    };
    bridges.into_iter().map(start).collect()
}

fn no_programs() -> Refusal {
    Refusal::new("it only forwards frames; run programs on a node of its fabric (`toehold up` starts one)")
}

impl Host for UplinkHost {
    fn attach(&self, _: Client) -> Result<Attachment, Refusal> {
        Err(no_programs())
    }

    fn detached(&self, _: u16) {}

    fn peer(&self, _: u8, _: u16, _: u16) -> Option<Vec<OwnedFd>> {
        None
    }

    fn holders(&self, _: u16, _: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal> {
        Err(no_programs())
    }

    fn identify(&self, _: u16, _: OwnedFd) -> Result<u32, Refusal> {
        Err(no_programs())
    }

    fn inherit(&self, _: u16, _: OwnedFd) -> Result<Option<(u32, OwnedFd)>, Refusal> {
        Err(no_programs())
    }

    fn status(&self) -> StackStatus {
        let report = self.ask();
        StackStatus {
            peers: report.members,
            remotes: report.remotes,
            kernel: self.device.as_ref().map(Watched::status),
            interface: report.interface.map(|interface| InterfaceStatus {
                reason: self.reason.clone(),
                ..interface
            }),
            beyond: report.findings.beyond,
            standby: report.findings.standby,
            conflicts: report.findings.conflicts,
            frames_received: report.frames_received,
            frames_sent: report.frames_sent,
            ..StackStatus::default()
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        Vec::new()
    }

    fn counters(&self) -> Vec<Counter> {
        self.ask().counters
    }

    fn set_placement(&self, _: Placement) -> Result<(), Refusal> {
        Err(Refusal::new("it has no stack whose place could change"))
    }

    fn start_capture(&self, _: File, _: CaptureRequest) -> Result<(), Refusal> {
        Err(Refusal::new(
            "it does not record; capture at a node of its fabric, or at the kernel's interface",
        ))
    }

    fn stop_capture(&self) -> CaptureSummary {
        CaptureSummary::default()
    }

    fn leave_capture(&self) {}

    /// Does nothing. The threads that forward share nothing with the one that panicked.
    fn begin_anew(&self) {}

    fn stop(&self) {
        self.forwarders.iter().for_each(Forwarder::stop);
        self.exchange.close();
        if let Some(roster) = self.roster().take() {
            // If it panicked, that was told.
            let _ = roster.join();
        }
    }
}

impl Drop for UplinkHost {
    fn drop(&mut self) {
        self.stop();
    }
}
