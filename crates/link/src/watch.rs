//! Looking for frames without being the one who drives.

use toehold_shm::ring::Place;

/// Most places a thread looks at in turn; with more, looking at them all takes longer
/// than a round of the driver.
const MAX_PLACES: usize = 16;

/// Where the next frames of a link will appear, see [`Link::watch`](crate::Link::watch).
///
/// It can be looked at by any thread while others drive the link: the memory it looks
/// at stays mapped as long as it is kept. It tells of every frame that appears, and
/// may go on telling of frames that were taken since.
#[derive(Debug, Default)]
pub struct Watch {
    places: [Place; MAX_PLACES],
    used: usize,
}

impl Watch {
    /// One that looks at nothing yet. To be used again and again: filling it anew costs
    /// little as long as the link's neighbours stay the same.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Whether a frame has appeared since the watch was filled.
    #[inline]
    pub fn changed(&self) -> bool {
        self.places[..self.used].iter().any(Place::is_filled)
    }

    /// Looks at nothing. Memory stays mapped until places are used again.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Another place to look at, to be set by the link.
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
    fn a_watch_has_its_bound() {
        let mut watch = Watch::new();
        for _ in 0..2 {
            assert!(!watch.changed());
            for _ in 0..MAX_PLACES {
                assert!(watch.add().is_some());
            }
            assert!(watch.add().is_none());
            assert!(!watch.changed(), "nothing was set");
            watch.clear();
        }
    }
}
