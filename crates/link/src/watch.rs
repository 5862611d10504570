//! Looks for frames from a thread that does not drive the link.

use toehold_shm::ring::Place;

/// Most places that a thread polls. Polling more would take longer than a round of
/// the driver.
const MAX_PLACES: usize = 16;

/// Places where the next frames of a link will appear, see
/// [`Link::watch`](crate::Link::watch).
///
/// Any thread can poll it while others drive the link: it keeps the memory mapped.
/// It reports every frame that appears, and may still report frames that were taken
/// since.
#[derive(Debug, Default)]
pub struct Watch {
    places: [Place; MAX_PLACES],
    used: usize,
}

impl Watch {
    /// Creates a watch without places. Reuse it: filling it again is cheap while
    /// the link's neighbours stay the same.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Returns whether a frame has appeared since the watch was filled.
    #[inline]
    pub fn changed(&self) -> bool {
        self.places[..self.used].iter().any(Place::is_filled)
    }

    /// Removes all places. Memory stays mapped until places are used again.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds a place, which the link then sets.
    #[inline]
    pub(crate) fn add(&mut self) -> Option<&mut Place> {
        let place = self.places.get_mut(self.used)?;
        self.used += 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_has_bounded_places() {
        let mut watch = Watch::new();
        for _ in 0..2 {
            assert!(!watch.changed());
            for _ in 0..MAX_PLACES {
                assert!(watch.add().is_some());
            }
            assert!(watch.add().is_none());
            assert!(!watch.changed(), "no place was set");
            watch.clear();
        }
    }
}
