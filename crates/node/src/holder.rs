//! The holders by which this process has its connections and listeners.
//!
//! A connection of an attached process is held by a descriptor. It is one end of a pair of Unix
//! sockets of which the node's engine has the other end. The engine closes the connection when no
//! process has a copy of the descriptor any more, for whatever reason. The engine makes the pairs,
//! some at a time, and they are used again and again. So a process that opens and closes
//! connections that it does not share asks the system for nothing.
//!
//! A process cannot ask the system whether a descriptor is shared. It may be if this process has
//! forked since it got the descriptor, or has given it away; then only the engine closes the
//! connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use toehold_shm::Process;

use crate::control::{Connection, ControlError, MAX_HOLDERS};
use crate::descriptors::keep;
use crate::wait::Gone;

/// Holders that are asked for at first; twice as many every time, up to what a
/// request may be for.
const FIRST: u16 = 4;

/// Holders that wait to be used again, at most. More are closed.
const SPARE: usize = 64;

/// A descriptor that keeps a connection or listener open. Dropping it, without having given it
/// back, lets go of the connection or listener on behalf of this process.
#[derive(Debug)]
pub struct Holder(Option<Held>);

#[derive(Debug)]
struct Held {
    number: u32,
    /// The descriptor, unless the program has it.
    socket: Option<OwnedFd>,
    origin: Origin,
    /// Whether a copy of the descriptor may be anywhere.
    given_away: AtomicBool,
    /// The program has set something of the descriptor, such as an owner, so it is not used again
    /// for another socket.
    is_marked: AtomicBool,
    /// Whether the engine has taken a port from the kernel for the holder's socket.
    has_port: bool,
    /// How often the names of all descriptors had been looked at when it began to stand for something.
    looks: AtomicU64,
}

/// The process that got a holder, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    process: u32,
    forks: u32,
}

impl Origin {
    #[inline]
    fn now(process: Process) -> Origin {
        Origin {
            process: process.number(),
            forks: process.forks(),
        }
    }
}

/// The reason why there is no holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// The node is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// A program of the kernel's beside the node has the port, or the kernel refuses it.
    #[error("the kernel beside the node does not leave the port to it: {0}")]
    Port(Errno),
    /// This process or the engine has no descriptors left, or no memory.
    #[error("cannot make a descriptor for the socket: {0} (see `ulimit -n`)")]
    System(Errno),
    /// The descriptor is no connection or listener of this node.
    #[error("the descriptor is no connection or listener of this node")]
    Foreign,
    /// Sockets of a node whose engine is this process have no descriptors.
    #[error("sockets of a node that only this process uses have no descriptors; attach to one of an engine")]
    Private,
}

impl HolderError {
    pub(crate) fn of(error: ControlError, refused: HolderError) -> HolderError {
        match error {
            ControlError::System { source, .. } => HolderError::System(source),
            ControlError::Refused { .. } => refused,
            ControlError::TimedOut { .. } => HolderError::System(Errno::TIMEDOUT),
            _ => HolderError::Gone(Gone),
        }
    }
}

impl Holder {
    /// The holder of a socket of a node that only this process uses.
    pub(crate) const PRIVATE: Holder = Holder(None);

    /// The holder's number, unless the node is only this process's.
    #[inline]
    pub(crate) fn number(&self) -> Option<u32> {
        self.0.as_ref().map(|held| held.number)
    }

    /// Notes that the holder begins to stand for something. `looks` is how often the names of all
    /// descriptors had been looked at then.
    #[inline]
    pub(crate) fn begin(&self, looks: u64) {
        if let Some(held) = &self.0 {
            held.looks.store(looks, Relaxed);
        }
    }

    /// Notes that the holder stands for nothing now. `looks` is how often the names of all
    /// descriptors were looked at by now. The next socket that it stands for is to have another
    /// name than the last.
    #[inline]
    pub(crate) fn end(&self, looks: u64) {
        if let Some(held) = &self.0
            && held.looks.load(Relaxed) != looks
        {
            held.is_marked.store(true, Relaxed);
        }
    }

    /// The descriptor. The caller may make copies, so from now on the engine closes the connection
    /// or listener, once no process has one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, HolderError> {
        let held = self.0.as_ref().ok_or(HolderError::Private)?;
        held.given_away.store(true, Relaxed);
        held.socket.as_ref().map(AsFd::as_fd).ok_or(HolderError::Private)
    }

    /// The descriptor, for a program that is seen to make and close copies of it, and gives
    /// the last one back by [`Holder::put_back`]. Until then the holder has none itself.
    pub fn lend(&mut self) -> Option<OwnedFd> {
        self.0.as_mut()?.socket.take()
    }

    /// Ends [`Holder::lend`]. `shared`: another process may have copies that no call reported.
    pub fn put_back(&mut self, socket: OwnedFd, shared: bool) {
        if let Some(held) = &mut self.0 {
            held.socket = Some(keep(socket));
            held.given_away.fetch_or(shared, Relaxed);
        }
    }

    /// Notes that the program has set an owner, flags or a mode of the descriptor. The next socket
    /// that it stood for would have them as well, so it is not used again.
    pub fn mark(&self) {
        if let Some(held) = &self.0 {
            held.is_marked.store(true, Relaxed);
        }
    }

    /// The descriptor, for good: its connection or listener stays open.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn into_descriptor(self) -> Result<OwnedFd, HolderError> {
        let held = self.0.ok_or(HolderError::Private)?;
        held.socket.ok_or(HolderError::Private)
    }
}

