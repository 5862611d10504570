//! The sockets registered with one poll, and which of them may be ready.
//!
//! The stack tells of changes; a level is what remains of them. So a socket
//! that was found ready stays in the queue and is looked at again next time,
//! and one that was not leaves it until the stack tells of another change.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use toehold_shm::Doorbell;
use toehold_stack::{Event as SourceEvent, Readiness, Stack};

use super::events::{Event, Events, Interest, Token};
use crate::parker::Parker;

#[derive(Debug)]
struct Entry {
    source: SourceEvent,
    token: Token,
    interest: Interest,
    queued: bool,
}

/// A poll's part of the shard.
#[derive(Debug, Default)]
pub(crate) struct PollSet {
    entries: Slab<Entry>,
    /// Entries that may be ready, each once.
    queue: VecDeque<usize>,
    /// Tokens of wakers that were used.
    woken: Vec<Token>,
    /// The thread that waits for this poll.
    waiting: Option<Arc<Parker>>,
}

impl PollSet {
    pub(super) fn insert(&mut self, source: SourceEvent, token: Token, interest: Interest) -> usize {
        self.entries.insert(Entry {
            source,
            token,
            interest,
            queued: false,
        })
    }

    pub(super) fn change(&mut self, entry: usize, token: Token, interest: Interest) {
        let entry = &mut self.entries[entry];
        entry.token = token;
        entry.interest = interest;
    }

    pub(crate) fn remove(&mut self, entry: usize) {
        if self.entries.try_remove(entry).is_some_and(|entry| entry.queued) {
            // The place may be taken by another one before the queue gets there.
            self.queue.retain(|&queued| queued != entry);
        }
    }

    /// Every entry with its source.
    pub(super) fn sources(&self) -> impl Iterator<Item = (usize, SourceEvent)> + '_ {
        self.entries.iter().map(|(index, entry)| (index, entry.source))
    }

    /// The entry's source has changed.
    pub(crate) fn may_be_ready(&mut self, entry: usize, bell: &Doorbell) {
        let Some(place) = self.entries.get_mut(entry) else {
            return;
        };
        if !place.queued {
            place.queued = true;
            self.queue.push_back(entry);
        }
        self.notify(bell);
    }

    pub(super) fn wake(&mut self, token: Token, bell: &Doorbell) {
        if !self.woken.contains(&token) {
            self.woken.push(token);
        }
        self.notify(bell);
    }

    fn notify(&self, bell: &Doorbell) {
        if let Some(waiting) = &self.waiting {
            waiting.notify(bell);
        }
    }

    pub(crate) fn set_waiting(&mut self, thread: Option<Arc<Parker>>) {
        self.waiting = thread;
    }

    /// Tells what is ready, in turn: whoever was told last is looked at last.
    pub(super) fn collect(&mut self, stack: &mut Stack, events: &mut Events) {
        events.clear();
        while let (Some(&token), false) = (self.woken.first(), events.is_full()) {
            self.woken.remove(0);
            let readiness = Readiness {
                readable: true,
                ..Readiness::default()
            };
            events.push(Event::new(token, Interest::READABLE, readiness));
        }
        for _ in 0..self.queue.len() {
            if events.is_full() {
                return;
            }
            let Some(index) = self.queue.pop_front() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(index) else {
                continue;
            };
            let readiness = readiness(stack, entry.source, entry.interest);
            if entry.interest.is_met_by(readiness) {
                events.push(Event::new(entry.token, entry.interest, readiness));
                self.queue.push_back(index);
            } else {
                entry.queued = false;
            }
        }
    }
}

fn readiness(stack: &mut Stack, source: SourceEvent, interest: Interest) -> Readiness {
    match source {
        SourceEvent::Connection(id) => {
            let readiness = stack.readiness(id);
            if interest.is_writable() && !readiness.writable {
                // Room is told of only if somebody wants it.
                stack.want_write(id);
            }
            readiness
        }
        SourceEvent::Listener(id) => {
            let waiting = stack.accept_queue_len(id);
            Readiness {
                readable: waiting != Ok(0),
                error: waiting.is_err(),
                ..Readiness::default()
            }
        }
    }
}
