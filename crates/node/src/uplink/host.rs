//! An uplink as its engine process has it: a thread that forwards, and what is asked of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use toehold_link::bridge::Bridge;
use toehold_shm::Doorbell;

use super::config::{Joined, UplinkConfig};
use super::ends::{End, Report};
use super::roster::{Exchange, Roster};
use crate::control::{
    Attachment, CaptureRequest, CaptureSummary, Client, Counter, Host, InterfaceStatus, Refusal,
    SocketStatus, StackStatus,
};
use crate::engine::HostError;
use crate::fabric::Place;
use crate::placement::Placement;
use crate::settings::NodeSettings;

/// How long the thread that forwards may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// A member of a fabric that forwards and has no stack.
#[derive(Debug)]
pub struct UplinkHost {
    shared: Arc<Shared>,
    exchange: Arc<Exchange>,
    /// The one that forwards, and the roster's if there is one.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Why frames are not taken from the interface in a better way.
    reason: Option<String>,
}

/// Between the thread that forwards and the one that is asked.
#[derive(Debug)]
struct Shared {
    /// Gets the other thread's attention.
    bell: Arc<Doorbell>,
    stopping: AtomicBool,
    reported: Mutex<Reported>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Reported {
    report: Report,
    /// Times it was asked for, and up to which of them it was answered.
    asked: u64,
    answered: u64,
}

impl Shared {
    /// A panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread says now, or said last if it does not come to that.
    fn ask(&self) -> Report {
        let mut reported = self.lock();
        reported.asked += 1;
        let number = reported.asked;
        self.bell.ring();
        let waited = self
            .answered
            .wait_timeout_while(reported, PATIENCE, |reported| reported.answered < number);
        let (reported, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reported.report.clone()
    }

    fn answer(&self, report: impl FnOnce() -> Report) {
        let mut reported = self.lock();
        if reported.answered != reported.asked {
            reported.report = report();
            reported.answered = reported.asked;
            self.answered.notify_all();
        }
    }
}

impl UplinkHost {
    /// For [`Engine::start`](crate::engine::Engine::start): forwards what `config` says.
    ///
    /// # Errors
    ///
    /// If an end cannot be made: the interface's name or the port is taken, a right is
    /// missing, or the system refuses memory, descriptors or a thread.
    pub fn host(
        config: &UplinkConfig,
        place: &Place,
        settings: &NodeSettings,
    ) -> Result<Arc<dyn Host>, HostError> {
        let bell = Arc::new(Doorbell::new()?);
        let exchange = Arc::new(Exchange::new(&bell));
        let joined = Joined::make(config, place, settings, &exchange)?;
        let shared = Arc::new(Shared {
            bell,
            stopping: AtomicBool::new(false),
            reported: Mutex::default(),
            answered: Condvar::new(),
        });
        let mut reason = None;
        let thread = match joined {
            Joined::FabricWithHosts(bridge) => start(bridge, &shared),
            Joined::FabricWithXdp(bridge) => start(bridge, &shared),
            Joined::FabricWithPacket(bridge, why) => {
                reason = why;
                start(bridge, &shared)
            }
            Joined::FabricWithSegment(bridge) => start(bridge, &shared),
            Joined::KernelWithFabric(bridge) => start(bridge, &shared),
            Joined::KernelWithHosts(bridge) => start(bridge, &shared),
            Joined::KernelWithSegment(bridge) => start(bridge, &shared),
        };
        let host = UplinkHost {
            threads: Mutex::new(vec![thread?]),
            shared,
            exchange,
            reason,
        };
        if config.leads_to_others() {
            let leads_from_fabric = config.tap.is_none();
            let roster = Roster::start(&host.exchange, place, leads_from_fabric, settings.mtu)?;
            host.threads().push(roster);
        }
        Ok(Arc::new(host))
    }
}

impl UplinkHost {
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start<A: End, B: End>(bridge: Box<Bridge<A, B>>, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("toehold-forward".into());
    thread.spawn(move || forward(*bridge, &shared))
}

fn forward<A: End, B: End>(mut bridge: Bridge<A, B>, shared: &Shared) {
    loop {
        bridge.drive(shared.bell.as_fd());
        // What is asked after this rings again.
        shared.bell.clear();
        shared.answer(|| Report::of(&bridge));
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
    }
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
        let report = self.shared.ask();
        StackStatus {
            peers: report.members,
            remotes: report.remotes,
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
        self.shared.ask().counters
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

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        self.exchange.close();
        for thread in std::mem::take(&mut *self.threads()) {
            // If it panicked, that was told.
            let _ = thread.join();
        }
    }
}

impl Drop for UplinkHost {
    fn drop(&mut self) {
        self.stop();
    }
}
