//! Recovery by the engine of ends where a thread has died.

use core::sync::atomic::Ordering::Acquire;

use super::accept_queue::ConnectionId;
use super::bank::CONNECTIONS;
use super::ends::Ends;
use super::handle::Bank;
use super::lock::{ThreadNumber, take_from_dead, unlock_and_fence};
use super::memory::MemoryError;

impl Ends {
    /// The connections that process `process` was the last to take from queues, one at each number:
    /// also those that have ended. For the engine, after a death while the process took one.
    pub fn taken_by(&self, process: u16) -> impl Iterator<Item = ConnectionId> + '_ {
        (0..CONNECTIONS as u16).filter_map(move |number| {
            let taker = self.end(number).state.taker.load(Acquire);
            (taker >> 32 == u64::from(process)).then_some(ConnectionId {
                number,
                generation: taker as u32,
            })
        })
    }
}

impl Bank {
    /// Takes the locks of an end that a dead thread has, and tells both nodes' waiters to look.
    /// The thread may have written, read or armed without having told them. What the journal
    /// [has found](super::Journal::found) says which end. Returns how many locks were taken.
    ///
    /// Bytes that the thread had not published do not exist; bytes that it had read without
    /// having said so are read again.
    ///
    /// # Errors
    ///
    /// If the rings cannot be mapped.
    pub fn recover(
        &self,
        number: u16,
        dead: ThreadNumber,
        thread: ThreadNumber,
    ) -> Result<usize, MemoryError> {
        let generation = self.ends.generation(number);
        let end = self.end(ConnectionId { number, generation })?;
        let own = end.own();
        let mut taken = 0;
        for word in [&own.writer.lock, &own.reader.lock] {
            if take_from_dead(word, dead, thread) {
                unlock_and_fence(word);
                taken += 1;
            }
        }
        let word = &own.state.arm_lock;
        if take_from_dead(word, dead, thread) {
            taken += 1;
            super::bitmaps::keep_of_dead(&self.waiters, dead, &end.arming());
            // It may have stored a mark without the generation. All that wait look again.
            end.arming().read(0);
            end.arming().room(0);
            unlock_and_fence(word);
        }
        super::lock::full_fence();
        end.tell_always();
        self.tell_own(&end);
        Ok(taken)
    }

    /// Tells this node's waiters that sleep for a listener to look there. For the engine, after a
    /// death: the process may have been told of a connection instead of another one.
    pub fn tell_own_listener(&self, listener: u16) {
        self.signals.tell_listener(&self.waiters, listener);
    }

    /// Tells this node's own waiters of an end to look there.
    pub(super) fn tell_own(&self, end: &super::end::End<'_>) {
        let number = end.id().number;
        let audience = end.arming().audience();
        let tell = |waiter| {
            if self.waiters.has_bits(waiter) {
                self.signals.ready(waiter).set(number);
            }
            self.waiters.ring(waiter);
        };
        audience.waiters().for_each(tell);
        if let Some(bitmap) = audience.bitmap() {
            let words = &self.waiters.directory().audience_line(bitmap).words;
            super::handle::for_each_waiter(words, |waiter| {
                tell(waiter);
                false
            });
        }
    }
}
