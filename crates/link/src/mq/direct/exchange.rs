//! The exchange of memory for direct connections with one peer after the other.

use std::os::fd::{AsFd, OwnedFd};

use toehold_shm::direct::{BellError, BellSet, Half, MemoryError, PeerDirectory, PeerHalf, Side, Signals};

use super::message::{DIRECT_MESSAGE_LEN, DirectMessage};
use super::{BankBells, BankMemory, DirectChange, DirectPeer, MAX_BANKS, MAX_BANKS_IN_ALL, MAX_MESSAGES};
use crate::mq::control::{self, Packet};
use crate::mq::membership::Membership;

/// The state of direct connections with a peer.
#[derive(Debug)]
pub(in crate::mq) struct Direct {
    peer: DirectPeer,
    has_met: bool,
    /// Messages that the peer may still send.
    messages: u8,
    /// The banks that this node opened, and the memory of the one that was not answered yet.
    opened: u8,
    asked: Option<OwnBank>,
    /// The banks that the peer opened.
    accepted: u8,
    /// The peer has declined a bank: it gets no other one to decline.
    is_exhausted: bool,
}

/// The parts of a bank that this node provides.
#[derive(Debug)]
struct OwnBank {
    half: Half,
    signals: Signals,
    bells: Option<BellSet>,
}

/// The parts of a bank that a peer provides.
#[derive(Debug)]
struct PeerBank {
    half: PeerHalf,
    signals: Signals,
    bells: Option<BellSet>,
}

/// The peer broke a rule, or the system refuses memory or descriptors.
#[derive(Debug)]
struct Broken;

impl From<MemoryError> for Broken {
    fn from(_: MemoryError) -> Broken {
        Broken
    }
}

impl From<BellError> for Broken {
    fn from(_: BellError) -> Broken {
        Broken
    }
}

impl Direct {
    pub(in crate::mq) fn new(peer: DirectPeer) -> Direct {
        Direct {
            peer,
            has_met: false,
            messages: MAX_MESSAGES,
            opened: 0,
            asked: None,
            accepted: 0,
            is_exhausted: false,
        }
    }

    fn banks(&self) -> usize {
        usize::from(self.opened) + usize::from(self.accepted) + usize::from(self.asked.is_some())
    }
}

impl OwnBank {
    /// Makes it. A bank without bells, because there are no descriptors left for them, will do.
    fn new(incarnation: u64, with_bells: bool) -> Result<OwnBank, MemoryError> {
        Ok(OwnBank {
            half: Half::create("toehold-half", incarnation)?,
            signals: Signals::create("toehold-signals", incarnation)?,
            bells: with_bells.then(|| BellSet::new().ok()).flatten(),
        })
    }

    /// The descriptors for the peer.
    fn to_list(&self) -> Result<Vec<OwnedFd>, Broken> {
        let signals = rustix::io::fcntl_dupfd_cloexec(self.signals.fd(), 0);
        let mut list = vec![self.half.read_only_fd()?, signals.map_err(|_| Broken)?];
        if let Some(bells) = &self.bells {
            list.extend(bells.to_list()?);
        }
        Ok(list)
    }

    fn with(self, theirs: PeerBank) -> Box<BankMemory> {
        let bells = self.bells.zip(theirs.bells);
        Box::new(BankMemory {
            own_half: self.half,
            peer_half: theirs.half,
            own_signals: self.signals,
            peer_signals: theirs.signals,
            bells: bells.map(|(own, peer)| BankBells { own, peer }),
        })
    }
}

impl PeerBank {
    /// Checks what a peer has given.
    fn open(descriptors: Vec<OwnedFd>) -> Result<PeerBank, Broken> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(Broken);
        let (half, signals) = (PeerHalf::open(next()?)?, Signals::open(next()?)?);
        let bells: Vec<OwnedFd> = descriptors.collect();
        let bells = match bells.is_empty() {
            true => None,
            false => Some(BellSet::from_peer(bells)?),
        };
        Ok(PeerBank { half, signals, bells })
    }
}

impl Membership {
    /// The next change of direct connections since housekeeping was done. For the process that
    /// connects the node, in the order of the changes.
    pub fn next_direct_change(&mut self) -> Option<DirectChange> {
        self.direct_changes.pop_front()
    }

