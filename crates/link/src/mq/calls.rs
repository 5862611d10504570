//! Calls between nodes: dialling them and answering them, until both agree or one
//! refuses. Nothing here waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use toehold_shm::Region;

use super::change::{Change, Joined, PeerDescriptors};
use super::control::{self, Packet};
use super::direct::{Direct, DirectPeer};
use super::events::Source;
use super::handshake::{Handshake, MAX_HANDSHAKES, Offer, Own, Role, Standing, TIMEOUT_NS, Verdict, refuse};
use super::members::Member;
use super::membership::Membership;
use super::message::{Introduction, MESSAGE_LEN, Message, Refusal};
use super::name::{MemberName, NodeName};
use super::quotas::Caller;
use super::statistics::Loss;

/// Connections accepted in one go.
const MAX_ACCEPT: usize = 16;

/// Nodes dialled in one go.
const MAX_DIAL: usize = 8;

/// How long to leave callers waiting when there are no descriptors left.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

impl Membership {
    /// Dials the nodes that are due.
    pub(super) fn dial_due(&mut self) {
        for _ in 0..MAX_DIAL {
            let Some(name) = self.acquaintances.take_due(self.now_ns) else {
                break;
            };
            self.dial(name);
        }
    }

    pub(super) fn accept(&mut self) {
        for _ in 0..MAX_ACCEPT {
            match control::accept(self.listener.as_fd()) {
                Ok(Some(socket)) => self.begin_answering(socket),
                Ok(None) => return,
                Err(_) => {
                    // Out of descriptors, most likely. The socket stays readable:
                    // without a pause a sleeper would spin.
                    self.statistics.accept_errors += 1;
                    self.events.remove(self.listener.as_fd());
                    self.listening_from_ns = Some(self.now_ns.saturating_add(ACCEPT_PAUSE_NS));
                    return;
                }
            }
        }
    }

    pub(super) fn resume_listening(&mut self) {
        if self.listening_from_ns.is_some_and(|from| from <= self.now_ns)
            && self.events.add(self.listener.as_fd(), Source::Listener).is_ok()
        {
            self.listening_from_ns = None;
        }
    }

    fn begin_answering(&mut self, socket: OwnedFd) {
        if self.handshakes.len() >= MAX_HANDSHAKES {
            // An honest caller says hello at once. The one that has waited longest is none.
            let silent = self
                .handshakes
                .iter()
                .position(|handshake| matches!(handshake.role, Role::Answering));
            let Some(silent) = silent else { return };
            let handshake = self.take_handshake(silent);
            self.refuse(handshake, Refusal::TimedOut);
        }
        let Ok(caller) = control::caller(socket.as_fd()) else {
            return;
        };
        if let Some(id) = self.add_handshake(socket, caller, Role::Answering) {
            // The hello is commonly there already.
            self.continue_handshake(id);
        }
    }

    fn dial(&mut self, name: MemberName) {
        let known =
            self.members.by_name(&name).is_some() || self.handshakes.iter().any(|known| known.dials(&name));
        if known || name.node == self.identity.name.node {
            return;
        }
        match control::dial(&self.directory.socket_path(&name)) {
            Ok(socket) => {
                if let Err(reason) = self.say_hello(name, socket) {
                    self.acquaintances.failed(name, Some(reason), self.now_ns);
                }
            }
            Err(Errno::NOENT | Errno::CONNREFUSED) => self.acquaintances.missing(name, self.now_ns),
            Err(_) => self.acquaintances.failed(name, None, self.now_ns),
        }
    }

    fn say_hello(&mut self, name: MemberName, socket: OwnedFd) -> Result<(), Refusal> {
        if !self.has_room() || self.handshakes.len() >= MAX_HANDSHAKES {
            return Err(Refusal::Crowded);
        }
        let caller = control::caller(socket.as_fd()).map_err(|_| Refusal::NoResources)?;
        // A process that answers none of its calls does not keep this node from calling others.
        let handshakes = self.handshakes.iter();
        let with_it = handshakes
            .filter(|known| known.caller.is_process_of(&caller))
            .count();
        if with_it >= self.quotas.handshakes(MAX_HANDSHAKES) {
            return Err(Refusal::Quota);
        }
        let own = self.identity.make_own(caller.uid)?;
        self.introduce(socket.as_fd(), Message::Hello, &own)?;
        self.add_handshake(socket, caller, Role::Dialling { name, own })
            .ok_or(Refusal::NoResources)?;
        Ok(())
    }

