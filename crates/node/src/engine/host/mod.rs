//! The node as its engine process has it: memory that other processes attach to.

mod connections;
mod direct;
mod ends;
mod guard;
mod life;
mod look;
mod recording;
mod relay;
mod vitals;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;
use toehold_link::mq::PeerDescriptors;
use toehold_shm::Doorbell;

use self::ends::Ends;
use self::life::{Burial, Life, give_up};
use self::recording::Recording;
use self::relay::{Forward, Messenger};
use self::vitals::{Finding, PERIOD, Vitals};
use super::HostError;
use crate::callers::Forwarded;
use crate::config::NodeConfig;
use crate::control::{
    Attachment, CaptureRequest, CaptureSummary, Client, Counter, Host, Refusal, SocketStatus, StackStatus,
};
use crate::direct::BellsOf;
use crate::error::NodeError;
use crate::fabric::Place;
use crate::kernel::Device;
use crate::local::no_descriptors;
use crate::placement::Placement;
use crate::processes::Processes;
use crate::quota;
use crate::settings::NodeSettings;
use crate::why::Reason;

/// The number of the engine among the processes of its node.
const ENGINE: u16 = toehold_shm::Lease::ENGINE;

/// Most processes of a node at once.
const MAX_PROCESSES: usize = 1 << 12;

/// How long the control thread waits for a capture's file, which is most often complete by then.
/// The client that asked asks again.
const A_MOMENT: Duration = Duration::from_millis(5);

/// A node with a stack, whose memory programs attach to.
pub struct StackHost {
    config: NodeConfig,
    state: Mutex<State>,
    /// The descriptor that is readable when a holder is gone.
    events: OwnedFd,
}

struct State {
    /// The present life; `None` if the node has ended, or could not begin anew.
    life: Option<Life>,
    ended: bool,
    /// How many lives were lost.
    resets: u64,
    /// How often the stack was mended.
    mends: u64,
    processes: BTreeMap<u16, Process>,
    /// The node's processes, as the threads of a life see them.
    known: Arc<Processes>,
    /// The process whose quota was looked at last.
    looked_at: u16,
    ends: Ends,
    /// The channel by which the threads of a life say that they have ended.
    alarm: Sender<()>,
    placement: Placement,
    recording: Option<Recording>,
    /// Recordings whose files were not complete when the client that had asked for them left.
    left: Vec<Recording>,
    /// The status that was seen last, for when the stack cannot be looked at.
    last: StackStatus,
}

/// A process that has attached.
#[derive(Debug, Clone, Copy)]
struct Process {
    /// The life to which the process is attached.
    life: u64,
    /// The system's number of the process.
    pid: u32,
}

impl StackHost {
    /// Makes the host of a node, for [`super::Engine::start`].
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory, files,
    /// descriptors or threads.
    pub fn host(place: &Place, settings: &NodeSettings) -> Result<Arc<dyn Host>, HostError> {
        let (alarm, alarms) = mpsc::channel();
        let kernel = Device::make(place, settings)?;
        let config = node_config(place, settings).beside(kernel);
        let host = Arc::new(StackHost::begin(config, alarm)?);
        let watched = Arc::downgrade(&host);
        let thread = std::thread::Builder::new().name("toehold-vitals".into());
        thread.spawn(move || watch(&watched, &alarms))?;
        Ok(host)
    }

    fn begin(config: NodeConfig, alarm: Sender<()>) -> Result<StackHost, NodeError> {
        let known = Arc::default();
        let life = Life::begin(&config, &alarm, &known)?;
        let placement = config.placement;
        let ends = Ends::new().map_err(no_descriptors)?;
        let events = ends.events().try_clone_to_owned();
        Ok(StackHost {
            config,
            events: events.map_err(NodeError::Descriptors)?,
            state: Mutex::new(State {
                life: Some(life),
                ended: false,
                resets: 0,
                mends: 0,
                processes: BTreeMap::new(),
                known,
                looked_at: 0,
                ends,
                alarm,
                placement,
                recording: None,
                left: Vec::new(),
                last: StackStatus::default(),
            }),
        })
    }

