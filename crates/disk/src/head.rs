//! One head: requests in order of arrival, each with seek, rotation and transfer.

use crate::speeds::HeadSpeeds;

/// The direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// When a head serves a request. Times are nanoseconds of the caller's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadTimes {
    /// The head is free for this request.
    pub begins_ns: u64,
    /// The first byte is beneath the head.
    pub transfers_ns: u64,
    /// The last byte is over.
    pub done_ns: u64,
    /// The request begins where the one before ended.
    pub is_sequential: bool,
}

impl HeadTimes {
    /// Nanoseconds from the request's begin to its end.
    pub fn service_ns(&self) -> u64 {
        self.done_ns - self.begins_ns
    }
}

/// One head over one disk.
///
/// ```
/// use toehold_disk::{DiskHead, DiskKind, Transfer};
///
/// let speeds = DiskKind::named("scsi").unwrap().head;
/// let mut head = DiskHead::new(speeds, 1 << 30);
/// let first = head.serve(0, 0, 60_000, Transfer::Read, 0.0);
/// assert!(first.is_sequential); // The head rests at the disk's begin.
/// assert_eq!(first.done_ns, 100_000 + 1_000_000); // 0.1 ms, and 60 KB at 60 MB/s.
/// ```
#[derive(Debug, Clone)]
pub struct DiskHead {
    speeds: HeadSpeeds,
    capacity: u64,
    /// The byte after the last request's end.
    position: u64,
    free_ns: u64,
}

impl DiskHead {
    /// Makes a head that rests at the begin of a disk of `capacity` bytes.
    pub fn new(speeds: HeadSpeeds, capacity: u64) -> Self {
        Self {
            speeds,
            capacity: capacity.max(1),
            position: 0,
            free_ns: 0,
        }
    }

    /// Serves a request that comes at `at_ns`, of `bytes` from `offset`. `turn` is the part of a turn
    /// after which the bytes are beneath the head, 0 to 1. A sequential request does not wait for it.
    pub fn serve(&mut self, at_ns: u64, offset: u64, bytes: u64, transfer: Transfer, turn: f64) -> HeadTimes {
        let begins_ns = at_ns.max(self.free_ns);
        let is_sequential = offset == self.position;
        let positioning = if is_sequential {
            0.0
        } else {
            let share = offset.abs_diff(self.position) as f64 / self.capacity as f64;
            self.speeds.seek_ns(share) + turn.clamp(0.0, 1.0) * self.speeds.turn_ns()
        };
        let transfers_ns = begins_ns + (self.speeds.overhead_ns() + positioning) as u64;
        self.free_ns = transfers_ns + self.speeds.transfer_ns(bytes, transfer) as u64;
        self.position = offset.saturating_add(bytes);
        HeadTimes {
            begins_ns,
            transfers_ns,
            done_ns: self.free_ns,
            is_sequential,
        }
    }

    /// When the last request so far is done, in nanoseconds of the caller's clock.
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// Keeps the head busy until `free_ns` at least.
    pub fn rest_until(&mut self, free_ns: u64) {
        self.free_ns = self.free_ns.max(free_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speeds::DiskKind;

    const CAPACITY: u64 = 1 << 40;

    fn speeds(name: &str) -> HeadSpeeds {
        DiskKind::named(name).unwrap().head
    }

    #[test]
    fn mean_of_random_requests_is_the_law() {
        for name in ["ide", "scsi"] {
            for scale in [1, 8] {
                let speeds = speeds(name).scaled(scale);
                let mut head = DiskHead::new(speeds, CAPACITY);
                let mut random = fastrand::Rng::with_seed(7);
                let (number, bytes) = (200_000, 16 << 10);
                let mut total = 0;
                for _ in 0..number {
                    let offset = random.u64(..CAPACITY);
                    let turn = random.f64();
                    total += head.serve(0, offset, bytes, Transfer::Read, turn).service_ns();
                }
                let mean = total as f64 / f64::from(number);
                let law = speeds.mean_service_ns(bytes, Transfer::Read, 0.0);
                assert!((mean / law - 1.0).abs() < 0.005, "{name} ÷ {scale}: {mean} {law}");
            }
        }
    }

    #[test]
    fn sequential_request_pays_overhead_and_transfer_only() {
        let speeds = speeds("ide");
        let mut head = DiskHead::new(speeds, CAPACITY);
        let first = head.serve(0, 1 << 30, 4096, Transfer::Read, 0.5);
        let second = head.serve(0, (1 << 30) + 4096, 4096, Transfer::Read, 0.5);
        assert!(!first.is_sequential && second.is_sequential);
        let law = speeds.mean_service_ns(4096, Transfer::Read, 1.0);
        assert!((second.service_ns() as f64 - law).abs() < 2.0);
    }

    #[test]
    fn request_at_busy_head_waits_for_those_before() {
        let mut head = DiskHead::new(speeds("scsi"), CAPACITY);
        let first = head.serve(1000, 0, 1 << 20, Transfer::Write, 0.0);
        let second = head.serve(2000, 1 << 20, 1 << 20, Transfer::Write, 0.0);
        let late = head.serve(second.done_ns + 5, 0, 512, Transfer::Read, 0.0);
        assert_eq!(first.begins_ns, 1000);
        assert_eq!(second.begins_ns, first.done_ns);
        assert_eq!(late.begins_ns, second.done_ns + 5);
        assert_eq!(head.free_ns(), late.done_ns);
    }

    #[test]
    fn seek_grows_with_distance_from_a_tenth_of_the_average() {
        let speeds = speeds("ide");
        let average = speeds.seek_ms * 1e6;
        assert_eq!(speeds.seek_ns(0.0), average / 10.0);
        assert!((speeds.seek_ns(1.0) / average - 1.7875).abs() < 1e-9);
        assert!(speeds.seek_ns(0.2) < speeds.seek_ns(0.3));
    }
}
