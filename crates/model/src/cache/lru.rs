//! A least-recently-used cache by Che's approximation, with files of any size.
//!
//! A file stays for a time T after its last request, the same T for all files. T is the one for
//! which the files that are present fill the cache (Che, Tung and Wang, "Hierarchical web caching
//! systems", 2002). Files that are larger than the cache are left out.

use super::files::{CacheFile, CacheFiles};

/// Halvings of the interval in which T lies: more than a double's digits.
const HALVINGS: u32 = 200;

/// The time for which a file stays in a cache after its last request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LruCache {
    capacity: u64,
    /// In requests; infinite if all files that can be in the cache fit at once.
    stays: f64,
}

/// What a cache does for a set of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LruHits {
    /// Hits as a share of requests.
    pub ratio: f64,
    /// Bytes of misses a request.
    pub missed_bytes: f64,
}

impl LruCache {
    /// Works out how long files stay in a cache of `capacity` bytes.
    ///
    /// ```
    /// use toehold_model::cache::{CacheFiles, LruCache, zipf};
    ///
    /// let files = CacheFiles::new(&zipf(1000, 0.9), &[1000; 1000]).unwrap();
    /// let cache = LruCache::new(&files, 100_000);
    /// assert!((cache.hits(&files).ratio - 0.457).abs() < 0.1);
    /// ```
    pub fn new(files: &CacheFiles, capacity: u64) -> Self {
        let fits = |file: &CacheFile| file.bytes <= capacity && file.share > 0.0;
        let all = files
            .iter()
            .filter(fits)
            .map(|file| file.bytes as f64)
            .sum::<f64>();
        let stays = if all <= capacity as f64 {
            f64::INFINITY
        } else {
            let held = |stays: f64| {
                let files = files.iter().filter(fits);
                files
                    .map(|file| file.bytes as f64 * present(file.share, stays))
                    .sum()
            };
            stays_until(held, capacity as f64)
        };
        Self { capacity, stays }
    }

    /// Returns one of `number` such caches that share all requests evenly. A file stays in it for
    /// so many times the requests of all.
    pub(super) fn slower(self, number: u32) -> Self {
        Self {
            stays: self.stays * f64::from(number),
            ..self
        }
    }

    /// Requests for which a file stays after its last one: 0 if it is larger than the cache.
    pub fn stays(&self, file: CacheFile) -> f64 {
        if file.bytes <= self.capacity {
            self.stays
        } else {
            0.0
        }
    }

    /// The chance that a file is in the cache, which is its hit ratio.
    pub fn hit(&self, file: CacheFile) -> f64 {
        present(file.share, self.stays(file))
    }

    /// The hits of all files.
    pub fn hits(&self, files: &CacheFiles) -> LruHits {
        LruHits {
            ratio: files.weighed(|file| self.hit(file)),
            missed_bytes: files.weighed(|file| (1.0 - self.hit(file)) * file.bytes as f64),
        }
    }
}

/// The chance that a request at `rate` came within `span`.
pub(super) fn present(rate: f64, span: f64) -> f64 {
    // Zero times infinity is no request.
    if rate <= 0.0 {
        0.0
    } else {
        -(-rate * span).exp_m1()
    }
}

