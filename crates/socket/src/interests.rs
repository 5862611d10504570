//! Who wants to know when a connection or listener changes: threads that wait
//! in a call on it, and polls it is registered with.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use toehold_stack::Event;

use crate::parker::Parker;

/// A registration: which poll, and which entry of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) poll: usize,
    pub(crate) entry: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Interested {
    threads: Vec<Arc<Parker>>,
    registrations: Vec<Registration>,
}

impl Interested {
    pub(crate) fn threads(&self) -> &[Arc<Parker>] {
        &self.threads
    }

    pub(crate) fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    pub(crate) fn registration_with(&self, poll: usize) -> Option<Registration> {
        self.registrations
            .iter()
            .copied()
            .find(|registration| registration.poll == poll)
    }

    fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.registrations.is_empty()
    }
}

/// All interests of a node's programs. An [`Event`] without its occasion is
/// what names a connection or listener here.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    by_source: HashMap<Event, Interested, BuildHasherDefault<SourceHasher>>,
}

impl Interests {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_source.is_empty()
    }

    #[inline]
    pub(crate) fn of(&self, source: Event) -> Option<&Interested> {
        self.by_source.get(&source)
    }

    pub(crate) fn add_thread(&mut self, source: Event, thread: Arc<Parker>) {
        self.by_source.entry(source).or_default().threads.push(thread);
    }

    pub(crate) fn remove_thread(&mut self, source: Event, thread: &Arc<Parker>) {
        self.change(source, |interested| {
            if let Some(at) = interested
                .threads
                .iter()
                .position(|other| Arc::ptr_eq(other, thread))
            {
                interested.threads.swap_remove(at);
            }
        });
    }

    pub(crate) fn add_registration(&mut self, source: Event, registration: Registration) {
        self.by_source
            .entry(source)
            .or_default()
            .registrations
            .push(registration);
    }

    pub(crate) fn remove_registration(&mut self, source: Event, registration: Registration) {
        self.change(source, |interested| {
            interested.registrations.retain(|other| *other != registration)
        });
    }

    /// The source is gone for its program.
    pub(crate) fn remove_source(&mut self, source: Event) -> Option<Interested> {
        self.by_source.remove(&source)
    }

    fn change(&mut self, source: Event, change: impl FnOnce(&mut Interested)) {
        if let Some(interested) = self.by_source.get_mut(&source) {
            change(interested);
            if interested.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

/// Mixes the small numbers that name a source. They are this stack's own, not
/// a peer's: nobody can choose them to collide.
#[derive(Debug, Default)]
pub(crate) struct SourceHasher(u64);

impl SourceHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for SourceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.add(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }
}
