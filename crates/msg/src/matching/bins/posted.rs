//! Posted receives by key.
//!
//! A message looks up one key for each class that has receives. Each key's receives are in
//! the order of their posting, so the least order among the heads is the oldest receive.

use super::super::key_table::KeyTable;
use super::super::selector::{MaskClass, Selector, TagEnvelope};
use crate::links::{Links, ListEnds, NO_PLACE};

/// Classes with keys. Receives of further classes share one list.
const MOST_CLASSES: usize = 16;

/// Where a receive is queued.
#[derive(Debug, Clone, Copy)]
enum ReceiveHome {
    /// Under a key of a class.
    Key { class: u8, key: u32 },
    /// In the list of classes beyond [`MOST_CLASSES`].
    Shared,
}

#[derive(Debug, Clone, Copy)]
struct QueuedReceive {
    selector: Selector,
    order: u64,
    home: ReceiveHome,
}

/// A class, and how many of its receives have keys.
#[derive(Debug, Clone, Copy)]
struct ClassUse {
    class: MaskClass,
    receives: u32,
}

/// Posted receives by class and key.
#[derive(Debug)]
pub(super) struct PostedBins {
    receives: Vec<Option<QueuedReceive>>,
    links: Links,
    keys: KeyTable,
    classes: Vec<ClassUse>,
    shared: ListEnds,
    examined: u64,
}

impl PostedBins {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Self {
            receives: Vec::new(),
            links: Links::default(),
            keys: KeyTable::new(secret),
            classes: Vec::with_capacity(MOST_CLASSES),
            shared: ListEnds::EMPTY,
            examined: 0,
        }
    }

    pub(super) fn examined(&self) -> u64 {
        self.examined + self.keys.examined()
    }

    pub(super) fn add(&mut self, place: u32, selector: Selector, order: u64) {
        let class = selector.class();
        let home = match self.number(class) {
            Some(number) => {
                self.classes[usize::from(number)].receives += 1;
                let key = class.key_of_selector(number, &selector);
                let key = self.keys.add(key, &mut self.links, place);
                ReceiveHome::Key { class: number, key }
            }
            None => {
                self.links.push_back(&mut self.shared, place);
                ReceiveHome::Shared
            }
        };
        let at = place as usize;
        if at >= self.receives.len() {
            self.receives.resize(at + 1, None);
        }
        self.receives[at] = Some(QueuedReceive {
            selector,
            order,
            home,
        });
    }

    /// The number of a class; a class without receives gives its number away.
    fn number(&mut self, class: MaskClass) -> Option<u8> {
        let known = self.classes.iter().position(|used| used.class == class);
        let number = known.or_else(|| {
            let fresh = ClassUse { class, receives: 0 };
            if let Some(unused) = self.classes.iter().position(|used| used.receives == 0) {
                self.classes[unused] = fresh;
                return Some(unused);
            }
            let has_room = self.classes.len() < MOST_CLASSES;
            has_room.then(|| {
                self.classes.push(fresh);
                self.classes.len() - 1
            })
        });
        number.map(|number| number as u8)
    }

    pub(super) fn take(&mut self, envelope: &TagEnvelope) -> Option<u32> {
        let mut oldest = (u64::MAX, NO_PLACE);
        for (number, used) in self.classes.iter().enumerate() {
            if used.receives == 0 {
                continue;
            }
            if let Some(key) = used.class.key_of_envelope(number as u8, envelope) {
                let place = self.keys.oldest(&key);
                oldest = oldest.min((self.order(place), place));
            }
        }
        let (_, place) = oldest.min(self.oldest_shared(envelope, oldest.0));
        self.remove(place).then_some(place)
    }

    fn order(&self, place: u32) -> u64 {
        let receive = self.receives.get(place as usize).and_then(Option::as_ref);
        receive.map_or(u64::MAX, |receive| receive.order)
    }

    /// The oldest receive in the shared list that takes the message, if it is older than
    /// `before`.
    fn oldest_shared(&mut self, envelope: &TagEnvelope, before: u64) -> (u64, u32) {
        let mut place = self.shared.head();
        while let Some(Some(receive)) = self.receives.get(place as usize) {
            if receive.order > before {
                break;
            }
            self.examined += 1;
            if receive.selector.takes(envelope) {
                return (receive.order, place);
            }
            place = self.links.after(place);
        }
        (u64::MAX, NO_PLACE)
    }

    pub(super) fn remove(&mut self, place: u32) -> bool {
        let receive = self.receives.get_mut(place as usize).and_then(Option::take);
        match receive.map(|receive| receive.home) {
            Some(ReceiveHome::Key { class, key }) => {
                self.classes[usize::from(class)].receives -= 1;
                self.keys.remove(key, &mut self.links, place);
            }
            Some(ReceiveHome::Shared) => self.links.unlink(&mut self.shared, place),
            None => return false,
        }
        true
    }
}
