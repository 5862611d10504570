//! The exchange between the thread that forwards and the one that keeps the roster.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use toehold_link::NeighborChange;
use toehold_shm::Doorbell;

use crate::fabric::Beyond;

/// Pages that wait to be read, and their bytes; the next ones will be repeated.
const MAX_PAGES: usize = 1024;
const MAX_BYTES: usize = 4 << 20;

/// The knowledge of the roster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::uplink) struct Findings {
    pub(in crate::uplink) beyond: Vec<Beyond>,
    pub(in crate::uplink) conflicts: Vec<String>,
    /// The reason why nothing is forwarded.
    pub(in crate::uplink) standby: Option<String>,
}

impl Findings {
    /// The sentences that the user should read.
    pub(super) fn sentences(&self) -> impl Iterator<Item = &String> {
        self.standby.iter().chain(&self.conflicts)
    }
}

/// The pages and changes since the roster's thread last looked.
pub(super) struct Heard {
    pub(super) pages: Vec<Vec<u8>>,
    /// Whether a member came or went, on either side.
    pub(super) changed: bool,
    /// The hardware addresses of the fabric's members.
    pub(super) living: HashSet<[u8; 6]>,
}

#[derive(Debug, Default)]
struct Inside {
    pages: Vec<Vec<u8>>,
    /// The bytes of these pages.
    bytes: usize,
    changed: bool,
    living: HashSet<[u8; 6]>,
    outgoing: Vec<Vec<u8>>,
    findings: Findings,
    closed: bool,
}

/// The state that both threads share.
#[derive(Debug)]
pub(in crate::uplink) struct Exchange {
    inside: Mutex<Inside>,
    news: Condvar,
    /// Gets the attention of the thread that forwards.
    bell: Arc<Doorbell>,
    has_outgoing: AtomicBool,
    stands_by: AtomicBool,
    malformed: AtomicU64,
}

impl Exchange {
    pub(in crate::uplink) fn new(bell: &Arc<Doorbell>) -> Exchange {
        Exchange {
            inside: Mutex::default(),
            news: Condvar::new(),
            bell: Arc::clone(bell),
            has_outgoing: AtomicBool::new(false),
            stands_by: AtomicBool::new(false),
            malformed: AtomicU64::new(0),
        }
    }

    /// A panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a page for the roster's thread.
    pub(super) fn hear(&self, page: Vec<u8>) {
        let mut inside = self.lock();
        if inside.pages.len() < MAX_PAGES && inside.bytes + page.len() <= MAX_BYTES {
            inside.bytes += page.len();
            inside.pages.push(page);
        }
        self.news.notify_all();
    }

    /// Notes that a member of the fabric came or went.
    pub(super) fn note_member(&self, change: NeighborChange) {
        let mut inside = self.lock();
        match change {
            NeighborChange::Joined(member) => inside.living.insert(member),
            NeighborChange::Left(member) => inside.living.remove(&member),
            NeighborChange::Bound { .. } | NeighborChange::Unbound { .. } => return,
        };
        inside.changed = true;
        self.news.notify_all();
    }

    /// Notes that another host came, which has received no page yet, or went.
    pub(super) fn note_host(&self) {
        self.lock().changed = true;
        self.news.notify_all();
    }

    /// The frames to be sent, if there are any.
    pub(super) fn outgoing(&self) -> Option<Vec<Vec<u8>>> {
        if !self.has_outgoing.load(Ordering::Relaxed) {
            return None;
        }
        let mut inside = self.lock();
        self.has_outgoing.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut inside.outgoing))
    }

    /// Whether nothing is to be forwarded.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    /// Waits for pages and changes, until `due` at longest. Returns `None` if no more will come.
    pub(super) fn wait(&self, due: Instant) -> Option<Heard> {
        let mut inside = self.lock();
        loop {
            if inside.closed {
                return None;
            }
            let left = due.saturating_duration_since(Instant::now());
            if !inside.pages.is_empty() || inside.changed || left.is_zero() {
                inside.bytes = 0;
                return Some(Heard {
                    pages: std::mem::take(&mut inside.pages),
                    changed: std::mem::take(&mut inside.changed),
                    living: inside.living.clone(),
                });
            }
            let waited = self.news.wait_timeout(inside, left);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has frames sent, in place of any that were not.
    pub(super) fn send(&self, frames: Vec<Vec<u8>>) {
        let mut inside = self.lock();
        inside.outgoing = frames;
        self.has_outgoing.store(true, Ordering::Relaxed);
        drop(inside);
        self.bell.ring();
    }

    pub(super) fn publish(&self, findings: &Findings) {
        self.stands_by
            .store(findings.standby.is_some(), Ordering::Relaxed);
        self.lock().findings = findings.clone();
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Frames for uplinks that were no pages of this version.
    pub(in crate::uplink) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// The present findings of the roster.
    pub(in crate::uplink) fn findings(&self) -> Findings {
        self.lock().findings.clone()
    }

    /// Ends the roster's thread.
    pub(in crate::uplink) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }
}