    /// Sends a hello or a welcome, with a sender to this node's bell that no other peer
    /// has.
    fn introduce(
        &self,
        socket: BorrowedFd<'_>,
        kind: fn(Introduction) -> Message,
        own: &Own,
    ) -> Result<(), Refusal> {
        let doorbell = self.belfry.sender().map_err(|_| Refusal::NoResources)?;
        self.identity.introduce(socket, kind, own, doorbell.as_fd())
    }

    fn add_handshake(&mut self, socket: OwnedFd, caller: Caller, role: Role) -> Option<u32> {
        self.last_handshake = self.last_handshake.wrapping_add(1);
        let id = self.last_handshake;
        self.events.add(socket.as_fd(), Source::Handshake(id)).ok()?;
        let deadline_ns = self.now_ns.saturating_add(TIMEOUT_NS);
        self.handshakes.push(Handshake {
            id,
            socket,
            caller,
            deadline_ns,
            role,
        });
        Some(id)
    }

    fn take_handshake(&mut self, position: usize) -> Handshake {
        let handshake = self.handshakes.remove(position);
        self.events.remove(handshake.socket.as_fd());
        handshake
    }

    pub(super) fn continue_handshake(&mut self, id: u32) {
        let Some(position) = self.handshakes.iter().position(|handshake| handshake.id == id) else {
            return;
        };
        let mut buffer = [0; MESSAGE_LEN];
        let message = match control::receive(self.handshakes[position].socket.as_fd(), &mut buffer) {
            Packet::Nothing => return,
            Packet::HungUp => Err(None),
            Packet::Oversized => Err(Some(Refusal::Malformed)),
            Packet::Message(len, descriptors) => Message::parse(&buffer[..len])
                .map(|message| (message, descriptors))
                .map_err(Some),
        };
        let handshake = self.take_handshake(position);
        match message {
            Ok((message, descriptors)) => self.take_message(handshake, message, descriptors),
            Err(Some(reason)) => self.refuse(handshake, reason),
            Err(None) => {
                self.statistics.abandoned += 1;
                if let Role::Dialling { name, .. } = handshake.role {
                    self.acquaintances.failed(name, None, self.now_ns);
                }
            }
        }
    }

    fn take_message(&mut self, handshake: Handshake, message: Message, descriptors: Vec<OwnedFd>) {
        let (Message::Hello(introduction) | Message::Welcome(introduction)) = message else {
            return self.take_refusal(handshake, message);
        };
        let is_hello = matches!(message, Message::Hello(_));
        if is_hello != matches!(handshake.role, Role::Answering) {
            return self.refuse(handshake, Refusal::Malformed);
        }
        let offer = Offer::check(
            &self.identity,
            &self.directory,
            introduction,
            descriptors,
            handshake.caller.uid,
        );
        match offer {
            Err(reason) => self.refuse(handshake, reason),
            Ok(offer) if is_hello => self.answer(handshake, offer),
            Ok(offer) => self.complete(handshake, offer),
        }
    }

    fn take_refusal(&mut self, handshake: Handshake, message: Message) {
        match (handshake.role, message) {
            (Role::Dialling { name, .. }, Message::Refusal(reason)) => {
                self.statistics.refused_by_others += 1;
                self.acquaintances.failed(name, Some(reason), self.now_ns);
            }
            _ => self.statistics.abandoned += 1,
        }
    }

    /// A node said hello.
    fn answer(&mut self, handshake: Handshake, offer: Offer) {
        let former = self.members.all(|member| member.is_former(&offer.introduction));
        for &slot in &former {
            self.notice_hang_up(slot);
        }
        let is_gone = |slot: &u16| self.members.get(*slot).is_some_and(|member| member.gone);
        if former.iter().any(is_gone) {
            return self.wait_for_former(handshake, offer);
        }
        if let Err(reason) = self.judge(&offer, &handshake.caller) {
            return self.refuse(handshake, reason);
        }
        let own = match self.identity.make_own(handshake.caller.uid) {
            Ok(own) => own,
            Err(reason) => return self.refuse(handshake, reason),
        };
        // A hang-up in this moment is noticed as that of a peer.
        let sent = self.introduce(handshake.socket.as_fd(), Message::Welcome, &own);
        if sent.is_err() {
            self.statistics.abandoned += 1;
            return;
        }
        self.cancel_dialling(&offer.introduction.name);
        self.establish(handshake.socket, handshake.caller, own, offer);
    }

