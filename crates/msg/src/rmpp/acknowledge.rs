//! When a receiver acknowledges without other packets to carry it.

use crate::moment::Moment;

/// Packets after which an acknowledgement goes alone.
const MOST_PACKETS: u32 = 32;
/// Time after which an acknowledgement goes alone, in nanoseconds.
const DELAY_NS: u64 = 50_000;

/// The acknowledgement that a receiver owes.
#[derive(Debug, Clone)]
pub(crate) struct AckSchedule {
    packets: u32,
    at: Moment,
    is_due: bool,
}

impl AckSchedule {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            at: Moment::NEVER,
            is_due: false,
        }
    }

    /// Notes a packet of a path that may lose packets.
    pub(crate) fn packet(&mut self, now: Moment) {
        self.packets += 1;
        if self.packets >= MOST_PACKETS {
            self.is_due = true;
        } else if self.packets == 1 {
            self.at = now.plus_ns(DELAY_NS);
        }
    }

    /// Asks for an acknowledgement at once.
    pub(crate) fn hurry(&mut self) {
        self.is_due = true;
    }

    /// Notes the time. Returns `true` if an acknowledgement became due.
    pub(crate) fn pass(&mut self, now: Moment) -> bool {
        let is_late = self.at <= now;
        self.is_due |= is_late;
        if is_late {
            self.at = Moment::NEVER;
        }
        is_late
    }

    /// Whether an acknowledgement goes with the next packet, or alone if there is none.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// When an acknowledgement becomes due by itself.
    pub(crate) fn at(&self) -> Moment {
        self.at
    }

    /// Notes that a packet has carried the acknowledgement.
    pub(crate) fn sent(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement_is_due_after_packets_or_time() {
        let mut schedule = AckSchedule::new();
        schedule.packet(Moment(0));
        assert!(!schedule.is_due() && schedule.at() == Moment(DELAY_NS));
        assert!(!schedule.pass(Moment(DELAY_NS - 1)) && schedule.pass(Moment(DELAY_NS)));
        assert!(schedule.is_due());
        schedule.sent();
        assert!(!schedule.is_due() && schedule.at() == Moment::NEVER);
        (0..MOST_PACKETS).for_each(|_| schedule.packet(Moment(0)));
        assert!(schedule.is_due());
    }
}