/// The holders of one process that stand for nothing at present.
#[derive(Debug)]
pub(crate) struct Pool {
    process: Process,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spare: Vec<Held>,
    /// How many to ask for next.
    batch: u16,
}

impl Pool {
    pub(crate) fn new(process: Process) -> Pool {
        let spare = Vec::new();
        Pool {
            process,
            state: Mutex::new(State { spare, batch: FIRST }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A holder for something new. Asks the engine if none is spare.
    pub(crate) fn take(&self, connection: &Mutex<Connection>) -> Result<Holder, HolderError> {
        let mut state = self.lock();
        // Those that a child may have copies of are of no use.
        while let Some(held) = state.spare.pop() {
            if self.is_unshared(&held) {
                return Ok(Holder(Some(held)));
            }
            state.batch = FIRST;
        }
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.ask(&mut connection, state.batch);
        state.spare = match asked {
            // There may be room for one.
            Err(HolderError::System(_)) if state.batch > 1 => {
                state.batch = 1;
                self.ask(&mut connection, 1)?
            }
            asked => asked?,
        };
        state.batch = state.batch.saturating_mul(2).min(MAX_HOLDERS);
        let held = state.spare.pop();
        held.map(|held| Holder(Some(held)))
            .ok_or(HolderError::System(Errno::NFILE))
    }

    fn ask(&self, connection: &mut Connection, count: u16) -> Result<Vec<Held>, HolderError> {
        // Before they are there: a fork in between makes copies.
        let origin = Origin::now(self.process);
        let given = connection.holders(count);
        let given = given.map_err(|error| HolderError::of(error, HolderError::System(Errno::NFILE)))?;
        let held = given.into_iter().map(|(number, socket)| Held {
            number,
            socket: Some(socket),
            origin,
            given_away: AtomicBool::new(false),
            is_marked: AtomicBool::new(false),
            has_port: false,
            looks: AtomicU64::new(0),
        });
        Ok(held.collect())
    }

    /// Takes a port from the kernel beside the node, for the listener that the holder will
    /// stand for: which one, 0 being any.
    pub(crate) fn take_port(
        &self,
        connection: &Mutex<Connection>,
        holder: &mut Holder,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, HolderError> {
        let held = holder.0.as_mut().ok_or(HolderError::Private)?;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        // An answer that is late may say yes.
        held.has_port = true;
        match connection.take_port(held.number, address, only_ipv6) {
            Err(ControlError::System { source, .. }) => Err(HolderError::Port(source)),
            taken => taken.map_err(|error| HolderError::of(error, HolderError::Gone(Gone))),
        }
    }

    /// Keeps a holder that stands for nothing any more, or closes it.
    pub(crate) fn give_back(&self, connection: &Mutex<Connection>, holder: Holder) {
        let usable =
            |held: &Held| held.socket.is_some() && self.is_unshared(held) && !held.is_marked.load(Relaxed);
        let Some(mut held) = holder.0.filter(usable) else {
            return;
        };
        if held.has_port {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // If it is not told, the engine gives the port back when the holder is closed.
            if connection.release_port(held.number).is_err() {
                return;
            }
            held.has_port = false;
        }
        let mut state = self.lock();
        if state.spare.len() < SPARE {
            state.spare.push(held);
        }
    }

    /// Whether no process but this one can have the holder.
    #[inline]
    pub(crate) fn is_exclusive(&self, holder: &Holder) -> bool {
        holder.0.as_ref().is_none_or(|held| self.is_unshared(held))
    }

    #[inline]
    fn is_unshared(&self, held: &Held) -> bool {
        held.origin == Origin::now(self.process) && !held.given_away.load(Relaxed)
    }

    /// The holder that a descriptor is, which came from anywhere.
    pub(crate) fn identify(
        &self,
        connection: &Mutex<Connection>,
        socket: OwnedFd,
    ) -> Result<Holder, HolderError> {
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let number = connection.identify(socket.as_fd());
        let number = number.map_err(|error| HolderError::of(error, HolderError::Foreign))?;
        Ok(Holder(Some(Held {
            number,
            socket: Some(socket),
            origin: Origin::now(self.process),
            given_away: AtomicBool::new(true),
            is_marked: AtomicBool::new(true),
            has_port: false,
            looks: AtomicU64::new(0),
        })))
    }

    /// Lets go of a holder that other processes may have. If none has, it comes back as this
    /// process's alone.
    pub(crate) fn inherit(&self, connection: &Mutex<Connection>, holder: Holder) -> Option<Holder> {
        let held = holder.0?;
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is there: a fork in between makes a copy.
        let origin = Origin::now(self.process);
        // An engine that does not answer, or has no descriptors left, closes what no process has.
        let (number, socket) = connection.inherit(held.socket?).ok()??;
        Some(Holder(Some(Held {
            number,
            socket: Some(socket),
            origin,
            given_away: AtomicBool::new(false),
            // It is not known what other processes have set of it.
            is_marked: AtomicBool::new(true),
            has_port: false,
            looks: AtomicU64::new(0),
        })))
    }

    /// Closes a forked child's copies of what was spare in its parent, unless a thread
    /// of the parent was just about to change that.
    pub(crate) fn abandon(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.spare.clear();
        }
    }
}