    /// The node's former life has hung up, and its frames come first.
    fn wait_for_former(&mut self, handshake: Handshake, offer: Offer) {
        let name = offer.introduction.name;
        while let Some(position) = self.waiting(&name) {
            let earlier = self.handshakes.remove(position);
            self.refuse(earlier, Refusal::Simultaneous);
        }
        let role = Role::Waiting(Box::new(offer));
        self.handshakes.push(Handshake { role, ..handshake });
    }

    fn waiting(&self, name: &MemberName) -> Option<usize> {
        let waits = |handshake: &Handshake| match &handshake.role {
            Role::Waiting(offer) => offer.introduction.name == *name,
            _ => false,
        };
        self.handshakes.iter().position(waits)
    }

    /// Answers a node that waited for the end of its former life. It may have to wait
    /// for more of that.
    pub(super) fn answer_waiting(&mut self, name: &NodeName) {
        let (waiting, others) = std::mem::take(&mut self.handshakes)
            .into_iter()
            .partition(|handshake| match &handshake.role {
                Role::Waiting(offer) => offer.introduction.name.node == *name,
                _ => false,
            });
        self.handshakes = others;
        for handshake in waiting {
            let (role, rest) = Handshake::split(handshake);
            if let Role::Waiting(offer) = role {
                self.answer(rest, *offer);
            }
        }
    }

    /// Whether the node that sent a hello may become a peer now. Makes way for it.
    fn judge(&mut self, offer: &Offer, caller: &Caller) -> Result<(), Refusal> {
        let introduction = &offer.introduction;
        if self.acquaintances.is_kept_away(&introduction.name, self.now_ns) {
            return Err(Refusal::TryLater);
        }
        let former = self.members.by_name(&introduction.name);
        let standing = Standing {
            names: [self.identity.name, introduction.name],
            dialling: self
                .handshakes
                .iter()
                .any(|handshake| handshake.dials(&introduction.name)),
            peer: former
                .and_then(|slot| self.members.get(slot))
                .map(|peer| (peer.incarnation, peer.is_connected())),
        };
        let verdict = standing.judge(introduction.incarnation);
        if let Verdict::Refuse(reason) = verdict {
            return Err(reason);
        }
        self.check_place(offer, caller, former)?;
        let name = introduction.name.node;
        for slot in self.members.all(|member| member.is_former(introduction)) {
            self.statistics.replaced += 1;
            self.dismiss(slot, Loss::Replaced(name));
        }
        Ok(())
    }

    /// Checks that there is a slot, that no other node has the address, and that the node's other
    /// shards agree. `former`: the slot that would become free.
    fn check_place(&self, offer: &Offer, caller: &Caller, former: Option<u16>) -> Result<(), Refusal> {
        let introduction = &offer.introduction;
        if self.members.is_taken(introduction.mac, &introduction.name.node) {
            return Err(Refusal::DuplicateAddress);
        }
        let contradicts = |member: &Member| {
            let same_node = member.name.node == introduction.name.node;
            same_node && !member.is_former(introduction) && !member.agrees(introduction)
        };
        if !self.members.all(contradicts).is_empty() {
            return Err(Refusal::Malformed);
        }
        if former.is_none() && !self.has_room() {
            return Err(Refusal::Crowded);
        }
        match former {
            None => self.admit(caller),
            // It has its place already.
            Some(_) => Ok(()),
        }
    }

    fn cancel_dialling(&mut self, name: &MemberName) {
        while let Some(position) = self.handshakes.iter().position(|handshake| handshake.dials(name)) {
            drop(self.take_handshake(position));
        }
    }