    /// Says for how many other banks the owner has room. Beyond, peers' banks are declined, and
    /// none is opened.
    pub fn set_bank_room(&mut self, banks: usize) {
        self.bank_room = banks;
    }

    /// Asks a peer for another bank in which this node makes connections. The answer is a
    /// [`DirectChange`]. Returns `false` if nothing was asked: there are as many banks as there
    /// may be, an answer is awaited, or the system refuses memory.
    pub fn open_bank(&mut self, slot: u16, generation: u16) -> bool {
        let is_it = self.members.of_generation(slot, generation).is_some();
        is_it && self.try_open(slot)
    }

    /// Begins with a peer that has just joined and has direct connections.
    pub(in crate::mq) fn begin_direct(&mut self, slot: u16) {
        let Some(directory) = self.identity.direct.as_ref() else {
            return;
        };
        let directory = directory.read_only_fd();
        let given = directory.is_ok_and(|directory| self.say(slot, DirectMessage::Directory, &[directory]));
        match given && self.listen_to(slot, true) {
            true => {
                self.try_open(slot);
            }
            false => self.break_off(slot),
        }
    }

    fn try_open(&mut self, slot: u16) -> bool {
        if !self.has_room_for_bank(slot) {
            return false;
        }
        let Some(direct) = self.members.get(slot).and_then(|member| member.direct.as_ref()) else {
            return false;
        };
        if direct.asked.is_some() || direct.is_exhausted || direct.opened >= MAX_BANKS {
            return false;
        }
        let (number, same_user) = (direct.opened, direct.peer.same_user);
        let Ok(own) = OwnBank::new(self.identity.incarnation, same_user) else {
            return false;
        };
        let message = match own.bells {
            Some(_) => DirectMessage::OpenWithBells(number),
            None => DirectMessage::Open(number),
        };
        let said = self.say_with(slot, message, &own);
        if let Some(direct) = self.direct_mut(slot).filter(|_| said) {
            direct.asked = Some(own);
        }
        said
    }

    /// Whether there may be another bank with a peer.
    fn has_room_for_bank(&self, slot: u16) -> bool {
        let own = self.identity.uid;
        let (mut all, mut foreign) = (0, 0);
        for (uid, direct) in self.members.with_direct() {
            all += direct.banks();
            foreign += if uid == own { 0 } else { direct.banks() };
        }
        let is_foreign = self
            .members
            .get(slot)
            .is_some_and(|member| member.caller.uid != own);
        let told = self.direct_changes.iter();
        let untold = told
            .filter(|change| matches!(change, DirectChange::Bank { .. }))
            .count();
        let asked = self
            .members
            .with_direct()
            .filter(|(_, direct)| direct.asked.is_some());
        untold + asked.count() < self.bank_room
            && all < MAX_BANKS_IN_ALL
            && (!is_foreign || foreign < MAX_BANKS_IN_ALL / 2)
    }

    /// A peer may have said something.
    pub(in crate::mq) fn hear(&mut self, slot: u16) {
        // More than a peer may say is never taken: the bound ends the loop.
        while let Some(generation) = self.members.generation(slot)
            && let Some(member) = self.members.get_mut(slot)
            && let Some(direct) = &mut member.direct
        {
            let mut buffer = [0; DIRECT_MESSAGE_LEN];
            let heard = match control::receive(member.control.as_fd(), &mut buffer) {
                Packet::Nothing => return,
                // A message of no bytes looks like a hang-up, which is noticed elsewhere.
                Packet::HungUp if control::is_connected(member.control.as_fd()) => Err(Broken),
                Packet::HungUp => return,
                Packet::Oversized => Err(Broken),
                Packet::Message(..) if direct.messages == 0 => Err(Broken),
                Packet::Message(len, descriptors) => {
                    direct.messages -= 1;
                    self.take_direct((slot, generation), &buffer[..len], descriptors)
                }
            };
            if heard.is_err() {
                self.statistics.direct_refused += 1;
                return self.break_off(slot);
            }
        }
    }

