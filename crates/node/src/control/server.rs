//! The server: one thread, one epoll set, which waits for no client. What it does when it is asked
//! is in `requests`.

use std::collections::HashMap;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use rustix::process::geteuid;
use toehold_link::credentials::PeerCredentials;

use super::door::{Porch, Visitor, has_hung_up, next_visitor};
use super::host::{Host, Refusal};
use super::keepers::{KeeperEnd, Keepers, Lifetime};
use super::message::{Answer, MAX_PACKET, Request};
use super::packet::{self, Packet};
use super::session::{Limits, Session, outgoing};
use crate::fabric::{Access, Fabric, NodeRecord, Place, Right, Rights, name_of_user};
use crate::seen::{number_of, process_of};
use crate::why::{Reason, Records, Report};

/// Events taken in one go; others are found the next time.
const MAX_EVENTS: usize = 64;

/// Requests of one client that are answered before others have their turn.
const TURN: usize = 8;

/// How long the server admits no client after the system had no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// Panics that a server survives. After more of them its thread ends, and with it the node.
pub(super) const MAX_PANICS: u32 = 8;

/// The source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Listener,
    /// A client is at the door.
    Door,
    /// A request to end the server.
    Stop,
    Session(u64),
    /// The process of a session.
    Process(u64),
    /// A process that keeps the node.
    Keeper(u64),
    /// An event of the host's.
    Host,
}

impl Source {
    pub(super) fn token(self) -> EventData {
        EventData::new_u64(match self {
            Source::Listener => 0,
            Source::Stop => 1,
            Source::Host => 2,
            Source::Door => 6,
            Source::Session(id) => 3 | id << 3,
            Source::Process(id) => 4 | id << 3,
            Source::Keeper(id) => 5 | id << 3,
        })
    }

    fn from_token(token: u64) -> Source {
        match token & 7 {
            0 => Source::Listener,
            1 => Source::Stop,
            2 => Source::Host,
            3 => Source::Session(token >> 3),
            4 => Source::Process(token >> 3),
            6 => Source::Door,
            _ => Source::Keeper(token >> 3),
        }
    }
}

/// The way by which a client has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Listener,
    Door,
}

/// Serves a [`Host`] to the clients of a control socket.
pub(crate) struct Server {
    pub(super) host: Arc<dyn Host>,
    pub(super) record: NodeRecord,
    limits: Limits,
    pub(super) began: Instant,
    pub(super) epoll: OwnedFd,
    listener: OwnedFd,
    pub(super) porch: Porch,
    _stop: OwnedFd,
    /// The sessions, by numbers that are never used again, so that a late event finds no session.
    pub(super) sessions: HashMap<u64, Session>,
    pub(super) keepers: Keepers,
    /// Programs that are not on the node.
    pub(super) records: Records,
    access: Access,
    /// The fabric, for clients that cannot look themselves.
    pub(super) fabric: Option<Fabric>,
    next_id: u64,
    /// The end of a pause in which no client is let in.
    paused: Option<Instant>,
    pub(super) stopping: bool,
    panics: u32,
    buffer: Vec<u8>,
}

