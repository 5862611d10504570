//! Waiting for several shards at once: to accept, to poll, to drive them all.
//!
//! A thread that does so goes round its shards, each for a moment with that shard's lease, and
//! never has two leases. Where no thread drives it does, as a thread that waits for that shard
//! alone would. When spinning does not help it rests in all of them. It takes the seat at every
//! link where that is free, and sleeps on these links' descriptors and bells. If it has got no seat
//! it parks. In each shard it has a slot of its own, and in all of them the one word of its first
//! slot. So whatever happens anywhere wakes it.
//!
//! The order keeps the invariant of each shard. The thread takes the seats first, then says how it
//! rests. Then it looks once more in every shard, with the lease, whether there is anything to do.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use toehold_shm::Rest;
use toehold_stack::Instant;

use super::beside::sleep_on_many;
use super::{Beside, Gone, Guard, ShardHandle, SpinBudget, is_over};
use crate::attachment::Attachment;
use crate::driver::Mode;
use crate::shard::{Pulse, Shard, Subscription};
use crate::shards::Shards;
use crate::{clock, interrupts};

/// How long a thread that has no seat rests before it looks whether another one moves.
const SLICE: Duration = Duration::from_millis(200);

/// A call of the program that concerns several shards.
pub trait Everywhere {
    /// The operation's result.
    type Output;

    /// Tries the operation in one shard. Returns `None` if it cannot be done yet, or not there.
    fn attempt(&mut self, index: u8, shard: &mut Shard) -> Option<Self::Output>;

    /// Takes frames from a shard's link.
    fn receive(&mut self, shard: &mut Shard) -> usize {
        shard.receive(None)
    }

    /// The reason to be woken in a shard.
    fn subscription(&self, index: u8) -> Subscription;

    /// Descriptors of the kernel that end its sleep as well.
    fn beside(&self) -> &[Beside<'_>] {
        &[]
    }
}

/// How a round over the shards ended.
enum Round<T> {
    Done(T),
    /// The number of frames.
    Frames(usize),
}

/// A call's place in one shard.
struct Place<'a> {
    index: u8,
    handle: &'a ShardHandle,
    ticket: u64,
    /// The call's slot in this shard while it rests.
    slot: Option<u32>,
    seated: bool,
    subscription: Option<Subscription>,
    pulse: Option<Pulse>,
}

/// How a thread went to rest.
enum Rested<T> {
    Done(T),
    /// The thread did not rest: something has come up.
    NotYet,
    Woken,
}

