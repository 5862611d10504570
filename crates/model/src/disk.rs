//! The demand on a disk by files that a cache does not have.

use serde::{Deserialize, Serialize};

use crate::cache::{CacheFiles, TwoLevels};

/// Speeds of a disk, as its reads need them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DiskSpeeds {
    /// Seconds that each request costs.
    pub overhead: f64,
    /// Seconds of a seek and half a turn, which a request pays that does not follow the one before.
    pub positioning: f64,
    /// Bytes a second.
    pub rate: f64,
    /// Bytes of one request: a longer file takes several.
    pub read_ahead: u64,
    /// The share of a file's later requests that pay positioning too, since another file was read
    /// between: 0 for one reader.
    pub interleaved: f64,
}

impl DiskSpeeds {
    /// Seconds of service that reading a whole file takes.
    ///
    /// ```
    /// use toehold_model::disk::DiskSpeeds;
    ///
    /// let disk = DiskSpeeds {
    ///     overhead: 0.1e-3,
    ///     positioning: 12e-3,
    ///     rate: 40e6,
    ///     read_ahead: 128 << 10,
    ///     interleaved: 0.0,
    /// };
    /// assert!((disk.read(1_000_000) - (8.0 * 0.1e-3 + 12e-3 + 25e-3)).abs() < 1e-12);
    /// ```
    pub fn read(&self, bytes: u64) -> f64 {
        let requests = bytes.div_ceil(self.read_ahead.max(1)).max(1) as f64;
        let positions = 1.0 + self.interleaved.clamp(0.0, 1.0) * (requests - 1.0);
        requests * self.overhead + positions * self.positioning + bytes as f64 / self.rate
    }

    /// Seconds of all disks' service that a request of a site needs in the mean, behind two levels of
    /// caches. `files` and `pages` are those of [`TwoLevels::new`].
    pub fn demand(&self, levels: &TwoLevels, files: &CacheFiles, pages: &CacheFiles) -> f64 {
        let pairs = files.iter().zip(pages.iter());
        pairs
            .map(|(file, page)| {
                let missed = (1.0 - levels.first_hit(file)) * (1.0 - levels.second_hit(file, page));
                file.share * missed * self.read(page.bytes)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{WebServers, zipf};

    fn speeds(interleaved: f64) -> DiskSpeeds {
        DiskSpeeds {
            overhead: 0.0,
            positioning: 1.0,
            rate: 1e6,
            read_ahead: 100_000,
            interleaved,
        }
    }

    #[test]
    fn interleaved_reads_pay_positioning_again() {
        assert_eq!(speeds(0.0).read(1_000_000), 2.0);
        assert_eq!(speeds(0.5).read(1_000_000), 1.0 + 0.5 * 9.0 + 1.0);
        assert_eq!(speeds(1.0).read(0), 1.0);
    }

    #[test]
    fn demand_without_caches_is_the_mean_read() {
        let files = CacheFiles::new(&zipf(20, 0.9), &[409_600; 20]).unwrap();
        let servers = WebServers { number: 2, cache: 0 };
        let levels = TwoLevels::new(&files, &files, 3, 0, servers);
        let demand = speeds(0.2).demand(&levels, &files, &files);
        assert!((demand - speeds(0.2).read(409_600)).abs() < 1e-9);
    }
}