impl Server {
    /// A server for what comes in at `listener`. It ends when `stop` becomes
    /// readable or hangs up, when a client asks for it, or with the node's lifetime.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub(crate) fn new(
        listener: OwnedFd,
        stop: OwnedFd,
        record: NodeRecord,
        host: Arc<dyn Host>,
    ) -> Result<Server, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, Source::Listener.token(), EventFlags::IN)?;
        let porch = Porch::new()?;
        epoll::add(&epoll, &porch.inside, Source::Door.token(), EventFlags::IN)?;
        epoll::add(&epoll, &stop, Source::Stop.token(), EventFlags::IN)?;
        if let Some(events) = host.events() {
            epoll::add(&epoll, events, Source::Host.token(), EventFlags::IN)?;
        }
        Ok(Server {
            host,
            record,
            limits: Limits::default(),
            began: Instant::now(),
            epoll,
            listener,
            porch,
            _stop: stop,
            sessions: HashMap::new(),
            keepers: Keepers::default(),
            records: Records::default(),
            access: Access::default(),
            fabric: None,
            next_id: 0,
            paused: None,
            stopping: false,
            panics: 0,
            buffer: vec![0; MAX_PACKET],
        })
    }

    /// Sets the lifetime of the node.
    pub(crate) fn lifetime(mut self, lifetime: Lifetime) -> Server {
        self.keepers = Keepers::new(lifetime, self.limits.grace);
        self
    }

    /// Lets the process keep the node that has started it, from the start. It does so by a
    /// descriptor, and for as long as it lives, as [`Request::Keep`] and [`Request::KeepForLife`]
    /// do.
    ///
    /// # Errors
    ///
    /// If the descriptor is of another kind.
    ///
    /// [`Request::Keep`]: super::message::Request::Keep
    /// [`Request::KeepForLife`]: super::message::Request::KeepForLife
    pub(crate) fn kept_by(mut self, end: KeeperEnd) -> Result<Server, Errno> {
        let credentials = PeerCredentials::of(end.descriptor.as_fd())?;
        if let Ok(Some(process)) = process_of(end.descriptor.as_fd(), &credentials) {
            let pid = number_of(process.as_fd()).unwrap_or(0);
            self.keepers.keep_for(&self.epoll, process, pid);
        }
        self.keepers.keep(&self.epoll, end.descriptor, end.inode)?;
        Ok(self)
    }

    /// Sets the node's place: the users that it lets in, and its fabric.
    pub(crate) fn at(mut self, place: &Place) -> Server {
        self.access = place.access().clone();
        self.fabric = place.fabric().try_clone().ok();
        self
    }

    /// Sets the limits of sessions.
    #[cfg(test)]
    pub(super) fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Serves until it is to end. Clients are hung up on when it is dropped.
    pub(crate) fn run(&mut self) {
        while !self.stopping {
            let mut buffer = [const { MaybeUninit::uninit() }; MAX_EVENTS];
            let timeout = self.timeout();
            let events: Vec<Source> = match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
                Ok((events, _)) => events
                    .iter()
                    .map(|event| Source::from_token(event.data.u64()))
                    .collect(),
                Err(_) => Vec::new(),
            };
            for event in events {
                self.contain(Some(event), |server| server.handle(event));
            }
            self.contain(None, Server::expire);
            self.stopping |= self.is_unused();
        }
        if self.sessions.values().any(|session| session.captures) {
            self.host.leave_capture();
        }
    }

    fn handle(&mut self, event: Source) {
        match event {
            Source::Listener => self.accept(),
            Source::Door => self.meet_at_door(),
            Source::Stop => self.stopping = true,
            Source::Session(id) => self.serve(id),
            Source::Process(id) => self.hang_up(id),
            Source::Keeper(id) => self.meet_keeper(id),
            Source::Host => self.host.handle_events(),
        }
    }

    /// Calls `act`. If that panics, the node begins another life, as it does when another thread of
    /// the engine panics. The client that asked is hung up on.
    fn contain(&mut self, event: Option<Source>, act: impl FnOnce(&mut Server)) {
        // Each session is whole at any moment: one is changed only when its answer is there.
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(self))) else {
            return;
        };
        self.panics += 1;
        if self.panics > MAX_PANICS {
            resume_unwind(panic);
        }
        // First, so that the client's end is that of a process of the former life.
        self.host.begin_anew();
        if let Some(Source::Session(id) | Source::Process(id)) = event {
            self.hang_up(id);
        }
    }

    /// Time until something is due; none while nothing is.
    fn timeout(&self) -> Option<Timespec> {
        let deadlines = self.sessions.values();
        let deadlines = deadlines.filter_map(|session| session.deadline(self.limits));
        let next = deadlines
            .chain(self.paused)
            .chain(self.keepers.deadline())
            .min()?;
        // Rounded up, so that it does not wake just before it is due, again and again.
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Some(Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let due = |session: &Session| {
            session
                .deadline(self.limits)
                .is_some_and(|deadline| deadline <= now)
        };
        let late = self.sessions.iter().filter(|(_, session)| due(session));
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.hang_up(id);
        }
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            self.watch_listener(EventFlags::IN);
        }
    }

    /// Whether the node is to end since no process uses it any more.
    fn is_unused(&self) -> bool {
        let attached = |session: &Session| session.process.is_some();
        self.keepers.are_gone() && !self.sessions.values().any(attached)
    }

    fn watch_listener(&self, flags: EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.listener, Source::Listener.token(), flags);
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) => self.admit(socket, Way::Listener),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => {}
            // Out of descriptors or memory. The listener stays readable: without
            // a pause this thread would spin.
            Err(_) => {
                self.paused = Some(Instant::now() + PAUSE);
                self.watch_listener(EventFlags::empty());
            }
        }
    }

    /// Serves clients that have come to the door. A client that cannot be let in finds its socket
    /// closed.
    fn meet_at_door(&mut self) {
        for _ in 0..TURN {
            match next_visitor(self.porch.inside.as_fd()) {
                Ok(visitor) => self.welcome(visitor),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn welcome(&mut self, visitor: Visitor) {
        match visitor {
            Visitor::Client(socket) => self.admit(socket, Way::Door),
            Visitor::Listener(bell) => self.host.await_closing(bell),
            Visitor::Report(report) => self.take_report(report),
            Visitor::Nobody | Visitor::Gone => {}
        }
    }

    /// Serves clients that have come by what keeps the node, or finds that no process has that any
    /// more.
    fn meet_keeper(&mut self, id: u64) {
        for _ in 0..TURN {
            let Some(door) = self.keepers.door(id) else {
                // A process that has ended.
                return self.keepers.gone(&self.epoll, id);
            };
            match next_visitor(door) {
                // A message of no bytes looks like that.
                Ok(Visitor::Gone) if !has_hung_up(door) => {}
                Ok(Visitor::Gone) => return self.keepers.gone(&self.epoll, id),
                Ok(visitor) => self.welcome(visitor),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.keepers.gone(&self.epoll, id),
            }
        }
    }

    /// Keeps what is told of a program that is not on the node, and says the first of it in the log.
    fn take_report(&mut self, report: Report) {
        let Report { command, pid, reason } = report.clone();
        if self.records.add(report) {
            let (node, word) = (self.record.name, reason.word());
            // Without a log, it goes nowhere; the log may be full.
            let _ = writeln!(
                std::io::stderr(),
                "toehold: {command}[{pid}] is not on node {node}: it {reason} ({word})"
            );
        }
    }

    fn admit(&mut self, socket: OwnedFd, way: Way) {
        let rights = match way {
            Way::Listener => self.access.rights_of(socket.as_fd()),
            Way::Door => Rights::BY_DOOR,
        };
        let Ok(mut session) = Session::new(socket, rights) else {
            return;
        };
        let refusal = if rights == Rights::default() {
            self.not_let_in(session.uid, "other users")
        } else if self.sessions.len() >= self.limits.sessions {
            Refusal::because(
                Reason::NodeFull,
                "the node has too many clients; try again when some have ended",
            )
        } else {
            self.next_id += 1;
            let id = self.next_id;
            if self.watch(session.socket(), Source::Session(id)).is_ok() {
                self.sessions.insert(id, session);
            }
            return;
        };
        let answer = Answer::Refused(refusal);
        if let Ok(refusal) = outgoing(&answer, Vec::new()) {
            let _ = session.answer(refusal);
        }
    }

    /// The refusal of a user that may not do something with the node.
    fn not_let_in(&self, uid: u32, what: &str) -> Refusal {
        let (owner, client) = (name_of_user(geteuid().as_raw()), name_of_user(uid));
        Refusal::because(
            Reason::OtherUser,
            format!(
                "it belongs to another user ({owner}), who does not let user {client} in; {what} attach if it was \
                 started with --allow-user or --allow-group, and manage it with --admin-group"
            ),
        )
    }

    /// Refuses a request for which the client lacks the right.
    fn check_right(&self, id: u64, right: Right) -> Result<(), Refusal> {
        let session = self.sessions.get(&id);
        let (rights, uid) = session.map_or((Rights::default(), 0), |session| (session.rights, session.uid));
        match rights.has(right) {
            true => Ok(()),
            false => Err(self.not_let_in(uid, "programs of other users")),
        }
    }

    /// Lets a client in that has not come through the listener; its number.
    #[cfg(fuzzing)]
    pub(super) fn meet(&mut self, socket: OwnedFd) -> u64 {
        self.admit(socket, Way::Listener);
        self.next_id
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, source: Source) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, source.token(), EventFlags::IN)
    }

    /// Serves a client that has something to say, or room for an answer, or is gone.
    pub(super) fn serve(&mut self, id: u64) {
        for _ in 0..TURN {
            let Some(session) = self.sessions.get_mut(&id) else {
                return;
            };
            let was_full = session.is_full();
            if session.flush().is_err() {
                return self.hang_up(id);
            }
            if session.is_full() {
                break;
            }
            if was_full {
                self.listen_to(id, EventFlags::IN);
            }
            if !self.answer_next(id) {
                break;
            }
        }
        if self.sessions.get(&id).is_some_and(Session::is_full) {
            // A hang-up is reported all the same.
            self.listen_to(id, EventFlags::OUT);
        }
    }

    fn listen_to(&self, id: u64, flags: EventFlags) {
        if let Some(session) = self.sessions.get(&id) {
            let _ = epoll::modify(&self.epoll, session.socket(), Source::Session(id).token(), flags);
        }
    }

    /// Answers a client's next request. False if there is none.
    fn answer_next(&mut self, id: u64) -> bool {
        let Some(session) = self.sessions.get(&id) else {
            return false;
        };
        let received = packet::receive(session.socket(), &mut self.buffer, RecvFlags::DONTWAIT);
        let (len, descriptors) = match received {
            Ok(Packet::Message(len, descriptors)) => (len, Some(descriptors)),
            Ok(Packet::Cut(len, _)) => (len, None),
            Err(Errno::AGAIN) => return false,
            Ok(Packet::HungUp | Packet::Oversized) | Err(_) => {
                self.hang_up(id);
                return false;
            }
        };
        let Ok(request) = serde_json::from_slice::<Request>(&self.buffer[..len]) else {
            // A client that does not speak the language cannot be helped in it.
            self.hang_up(id);
            return false;
        };
        let answered = match descriptors {
            Some(descriptors) => self
                .check_right(id, request.right())
                .and_then(|()| self.carry_out(id, request, descriptors)),
            None => Err(Refusal::because(
                Reason::DescriptorLimit,
                "it has no descriptors left (see `ulimit -n`)",
            )),
        };
        let (answer, descriptors) = answered.unwrap_or_else(|refusal| (Answer::Refused(refusal), Vec::new()));
        let packet = outgoing(&answer, descriptors);
        let sent = self.sessions.get_mut(&id).map(|session| session.answer(packet?));
        if !matches!(sent, Some(Ok(()))) {
            self.hang_up(id);
            return false;
        }
        true
    }

    /// Ends a session: its process is no longer one of the node's.
    fn hang_up(&mut self, id: u64) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        // By hand: a forked child may hold copies, which would stay in the set.
        let _ = epoll::delete(&self.epoll, session.socket());
        if let Ok(Some(pidfd)) = &session.pidfd {
            let _ = epoll::delete(&self.epoll, pidfd);
        }
        if session.captures {
            self.host.leave_capture();
        }
        if let Some((process, _)) = session.process {
            self.host.detached(process);
            if let Ok(Some(pidfd)) = session.pidfd {
                self.keepers.keep_for(&self.epoll, pidfd, session.pid);
            }
        }
        if self.paused.take().is_some() {
            self.watch_listener(EventFlags::IN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_where_events_come_from() {
        let id = u64::MAX >> 3;
        for source in [
            Source::Listener,
            Source::Door,
            Source::Stop,
            Source::Host,
            Source::Session(id),
            Source::Process(id),
            Source::Keeper(id),
        ] {
            assert_eq!(Source::from_token(source.token().u64()), source);
        }
    }
}