    /// Looks whether the life is lost, and begins another one if it is.
    fn examine(&self, vitals: &mut Vitals) {
        self.look_at_next();
        let mut state = self.lock();
        let current = state.resets;
        let processes = state.processes.iter();
        let processes = processes.filter(|(_, process)| process.life == current);
        let pids = processes
            .map(|(number, process)| (*number, process.pid))
            .collect();
        match state.life.as_ref().map(|life| vitals.examine(life, &pids)) {
            None | Some(Finding::Well) => {}
            Some(Finding::Lost) => state.reset(&self.config),
            Some(Finding::Stuck) => give_up("a thread does not come back"),
        }
    }

    /// Looks whether the processor time of one of the processes has become limited, or is not any more:
    /// of another one each time.
    fn look_at_next(&self) {
        let next = {
            let mut state = self.lock();
            let next = state.known.after(state.looked_at);
            state.looked_at = next.map_or(0, |(process, _)| process);
            next
        };
        if let Some((process, pid)) = next {
            let limited = is_limited(pid);
            let state = self.lock();
            if let Some(life) = state
                .life
                .as_ref()
                .filter(|_| state.known.pid(process) == Some(pid))
            {
                life.set_limited(process, limited);
            }
        }
    }

    /// Looks at the stack, if it can be looked at now. What it finds there may be
    /// nonsense that a program has written, and make it panic.
    fn look<R>(&self, look: impl FnOnce(&Life) -> Option<R>) -> Option<R> {
        let state = self.lock();
        let life = state.life().ok()?;
        // The lease is closed after a panic, and nothing of this life is used any more.
        catch_unwind(AssertUnwindSafe(|| look(life))).ok()?
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether groups limit the processor time of a process that do not limit the engine's.
fn is_limited(pid: u32) -> bool {
    let limiting = quota::limiting(pid);
    !limiting.is_empty() && !limiting.is_subset(&quota::limiting(std::process::id()))
}

/// Looks every now and then, and whenever a thread of a life has ended, how the life
/// is; until there is no host any more.
fn watch(host: &Weak<StackHost>, alarms: &Receiver<()>) {
    let mut vitals = Vitals::default();
    while alarms.recv_timeout(PERIOD) != Err(RecvTimeoutError::Disconnected) {
        let Some(host) = host.upgrade() else { return };
        // What a program has written to the node's memory may make it panic.
        if catch_unwind(AssertUnwindSafe(|| host.examine(&mut vitals))).is_err() {
            host.lock().reset(&host.config);
        }
    }
}

impl State {
    /// The lowest free number for a process.
    fn number(&self, life: &Life) -> Option<u16> {
        let last = ENGINE + MAX_PROCESSES as u16;
        let mut numbers = ENGINE + 1..=last;
        numbers.find(|number| !self.processes.contains_key(number) && !life.is_burying(*number))
    }

    /// Takes a process in, and says its number.
    fn admit(&mut self, client: &Client) -> Result<u16, Refusal> {
        let number = self.number(self.life()?);
        let number = number
            .ok_or_else(|| Refusal::because(Reason::NodeFull, "it has as many processes as it can have"))?;
        let joined = Process {
            life: self.resets,
            pid: client.pid,
        };
        self.processes.insert(number, joined);
        self.known.insert(number, client.pid);
        if let Some(life) = &self.life {
            life.set_limited(number, is_limited(client.pid));
        }
        Ok(number)
    }

    /// Lets go of all holders that no process has any more.
    fn let_all_go(&mut self) {
        loop {
            let gone = self.ends.gone();
            match &self.life {
                Some(life) if !gone.is_empty() => life.let_go(gone),
                _ => return,
            }
        }
    }

    /// Begins another life in place of one that is lost.
    fn reset(&mut self, config: &NodeConfig) {
        // It has to be out of the other one's way first.
        drop(self.life.take());
        self.ends.clear();
        self.resets += 1;
        let config = config.clone().placement(self.placement);
        // If there is nothing to begin with, a process that attaches is told so.
        self.life = Life::begin(&config, &self.alarm, &self.known).ok();
        if let (Some(recording), Some(life)) = (&self.recording, &self.life) {
            recording.go_on_with(life.players());
        }
    }

    /// Begins another life if this one is lost and no thread has noticed, or if there was nothing
    /// to begin with.
    fn revive(&mut self, config: &NodeConfig) {
        if !self.ended && self.life.as_ref().is_none_or(Life::is_over) {
            self.reset(config);
        }
    }

    /// The life that a process has attached to, if it is the present one.
    fn life_of(&self, process: u16) -> Result<&Life, Refusal> {
        match self.processes.get(&process) {
            Some(process) if process.life == self.resets => self.life(),
            _ => Err(Refusal::new("it has begun anew; attach again")),
        }
    }

    fn life(&self) -> Result<&Life, Refusal> {
        let life = self.life.as_ref();
        life.ok_or_else(|| Refusal::new("it has ended, or the system refuses it memory to begin anew"))
    }
}

impl Host for StackHost {
    fn attach(&self, client: Client) -> Result<Attachment, Refusal> {
        let mut state = self.lock();
        state.revive(&self.config);
        let offer = state.life()?.offer();
        let (description, descriptors) =
            offer.map_err(|error| Refusal::new(format!("it has no descriptors left: {error}")))?;
        let description = serde_json::to_value(&description)
            .map_err(|error| Refusal::new(format!("it cannot be described: {error}")))?;
        Ok(Attachment {
            process: state.admit(&client)?,
            description,
            descriptors,
        })
    }

    fn take_over(&self, client: Client, life: u64) -> Result<u16, Refusal> {
        let mut state = self.lock();
        state.revive(&self.config);
        match state.life()?.number() == life {
            true => state.admit(&client),
            false => Err(Refusal::new("it has begun anew; attach to it")),
        }
    }

    fn detached(&self, process: u16) {
        let mut state = self.lock();
        let left = state.processes.remove(&process);
        state.known.remove(process);
        let current = left.is_some_and(|left| left.life == state.resets);
        let burial = state
            .life
            .as_ref()
            .filter(|_| current)
            .map(|life| life.bury(process));
        match burial {
            Some(Burial::Lost) => state.reset(&self.config),
            Some(Burial::Mended) => state.mends += 1,
            Some(Burial::Quiet) | None => {}
        }
    }

    fn peer(&self, shard: u8, slot: u16, generation: u16) -> Option<Vec<OwnedFd>> {
        let descriptors = self.lock().life().ok()?.peer(shard, slot, generation);
        descriptors.map(PeerDescriptors::into_list)
    }

    fn bank(&self, process: u16, slot: u16, generation: u32) -> Result<Option<Vec<OwnedFd>>, Refusal> {
        let state = self.lock();
        Ok(state.life_of(process)?.bank(slot, generation))
    }

    fn bells(&self, process: u16, which: BellsOf) -> Result<Option<Vec<OwnedFd>>, Refusal> {
        let state = self.lock();
        let bells = state.life_of(process)?.bells(which);
        bells.map_err(|_| out_of_descriptors(rustix::io::Errno::MFILE))
    }

    fn ring(&self, process: u16, which: BellsOf, waiter: u16) -> Result<(), Refusal> {
        let state = self.lock();
        state.life_of(process)?.ring(which, waiter);
        Ok(())
    }

    fn holders(&self, process: u16, count: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal> {
        let mut state = self.lock();
        let life = state.life_of(process)?;
        let (capacity, freed) = (life.holders(), life.freed());
        state.ends.release(freed);
        let made = state.ends.make(count, capacity).map_err(out_of_descriptors)?;
        let life = state.life_of(process)?;
        made.iter()
            .for_each(|(number, other)| life.name(*number, other.as_fd()));
        Ok(made)
    }

    fn identify(&self, process: u16, descriptor: OwnedFd) -> Result<u32, Refusal> {
        let state = self.lock();
        state.life_of(process)?;
        let number = state.ends.identify(descriptor.as_fd());
        number.ok_or_else(no_socket)
    }

    fn inherit(&self, process: u16, descriptor: OwnedFd) -> Result<Option<(u32, OwnedFd)>, Refusal> {
        let mut state = self.lock();
        state.life_of(process)?;
        let number = state.ends.identify(descriptor.as_fd());
        let number = number.ok_or_else(no_socket)?;
        drop(descriptor);
        let inherited = state.ends.inherit(number).map_err(out_of_descriptors)?;
        if let Some((number, other)) = &inherited {
            state.life_of(process)?.name(*number, other.as_fd());
        }
        Ok(inherited)
    }

    fn take_port(
        &self,
        process: u16,
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<Result<u16, Errno>, Refusal> {
        let state = self.lock();
        let life = state.life_of(process)?;
        // A port for a holder that no process has would never be given back.
        if !state.ends.has(holder) {
            return Err(no_socket());
        }
        Ok(life.take_port(holder, address, only_ipv6))
    }

    fn release_port(&self, process: u16, holder: u32) -> Result<(), Refusal> {
        self.lock().life_of(process)?.release_port(holder);
        Ok(())
    }

    fn relay(&self, process: u16, shard: u8, holder: u32) -> Result<(), Refusal> {
        let mut state = self.lock();
        state.life_of(process)?;
        // No process can use a holder that no process has.
        if !state.ends.has(holder) {
            return Err(no_socket());
        }
        let Some(end) = state.ends.lend(holder).map_err(out_of_descriptors)? else {
            return Ok(());
        };
        let begun = state.life()?.relay(shard, end);
        begun.map_err(|error| Refusal::new(format!("it cannot carry the connection's bytes: {error}")))
    }

    fn own(&self, process: u16, shard: u8, holder: u32, messenger: [OwnedFd; 2]) -> Result<(), Refusal> {
        let state = self.lock();
        let life = state.life_of(process)?;
        if !state.ends.has(holder) {
            return Err(no_socket());
        }
        let begun = life.own(shard, holder, Messenger::new(messenger));
        begun.map_err(|error| Refusal::new(format!("it cannot signal the connection's owner: {error}")))
    }

    fn forward(
        &self,
        process: u16,
        holder: u32,
        [listener, callers]: [OwnedFd; 2],
        which: Forwarded,
    ) -> Result<(), Refusal> {
        let state = self.lock();
        let life = state.life_of(process)?;
        if !state.ends.has(holder) {
            return Err(no_socket());
        }
        let forward = Forward::new(&listener, callers, which).map_err(std::io::Error::from);
        let begun = forward.and_then(|forward| life.forward(holder, forward));
        begun.map_err(|error| Refusal::new(format!("it cannot reach the kernel's listener: {error}")))
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn handle_events(&self) {
        let mut state = self.lock();
        let gone = state.ends.gone();
        if let Some(life) = &state.life {
            life.let_go(gone);
        }
    }

    fn closings(&self) -> Result<OwnedFd, Refusal> {
        let state = self.lock();
        let copy = rustix::io::fcntl_dupfd_cloexec(state.ends.closings(), 0);
        copy.map_err(out_of_descriptors)
    }

    fn await_closing(&self, bell: Doorbell) {
        let mut state = self.lock();
        state.let_all_go();
        match &state.life {
            Some(life) => life.await_closing(bell),
            None => bell.ring(),
        }
    }

    fn status(&self) -> StackStatus {
        let seen = self.look(|life| {
            let status = look::status(&life.shards)?;
            Some(StackStatus {
                peer_memory: life.peer_memory(),
                ..status
            })
        });
        let mut state = self.lock();
        if let Some(seen) = seen {
            state.last = seen;
        }
        StackStatus {
            placement: state.placement,
            shards: self.config.shards.into(),
            capturing: state.recording.is_some(),
            kernel: self.config.kernel.as_ref().map(|kernel| kernel.status()),
            ..state.last.clone()
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        let sockets = self.look(Life::sockets);
        sockets.unwrap_or_default()
    }

    fn counters(&self) -> Vec<Counter> {
        let counters = self.look(|life| {
            let mut counters = look::counters(&life.shards)?;
            counters.extend(life.membership_counters());
            counters.extend(life.direct_counters());
            Some(counters)
        });
        let mut counters = counters.unwrap_or_default();
        let state = self.lock();
        let [resets, mends] = [
            (
                "node_resets",
                state.resets,
                "Times the node began anew: a program died and left the stack beyond repair, or wrote nonsense to its memory.",
            ),
            (
                "node_mends",
                state.mends,
                "Times the stack was mended after a program that died while it ran it.",
            ),
        ]
        .map(|(name, value, doc)| Counter {
            name: name.to_owned(),
            value,
            doc: doc.to_owned(),
            shard: None,
        });
        counters.extend([resets, mends]);
        counters
    }

    fn set_placement(&self, placement: Placement) -> Result<(), Refusal> {
        let mut state = self.lock();
        state.placement = placement;
        state.life()?.set_placement(placement);
        Ok(())
    }

    fn start_capture(&self, file: File, request: CaptureRequest) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.recording.is_some() {
            return Err(Refusal::new(
                "its frames are being recorded already; end that capture first",
            ));
        }
        let players = state.life()?.players();
        let recording = Recording::start(players, file, request, &self.config)
            .map_err(|error| Refusal::new(format!("it cannot start a thread: {error}")))?;
        state.recording = Some(recording);
        Ok(())
    }

    fn stop_capture(&self) -> CaptureSummary {
        // The file may be slow, so the lock is not held while this waits for it.
        let Some(mut recording) = self.lock().recording.take() else {
            return CaptureSummary {
                complete: true,
                ..CaptureSummary::default()
            };
        };
        let summary = recording.end(A_MOMENT);
        if !summary.complete {
            self.lock().recording = Some(recording);
        }
        summary
    }

    fn leave_capture(&self) {
        let mut state = self.lock();
        state.left.retain_mut(|left| !left.end(Duration::ZERO).complete);
        if let Some(mut recording) = state.recording.take()
            && !recording.end(Duration::ZERO).complete
        {
            state.left.push(recording);
        }
    }

    fn begin_anew(&self) {
        let mut state = self.lock();
        if !state.ended {
            state.reset(&self.config);
        }
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.ended = true;
        if let Some(life) = &state.life {
            life.end_relays();
        }
        // What dead programs had is closed as well, and its bytes are delivered.
        state.let_all_go();
        let life = state.life.take();
        drop(state);
        if let Some(mut life) = life {
            life.end();
        }
        if let Some(kernel) = &self.config.kernel {
            kernel.remove();
        }
        self.leave_capture();
        let left = std::mem::take(&mut self.lock().left);
        left.into_iter().for_each(Recording::complete);
    }
}

fn no_socket() -> Refusal {
    Refusal::new("the descriptor is none of its sockets")
}

fn out_of_descriptors(errno: Errno) -> Refusal {
    Refusal::new(format!("it has no descriptors left: {errno} (see `ulimit -n`)"))
}

fn node_config(place: &Place, settings: &NodeSettings) -> NodeConfig {
    let record = place.record();
    NodeConfig::new(place.fabric().path(), record.name.to_string())
        .mac(record.mac.0)
        .ipv4(record.ipv4.addr(), record.ipv4.prefix_len())
        .ipv6(record.ipv6.addr(), record.ipv6.prefix_len())
        .mtu(settings.mtu)
        .ring_capacity(settings.ring as usize)
        .max_peers(settings.peers.into())
        .quotas(settings.quotas())
        .zero_copy(settings.zero_copy)
        .direct(settings.direct)
        .connections(settings.connections)
        .payload_memory(settings.payload_memory as usize)
        .demux(settings.demux)
        .demux_counters(settings.demux_counters)
        .placement(settings.placement)
        .shards(settings.shards as u8)
        .drain(settings.drain)
}
