//! What a disk counts, and how late it is by the block layer's own count.

use serde::{Deserialize, Serialize};

use crate::head::{HeadTimes, Transfer};

/// Counters of a disk since its begin, or since they were reset. Only requests while the disk's
/// clock is on are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// Reads and writes.
    pub requests: u64,
    /// Requests that begin where the one before ended, on all of their heads.
    pub sequential: u64,
    /// Requests to wait for those before them.
    pub flushes: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Nanoseconds from arrival to begin, by the law, summed over requests.
    pub waited_ns: u64,
    /// Nanoseconds from begin to end, by the law, summed over requests.
    pub served_ns: u64,
    /// Nanoseconds of service, summed over heads.
    pub busy_ns: u64,
    /// Nanoseconds from the time that the law says to the reply, summed over replies that waited for
    /// it. Early replies are negative.
    pub late_ns: i64,
    /// The latest reply, in nanoseconds after the time that the law says.
    pub latest_ns: i64,
}

impl DiskCounters {
    /// Counts a request of `bytes` that came at `at_ns`.
    pub(crate) fn count(&mut self, at_ns: u64, times: HeadTimes, bytes: u64, transfer: Transfer) {
        self.requests += 1;
        self.sequential += u64::from(times.is_sequential);
        self.waited_ns += times.begins_ns - at_ns;
        self.served_ns += times.service_ns();
        match transfer {
            Transfer::Read => self.read_bytes += bytes,
            Transfer::Write => self.written_bytes += bytes,
        }
    }

    /// Counts a reply that is late by so many nanoseconds.
    pub(crate) fn replied(&mut self, late_ns: i64) {
        self.late_ns += late_ns;
        self.latest_ns = self.latest_ns.max(late_ns);
    }
}

/// The block layer's count of a loop device, from its `stat` file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLayer {
    /// Reads and writes that are done.
    pub requests: u64,
    /// Milliseconds from each request's begin to its end, summed over requests.
    pub time_ms: u64,
}

impl BlockLayer {
    /// Reads the text of `/sys/block/…/stat`. Returns `None` if it is not of that form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let [reads, _, _, read_ms, writes, _, _, write_ms] = [
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
        ];
        Some(Self {
            requests: reads.checked_add(writes)?,
            time_ms: read_ms.checked_add(write_ms)?,
        })
    }

    /// Returns what was counted after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            time_ms: self.time_ms.saturating_sub(earlier.time_ms),
        }
    }

    /// Returns the lateness of a disk as a share of its mean service, or `None` without requests. The
    /// lateness is the block layer's mean time a request, less the law's mean wait and service.
    pub fn late_share(self, law: &DiskCounters) -> Option<f64> {
        if self.requests == 0 || law.requests == 0 || law.served_ns == 0 {
            return None;
        }
        let took = self.time_ms as f64 * 1e6 / self.requests as f64;
        let requests = law.requests as f64;
        let meant = (law.waited_ns + law.served_ns) as f64 / requests;
        Some((took - meant) / (law.served_ns as f64 / requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_device_is_read() {
        let text = "     100        0     8000      250       20        0      160      50        0      210      300        0 0 0 0 3 1\n";
        let block = BlockLayer {
            requests: 120,
            time_ms: 300,
        };
        assert_eq!(BlockLayer::parse(text), Some(block));
        for wrong in ["", "1 2 3", "1 2 3 x 5 6 7 8", "1 2 3 -4 5 6 7 8"] {
            assert_eq!(BlockLayer::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lateness_is_what_the_block_layer_adds_to_the_law() {
        let law = DiskCounters {
            requests: 100,
            waited_ns: 100_000_000,
            served_ns: 200_000_000,
            ..DiskCounters::default()
        };
        let block = BlockLayer {
            requests: 100,
            time_ms: 310,
        };
        let late = block.late_share(&law).unwrap();
        assert!((late - 0.05).abs() < 1e-9, "{late}");
        assert_eq!(block.since(block).late_share(&law), None);
        assert_eq!(block.late_share(&DiskCounters::default()), None);
    }
}
