//! Tag matching: which posted receive takes which message.
//!
//! A [`Matcher`] holds two queues: posted receives without a message, and unexpected
//! messages without a receive. Both are in the order in which the caller added entries.
//! Two choices give MPI's rules. An arriving message goes to the oldest receive that takes
//! it. A new receive gets the oldest message that it takes.
//!
//! The caller names entries by places in its own tables, which it keeps small and dense.
//! A [`MatchStrategy`] decides what a search costs, and never what it finds.

mod bins;
mod key_table;
mod list;
mod selector;
#[cfg(test)]
mod tests;

pub use selector::{Selector, SourceId, TagEnvelope};

use bins::MatchBins;
use list::MatchList;

/// How a matcher searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchStrategy {
    /// Walks one list, as the splinter paper and Portals do: O(entries before the match).
    List,
    /// Looks up one key for each class of masks in use: O(classes).
    #[default]
    Bins,
}

impl MatchStrategy {
    /// All strategies.
    pub const ALL: [Self; 2] = [Self::List, Self::Bins];
}

/// The queues of a strategy. Places are the caller's; a place is in a queue once.
trait MatchQueues: core::fmt::Debug + Send {
    /// Adds a receive as the youngest.
    fn post(&mut self, place: u32, selector: Selector, order: u64);

    /// Takes out the oldest receive that takes the message.
    fn take_posted(&mut self, envelope: &TagEnvelope) -> Option<u32>;

    /// Takes a receive out. Returns `false` if it is not queued.
    fn withdraw(&mut self, place: u32) -> bool;

    /// Adds a message as the youngest.
    fn arrive(&mut self, place: u32, envelope: TagEnvelope);

    /// Finds the oldest message that the receive takes.
    fn find_unexpected(&mut self, selector: &Selector) -> Option<u32>;

    /// Takes a message out. Returns `false` if it is not queued.
    fn remove_unexpected(&mut self, place: u32) -> bool;

    /// Entries and keys examined so far.
    fn examined(&self) -> u64;
}

/// The posted receives and the unexpected messages of an endpoint.
///
/// ```
/// use toehold_msg::matching::{MatchStrategy, Matcher, Selector, SourceId, TagEnvelope};
/// let mut matcher = Matcher::new(MatchStrategy::Bins, [1, 2]);
/// let envelope = TagEnvelope { tag: 7, source: SourceId(1), is_tagged: true };
/// assert_eq!(matcher.arrive(0, envelope), None);
/// assert_eq!(matcher.post(0, Selector::tagged(6)), None);
/// assert_eq!(matcher.post(1, Selector::tagged(6).ignoring(1)), Some(0));
/// ```
#[derive(Debug)]
pub struct Matcher {
    queues: Box<dyn MatchQueues>,
    order: u64,
    posted: u32,
    unexpected: u32,
}

impl Matcher {
    /// Creates a matcher without entries. `secret` keeps peers from choosing tags that
    /// collide; draw it at random.
    #[must_use]
    pub fn new(strategy: MatchStrategy, secret: [u64; 2]) -> Self {
        let queues: Box<dyn MatchQueues> = match strategy {
            MatchStrategy::List => Box::new(MatchList::default()),
            MatchStrategy::Bins => Box::new(MatchBins::new(secret)),
        };
        Self {
            queues,
            order: 0,
            posted: 0,
            unexpected: 0,
        }
    }

    /// Matches a new receive. Returns the place of its message, which leaves the queue, or
    /// queues the receive under `receive`.
    pub fn post(&mut self, receive: u32, selector: Selector) -> Option<u32> {
        if let Some(message) = self.claim(&selector) {
            return Some(message);
        }
        self.queues.post(receive, selector, self.order);
        self.order += 1;
        self.posted += 1;
        None
    }

    /// Matches an arriving message. Returns the place of its receive, which leaves the
    /// queue, or queues the message under `message`.
    pub fn arrive(&mut self, message: u32, envelope: TagEnvelope) -> Option<u32> {
        if self.posted > 0
            && let Some(receive) = self.queues.take_posted(&envelope)
        {
            self.posted -= 1;
            return Some(receive);
        }
        self.queues.arrive(message, envelope);
        self.unexpected += 1;
        None
    }

    /// Takes a receive out. Returns `false` if it is not queued.
    pub fn cancel(&mut self, receive: u32) -> bool {
        let is_queued = self.queues.withdraw(receive);
        self.posted -= u32::from(is_queued);
        is_queued
    }

    /// Returns the place of the oldest message that the receive would get.
    pub fn peek(&mut self, selector: &Selector) -> Option<u32> {
        if self.unexpected == 0 {
            return None;
        }
        self.queues.find_unexpected(selector)
    }

    /// Takes out the oldest message that the receive would get.
    pub fn claim(&mut self, selector: &Selector) -> Option<u32> {
        let message = self.peek(selector)?;
        self.discard(message).then_some(message)
    }

    /// Takes a message out. Returns `false` if it is not queued.
    pub fn discard(&mut self, message: u32) -> bool {
        let is_queued = self.queues.remove_unexpected(message);
        self.unexpected -= u32::from(is_queued);
        is_queued
    }

    /// Returns the number of queued receives.
    #[must_use]
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// Returns the number of queued messages.
    #[must_use]
    pub fn unexpected(&self) -> u32 {
        self.unexpected
    }

    /// Returns the number of entries and keys that searches have examined so far.
    #[must_use]
    pub fn examined(&self) -> u64 {
        self.queues.examined()
    }
}
