//! The congestion window: bytes that a flow through a network may have under way.

use toehold_wire::rmpp::Seq;

/// The window of a new flow, in bytes.
const FIRST_WINDOW: u64 = 256 << 10;
/// Most bytes of a window: more is bounded by grants.
const MOST_WINDOW: u64 = 4 << 20;

/// A window that is halved at a loss and grows by a frame a round trip.
#[derive(Debug, Clone)]
pub(crate) struct CongestionWindow {
    bytes: u64,
    /// Bytes acknowledged since the last growth.
    acknowledged: u64,
    /// Losses before this number belong to one event.
    recovered_at: Seq,
}

impl CongestionWindow {
    pub(crate) fn new() -> Self {
        Self {
            bytes: FIRST_WINDOW,
            acknowledged: 0,
            recovered_at: Seq(0),
        }
    }

    /// Whether another packet may go beside so many bytes. One always may.
    pub(crate) fn has_room(&self, under_way: u64) -> bool {
        under_way == 0 || under_way < self.bytes
    }

    /// Grows by `frame` bytes once a window of bytes has been acknowledged.
    pub(crate) fn acknowledge(&mut self, bytes: u64, frame: u64) {
        self.acknowledged += bytes;
        if self.acknowledged >= self.bytes {
            self.acknowledged = 0;
            self.bytes = (self.bytes + frame).min(MOST_WINDOW);
        }
    }

    /// Halves for a loss of packet `lost`, once for all packets before `next`.
    pub(crate) fn lose(&mut self, lost: Seq, next: Seq, frame: u64) {
        if lost.ge(self.recovered_at) {
            self.recovered_at = next;
            self.acknowledged = 0;
            self.bytes = (self.bytes / 2).max(frame * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_one_window_halve_once() {
        let mut window = CongestionWindow::new();
        window.lose(Seq(3), Seq(10), 1500);
        window.lose(Seq(7), Seq(12), 1500);
        assert_eq!(window.bytes, FIRST_WINDOW / 2);
        window.lose(Seq(10), Seq(20), 1500);
        assert_eq!(window.bytes, FIRST_WINDOW / 4);
        (0..100).for_each(|seq| window.lose(Seq(20 + seq), Seq(21 + seq), 1500));
        assert_eq!(window.bytes, 3000);
        window.acknowledge(3000, 1500);
        assert_eq!(window.bytes, 4500);
        assert!(window.has_room(0) && window.has_room(4499) && !window.has_room(4500));
    }
}