impl Shards {
    /// Waits until an operation is done in any of some shards, `deadline` at most; `None`
    /// if that has passed. The first of the shards is tried first, and it is the one in
    /// which the thread is at home. The caller has no lease.
    ///
    /// # Errors
    ///
    /// If the node goes away in the meantime.
    pub fn block<O: Everywhere>(
        &self,
        shards: impl Iterator<Item = u8>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Result<Option<O::Output>, Gone> {
        let mut places = Vec::new();
        for index in shards {
            places.push(Place::take(self.get(index), index, places.is_empty())?);
        }
        let output = wait(&mut places, operation, spin, deadline);
        for place in &places {
            place.leave()?;
        }
        output
    }
}

fn wait<O: Everywhere>(
    places: &mut [Place<'_>],
    operation: &mut O,
    spin: &SpinBudget,
    deadline: Option<Instant>,
) -> Result<Option<O::Output>, Gone> {
    let mut budget_ns = spin.get();
    let mut has_slept = false;
    loop {
        let began = clock::now();
        let mut idle_since = began;
        loop {
            let frames = match round(places, operation)? {
                Round::Done(output) => {
                    // What it was woken for, it has not spun for.
                    if budget_ns > 0 && !has_slept {
                        spin.helped();
                    }
                    return Ok(Some(output));
                }
                Round::Frames(frames) => frames,
            };
            let now = clock::now();
            if is_over(now, deadline) {
                return Ok(None);
            }
            if frames > 0 {
                idle_since = now;
            } else if now.nanos_since(idle_since) >= budget_ns {
                break;
            }
        }
        if budget_ns > 0 {
            spin.in_vain();
        }
        let rested = rest(places, operation, deadline);
        rise(places)?;
        match rested? {
            Rested::Done(output) => return Ok(Some(output)),
            Rested::Woken if interrupts::is_pending() => return Ok(None),
            Rested::Woken => has_slept = true,
            // A link that holds frames back never agrees to sleep.
            Rested::NotYet => std::thread::yield_now(),
        }
        budget_ns = spin.get_again();
    }
}

/// Looks once in every shard, and drives those that no other thread drives.
fn round<O: Everywhere>(places: &[Place<'_>], operation: &mut O) -> Result<Round<O::Output>, Gone> {
    let mut frames = 0;
    for place in places {
        let mut shard = place.lock()?;
        if place.drives() && place.handle.may_drive(&mut shard, place.ticket) {
            shard.tick();
            let received = operation.receive(&mut shard);
            frames += received;
            if received > 0 {
                shard.respond();
            }
            if shard.housekeeping_due() {
                place.keep_house(&mut shard)?;
            }
        }
        if let Some(output) = operation.attempt(place.index, &mut shard) {
            return Ok(Round::Done(output));
        }
    }
    Ok(Round::Frames(frames))
}

/// Rests until there is reason to look again.
#[cold]
fn rest<O: Everywhere>(
    places: &mut [Place<'_>],
    operation: &mut O,
    deadline: Option<Instant>,
) -> Result<Rested<O::Output>, Gone> {
    let mut home = None;
    for place in places.iter_mut() {
        if !place.sit(&mut home, deadline)? {
            return Ok(Rested::NotYet);
        }
    }
    let Some((_, word)) = home else {
        return Ok(Rested::NotYet);
    };
    let parking = &places[0].handle.parking;
    let bell = places.iter().find(|place| place.seated).map(|place| place.index);
    parking.begin(
        word.into(),
        if bell.is_some() {
            Rest::Seated
        } else {
            ShardHandle::rest_without_seat(operation.beside())
        },
    );
    let mut until = deadline;
    for place in places.iter_mut() {
        let mut shard = place.lock()?;
        if let Some(output) = operation.attempt(place.index, &mut shard) {
            return Ok(Rested::Done(output));
        }
        if !place.subscribe(&mut shard, operation.subscription(place.index), bell) {
            return Ok(Rested::NotYet);
        }
        if place.seated {
            until = clock::earlier(until, shard.next_due());
        }
    }
    match bell {
        Some(_) => sleep(places, until, operation.beside()),
        None => park(places, word, until, operation.beside())?,
    }
    Ok(Rested::Woken)
}

/// Sleeps on the links at which it has a seat.
fn sleep(places: &[Place<'_>], until: Option<Instant>, beside: &[Beside<'_>]) {
    let left = until.map(|until| until.since(clock::now()));
    let first = places[0].handle;
    let mut descriptors: Vec<BorrowedFd<'_>> = Vec::with_capacity(places.len() + 2);
    for place in places.iter().filter(|place| place.seated) {
        // Notified it is by one of these bells; requests may ring any of them.
        descriptors.push(place.handle.bells.sleeper.as_fd());
        descriptors.extend(place.handle.descriptor.as_ref().map(AsFd::as_fd));
    }
    descriptors.extend(first.attachment.as_ref().map(Attachment::engine));
    sleep_on_many(&descriptors, beside, left);
}

/// Sleeps on its word, for a slice of time: the threads that have the seats may be stopped.
fn park(places: &[Place<'_>], word: u16, until: Option<Instant>, beside: &[Beside<'_>]) -> Result<(), Gone> {
    let parking = &places[0].handle.parking;
    let slice = clock::now() + SLICE;
    let end = clock::earlier(until, Some(slice)).unwrap_or(slice);
    places[0].handle.rest_on_word(word.into(), Some(end), beside);
    if !parking.is_resting(word.into()) || Beside::any(beside) || interrupts::is_pending() {
        return Ok(());
    }
    for place in places {
        let mut shard = place.lock()?;
        if let Some(pulse) = place.pulse {
            shard.tick();
            place.handle.relieve(&mut shard, pulse);
        }
    }
    Ok(())
}

/// Gives up everything that a thread which rests has. Its first slot, which has its word,
/// goes last.
fn rise(places: &mut [Place<'_>]) -> Result<(), Gone> {
    if let Some(slot) = places.first().and_then(|home| home.slot) {
        places[0].handle.parking.end(slot);
    }
    for place in places.iter_mut().rev() {
        place.rise()?;
    }
    places[0].handle.check_engine()
}

impl<'a> Place<'a> {
    /// Begins the call in a shard. At home it drives, as any call that begins to wait. Elsewhere it
    /// drives only if no other thread does, which would be the one to get something soon.
    fn take(handle: &'a ShardHandle, index: u8, is_home: bool) -> Result<Place<'a>, Gone> {
        let mut shard = handle.enter()?;
        let drives = handle.may_drive_inline();
        let ticket = handle.take_wheel(&mut shard, drives && is_home);
        Ok(Place {
            index,
            handle,
            ticket,
            slot: None,
            seated: false,
            subscription: None,
            pulse: None,
        })
    }

    fn drives(&self) -> bool {
        self.handle.may_drive_inline()
    }

    fn lock(&self) -> Result<Guard<'a>, Gone> {
        let mut shard = self.handle.lease.lock()?;
        if self.drives() && shard.waiting.seats.mode() == Mode::Seated {
            self.handle.dislodge(&mut shard);
        }
        Ok(shard)
    }

    fn keep_house(&self, shard: &mut Guard<'_>) -> Result<(), Gone> {
        self.handle.signals.mark();
        if let Some(attachment) = &self.handle.attachment {
            attachment.check_at(shard.now)?;
        }
        self.handle.map_peers(shard)?;
        shard.waiting.seats.beat();
        shard.housekeeping();
        Ok(())
    }

    /// Takes a slot, and the seat at the link if that is free. Returns `false` if it cannot, or
    /// there is something to do.
    fn sit(&mut self, home: &mut Option<(u8, u16)>, deadline: Option<Instant>) -> Result<bool, Gone> {
        let mut shard = self.lock()?;
        let seats = &mut shard.waiting.seats;
        if seats.driver() == Some(self.ticket) {
            seats.clear_driver();
            shard.tick();
            self.keep_house(&mut shard)?;
        }
        let undriven = shard.waiting.seats.driver().is_none();
        if self.drives() && undriven && !shard.arm() {
            return Ok(false);
        }
        let seats = &mut shard.waiting.seats;
        let process = self.handle.process();
        let slot = match *home {
            None => seats.take_slot(process, self.ticket),
            Some(home) => seats.take_slot_for(process, self.ticket, home),
        };
        let Some(slot) = slot else { return Ok(false) };
        home.get_or_insert((self.index, slot as u16));
        self.slot = Some(slot);
        if self.drives() && seats.sleeper().is_none() {
            let due = if undriven { shard.next_due() } else { None };
            let until = clock::earlier(deadline, due).unwrap_or(Instant::NEVER);
            shard.waiting.seats.set_sleeper(slot, until);
            self.seated = true;
        }
        Ok(true)
    }

    /// Lists the thread among those to be woken, if it can go to sleep. `bell`: of the
    /// shard whose sleepers' bell wakes it.
    fn subscribe(&mut self, shard: &mut Guard<'_>, subscription: Subscription, bell: Option<u8>) -> bool {
        let Some(slot) = self.slot else { return false };
        let seats = &mut shard.waiting.seats;
        if let Some(bell) = bell {
            seats.set_bell(slot, bell);
        }
        if self.seated && seats.sleeper().is_none_or(|(sleeper, _)| sleeper != slot) {
            // Another thread has taken it for one that is stopped.
            return false;
        }
        if self.drives() && seats.driver().is_none() {
            // Another thread has driven and gone, or has left the seat.
            if seats.sleeper().is_none() || !shard.arm() {
                return false;
            }
            if let (true, Some(due)) = (self.seated, shard.next_due()) {
                let until = shard
                    .waiting
                    .seats
                    .sleeper()
                    .map_or(due, |(_, until)| until.min(due));
                shard.waiting.seats.set_sleeper(slot, until);
            }
        }
        if !shard.subscribe(subscription, slot) {
            return false;
        }
        self.subscription = Some(subscription);
        if !self.seated {
            shard.waiting.seats.park(slot);
        }
        self.pulse = Some(shard.waiting.seats.pulse());
        true
    }

    fn rise(&mut self) -> Result<(), Gone> {
        let Some(slot) = self.slot.take() else {
            return Ok(());
        };
        let mut shard = self.lock()?;
        if let Some(subscription) = self.subscription.take() {
            shard.unsubscribe(subscription, slot);
        }
        if std::mem::take(&mut self.seated) {
            // It alone sleeps on this bell, which may have rung for one that is dead.
            self.handle.bells.sleeper.clear();
            shard.disarm();
        }
        shard.tick();
        shard.waiting.seats.give_slot(slot);
        Ok(())
    }

    /// Ends the call.
    fn leave(&self) -> Result<(), Gone> {
        let mut shard = self.handle.lease.lock()?;
        self.handle.leave(&mut shard, self.ticket);
        Ok(())
    }
}