    fn take_direct(
        &mut self,
        (slot, generation): (u16, u16),
        bytes: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Broken> {
        let message = DirectMessage::parse(bytes).ok_or(Broken)?;
        let count = message.descriptors();
        if descriptors.len() != count {
            return Err(Broken);
        }
        let incarnation = self.identity.incarnation;
        let has_room = self.has_room_for_bank(slot);
        let direct = self.direct_mut(slot).ok_or(Broken)?;
        // A peer introduces itself before it has banks.
        if direct.has_met == (message == DirectMessage::Directory) {
            return Err(Broken);
        }
        let change = match message {
            DirectMessage::Directory => {
                let directory = descriptors.into_iter().next().ok_or(Broken)?;
                let directory = PeerDirectory::open(directory)?;
                direct.has_met = true;
                DirectChange::Met {
                    slot,
                    generation,
                    peer: Box::new(direct.peer),
                    directory,
                }
            }
            DirectMessage::Open(number) | DirectMessage::OpenWithBells(number) => {
                let mut theirs = PeerBank::open(descriptors)?;
                if number != direct.accepted || number >= MAX_BANKS {
                    return Err(Broken);
                }
                // Each side must know the other one as of its own user.
                theirs.bells = theirs.bells.filter(|_| direct.peer.same_user);
                let own = has_room.then(|| OwnBank::new(incarnation, theirs.bells.is_some()));
                let Some(Ok(own)) = own else {
                    return match self.say(slot, DirectMessage::Decline(number), &[]) {
                        true => Ok(()),
                        false => Err(Broken),
                    };
                };
                let answer = match own.bells {
                    Some(_) => DirectMessage::AcceptWithBells(number),
                    None => DirectMessage::Accept(number),
                };
                if !self.say_with(slot, answer, &own) {
                    return Err(Broken);
                }
                self.direct_mut(slot).ok_or(Broken)?.accepted += 1;
                DirectChange::Bank {
                    slot,
                    generation,
                    side: Side::Accepting,
                    number,
                    memory: own.with(theirs),
                }
            }
            DirectMessage::Accept(number) | DirectMessage::AcceptWithBells(number) => {
                let theirs = PeerBank::open(descriptors)?;
                let own = direct.asked.take().filter(|_| number == direct.opened);
                let own = own.ok_or(Broken)?;
                if theirs.bells.is_some() && own.bells.is_none() {
                    return Err(Broken);
                }
                direct.opened += 1;
                DirectChange::Bank {
                    slot,
                    generation,
                    side: Side::Opening,
                    number,
                    memory: own.with(theirs),
                }
            }
            DirectMessage::Decline(number) => {
                let asked = direct.asked.take().filter(|_| number == direct.opened);
                asked.ok_or(Broken)?;
                direct.is_exhausted = true;
                DirectChange::Declined { slot, generation }
            }
        };
        self.direct_changes.push_back(change);
        Ok(())
    }

    fn direct_mut(&mut self, slot: u16) -> Option<&mut Direct> {
        self.members.get_mut(slot)?.direct.as_mut()
    }

    /// Sends a message. Returns `false` if the peer does not read, or is gone.
    fn say(&self, slot: u16, message: DirectMessage, descriptors: &[OwnedFd]) -> bool {
        let Some(member) = self.members.get(slot) else {
            return false;
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let bytes = message.emit();
        control::send(member.control.as_fd(), &bytes, &descriptors).is_ok()
    }

    fn say_with(&self, slot: u16, message: DirectMessage, own: &OwnBank) -> bool {
        let list = own.to_list();
        list.is_ok_and(|list| self.say(slot, message, &list))
    }

    fn listen_to(&self, slot: u16, listens: bool) -> bool {
        let (Some(member), Some(generation)) = (self.members.get(slot), self.members.generation(slot)) else {
            return false;
        };
        let control = member.control.as_fd();
        self.events
            .listen_to_peer(control, (slot, generation), listens)
            .is_ok()
    }

    /// Ends direct connections with a peer that stays.
    fn break_off(&mut self, slot: u16) {
        self.listen_to(slot, false);
        self.part(slot);
    }

    /// Ends direct connections with a peer, if it has any.
    pub(in crate::mq) fn part(&mut self, slot: u16) {
        let Some(generation) = self.members.generation(slot) else {
            return;
        };
        let direct = self.members.get_mut(slot).and_then(|member| member.direct.take());
        if direct.is_some_and(|direct| direct.has_met) {
            self.direct_changes
                .push_back(DirectChange::Parted { slot, generation });
        }
    }
}