/// Finds the span for which `held` is `capacity`. `held` grows with the span, from 0 to more than
/// the capacity.
pub(super) fn stays_until(held: impl Fn(f64) -> f64, capacity: f64) -> f64 {
    let (mut least, mut most) = (0.0, 1.0);
    while held(most) < capacity && most < f64::MAX / 4.0 {
        least = most;
        most *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = least + (most - least) / 2.0;
        if held(middle) < capacity {
            least = middle;
        } else {
            most = middle;
        }
    }
    most
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cache::{SimulatedLru, zipf};

    /// Files with sizes that are log-uniform between 1 KB and `largest`, in an order that a seed decides.
    pub(in crate::cache) fn log_uniform(number: usize, largest: f64, alpha: f64, seed: u64) -> CacheFiles {
        let place = |index: usize| (index as f64 + 0.5) / number as f64;
        let size = |index| (1000.0 * (largest / 1000.0_f64).powf(place(index))) as u64;
        let mut sizes: Vec<u64> = (0..number).map(size).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut sizes);
        CacheFiles::new(&zipf(number, alpha), &sizes).unwrap()
    }

    /// Draws files by their shares.
    pub(in crate::cache) struct Requests {
        sums: Vec<f64>,
        random: fastrand::Rng,
    }

    impl Requests {
        pub(in crate::cache) fn new(files: &CacheFiles, seed: u64) -> Self {
            let mut sum = 0.0;
            let sums = files.iter().map(|file| {
                sum += file.share;
                sum
            });
            Self {
                sums: sums.collect(),
                random: fastrand::Rng::with_seed(seed),
            }
        }

        pub(in crate::cache) fn next(&mut self) -> usize {
            let at = self.random.f64() * self.sums.last().unwrap();
            self.sums
                .partition_point(|sum| *sum <= at)
                .min(self.sums.len() - 1)
        }

        pub(in crate::cache) fn below(&mut self, number: usize) -> usize {
            self.random.usize(..number)
        }
    }

    #[test]
    fn formula_is_near_the_simulated_cache() {
        for (number, largest, alpha) in [
            (541, 250e3, 0.9),
            (893, 4e6, 0.9),
            (900, 16e6, 0.6),
            (500, 1e5, 1.2),
        ] {
            let files = log_uniform(number, largest, alpha, 5);
            for part in [0.05, 0.2, 0.6] {
                let capacity = (files.bytes() as f64 * part) as u64;
                let mut simulated = SimulatedLru::new(capacity);
                let mut requests = Requests::new(&files, 11);
                let sizes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
                for request in 0..300_000 {
                    if request == 60_000 {
                        simulated.count_again();
                    }
                    let file = requests.next();
                    simulated.ask(file, sizes[file]);
                }
                let counts = simulated.counts();
                let model = LruCache::new(&files, capacity).hits(&files);
                let off = (model.ratio - counts.ratio()).abs();
                assert!(
                    off < 0.012,
                    "{number} files, α {alpha}, {part}: {} {}",
                    model.ratio,
                    counts.ratio()
                );
                let missed = counts.missed_bytes as f64 / counts.requests as f64;
                let off = (model.missed_bytes / missed - 1.0).abs();
                assert!(
                    off < 0.05,
                    "{number} files, α {alpha}, {part}: {} {missed}",
                    model.missed_bytes
                );
            }
        }
    }

    #[test]
    fn cache_of_nothing_never_hits_and_cache_of_all_always() {
        let files = log_uniform(50, 1e6, 0.9, 1);
        assert_eq!(LruCache::new(&files, 0).hits(&files).ratio, 0.0);
        let all = LruCache::new(&files, files.bytes()).hits(&files);
        assert!((all.ratio - 1.0).abs() < 1e-12 && all.missed_bytes.abs() < 1e-6);
    }

    #[test]
    fn larger_cache_hits_more() {
        let files = log_uniform(300, 1e6, 0.9, 2);
        let ratio = |part: u64| {
            LruCache::new(&files, files.bytes() * part / 20)
                .hits(&files)
                .ratio
        };
        for part in 0..20 {
            assert!(ratio(part) < ratio(part + 1), "{part}");
        }
    }

    #[test]
    fn file_that_fits_not_is_never_there() {
        let files = CacheFiles::new(&[1.0, 1.0], &[100, 1000]).unwrap();
        let cache = LruCache::new(&files, 500);
        let hits: Vec<f64> = files.iter().map(|file| cache.hit(file)).collect();
        assert_eq!(hits, [1.0, 0.0]);
    }
}