    /// The node that was dialled welcomes this one.
    fn complete(&mut self, handshake: Handshake, offer: Offer) {
        let Role::Dialling { name, .. } = &handshake.role else {
            return;
        };
        let verdict = if offer.introduction.name != *name {
            Err(Refusal::Malformed)
        } else if self.members.by_name(name).is_some() {
            Err(Refusal::AlreadyConnected)
        } else if !self
            .members
            .all(|member| member.is_former(&offer.introduction))
            .is_empty()
        {
            // Some shards of the node's former life are still there.
            Err(Refusal::TryLater)
        } else {
            self.check_place(&offer, &handshake.caller, None)
        };
        match (verdict, handshake.role) {
            (Ok(()), Role::Dialling { own, .. }) => {
                self.establish(handshake.socket, handshake.caller, own, offer);
            }
            (Err(reason), role) => self.refuse(Handshake { role, ..handshake }, reason),
            _ => {}
        }
    }

    fn establish(&mut self, socket: OwnedFd, caller: Caller, own: Own, offer: Offer) {
        let name = offer.introduction.name;
        if let Err(reason) = self.add_member(socket, caller, own, offer) {
            return self.acquaintances.failed(name, Some(reason), self.now_ns);
        }
        self.statistics.connected += 1;
        self.acquaintances.connected(name, self.now_ns);
    }

    fn add_member(
        &mut self,
        control: OwnedFd,
        caller: Caller,
        own: Own,
        offer: Offer,
    ) -> Result<(), Refusal> {
        let (slot, generation) = self.members.vacancy().ok_or(Refusal::Crowded)?;
        // What the peer says when it rings.
        own.section.set_number(slot.into());
        let descriptors = PeerDescriptors {
            own_section: own.section.into_fd(),
            peer_section: offer.section,
            doorbell: offer.doorbell,
            own_payload: own.payload.and_then(Region::into_fd),
            payload: offer.payload,
        };
        let of_port = descriptors.try_clone().map_err(|_| Refusal::NoResources)?;
        // Otherwise its death would go unnoticed.
        self.events
            .add(control.as_fd(), Source::Peer { slot, generation })
            .map_err(|_| Refusal::NoResources)?;
        let introduction = offer.introduction;
        let registry = self.registry.as_ref();
        let bound = registry.map(|registry| {
            let Introduction { name, mac, .. } = &introduction;
            registry.look_up(&name.node, *mac, caller.uid)
        });
        self.changes.push_back(Change::Joined(Box::new(Joined {
            slot,
            generation,
            name: introduction.name.node,
            mac: introduction.mac,
            steering: introduction.steering,
            incarnation: introduction.incarnation,
            bound: bound.unwrap_or_default(),
            same_user: caller.uid == self.identity.uid,
            shares_payload: descriptors.own_payload.is_some(),
            payload: introduction.payload,
            ring_capacity: offer.ring_capacity,
            gateway: introduction.gateway,
            descriptors: of_port,
        })));
        let has_direct =
            self.identity.direct.is_some() && introduction.direct && introduction.steering.index == 0;
        let direct = has_direct.then(|| {
            Direct::new(DirectPeer {
                name: introduction.name.node,
                mac: introduction.mac,
                bound: bound.unwrap_or_default(),
                same_user: caller.uid == self.identity.uid,
            })
        });
        let member = Member {
            name: introduction.name,
            mac: introduction.mac,
            incarnation: introduction.incarnation,
            steering: introduction.steering,
            caller,
            control,
            gone: false,
            descriptors,
            direct,
        };
        self.members.insert((slot, generation), member);
        if has_direct {
            self.begin_direct(slot);
        }
        Ok(())
    }

    fn refuse(&mut self, handshake: Handshake, reason: Refusal) {
        self.statistics.refused += 1;
        match reason {
            Refusal::Malformed => self.statistics.malformed += 1,
            Refusal::TimedOut => self.statistics.timed_out += 1,
            Refusal::Quota => self.statistics.over_quota += 1,
            _ => {}
        }
        refuse(handshake.socket.as_fd(), reason);
        if let Role::Dialling { name, .. } = handshake.role {
            self.acquaintances.failed(name, Some(reason), self.now_ns);
        }
    }

    pub(super) fn end_late_handshakes(&mut self) {
        while let Some(late) = self
            .handshakes
            .iter()
            .position(|handshake| handshake.deadline_ns <= self.now_ns)
        {
            let handshake = self.take_handshake(late);
            let reason = match handshake.role {
                // This node's fault.
                Role::Waiting(_) => Refusal::TryLater,
                _ => Refusal::TimedOut,
            };
            self.refuse(handshake, reason);
        }
    }
}
