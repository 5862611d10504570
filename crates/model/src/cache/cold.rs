//! Caches that begin empty: the first requests miss however large the cache is.

use super::files::{CacheFile, CacheFiles};
use super::lru::{LruCache, present};

/// The hit ratio of one file over the first `requests` requests of all files. With k requests
/// before, a request hits with the chance 1 − e^(−p·min(k, T)).
pub fn cold_hits_of(cache: &LruCache, file: CacheFile, requests: u64) -> f64 {
    let (share, stays) = (file.share, cache.stays(file));
    if requests == 0 || share <= 0.0 {
        return 0.0;
    }
    // While the cache fills, request k has k before it: a geometric sum.
    let filling = stays.ceil().min(requests as f64);
    let step = (-share).exp();
    let missed = if share < 1e-12 {
        filling
    } else {
        (-(-share * filling).exp_m1()) / (1.0 - step)
    };
    let later = requests as f64 - filling;
    let full = if later > 0.0 {
        later * present(share, stays)
    } else {
        0.0
    };
    ((filling - missed + full) / requests as f64).clamp(0.0, 1.0)
}

/// The hit ratio of all files over the first `requests` requests to an empty cache.
///
/// ```
/// use toehold_model::cache::{CacheFiles, LruCache, cold_hits};
///
/// let files = CacheFiles::new(&[1.0; 100], &[1000; 100]).unwrap();
/// let cache = LruCache::new(&files, 100_000);
/// assert!((cold_hits(&cache, &files, 100) - 0.37).abs() < 0.01); // 1/e of all files are new.
/// assert!(cold_hits(&cache, &files, 100_000) > 0.99);
/// ```
pub fn cold_hits(cache: &LruCache, files: &CacheFiles, requests: u64) -> f64 {
    files.weighed(|file| cold_hits_of(cache, file, requests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::SimulatedLru;
    use crate::cache::lru::tests::{Requests, log_uniform};

    #[test]
    fn first_requests_are_near_the_simulated_cache() {
        let files = log_uniform(600, 1e6, 0.9, 8);
        let sizes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
        for (part, requests) in [(0.1, 2_000), (0.5, 1_000), (1.0, 3_000)] {
            let capacity = (files.bytes() as f64 * part) as u64;
            let runs = 100;
            let mut draws = Requests::new(&files, 5);
            let hits: u64 = (0..runs)
                .map(|_| {
                    let mut cache = SimulatedLru::new(capacity);
                    for _ in 0..requests {
                        let file = draws.next();
                        cache.ask(file, sizes[file]);
                    }
                    cache.counts().hits
                })
                .sum();
            let counted = hits as f64 / (runs * requests) as f64;
            let model = cold_hits(&LruCache::new(&files, capacity), &files, requests);
            assert!((model - counted).abs() < 0.015, "{part}: {model} {counted}");
        }
    }

    #[test]
    fn sum_is_the_mean_over_requests() {
        let files = log_uniform(40, 1e5, 0.8, 1);
        let cache = LruCache::new(&files, files.bytes() / 3);
        for file in files.iter() {
            let requests = 150;
            let each = |k: u64| present(file.share, (k as f64).min(cache.stays(file)));
            let mean = (0..requests).map(each).sum::<f64>() / requests as f64;
            assert!((cold_hits_of(&cache, file, requests) - mean).abs() < 1e-9);
        }
    }

    #[test]
    fn long_run_reaches_the_warm_ratio() {
        let files = log_uniform(300, 1e6, 0.9, 6);
        let cache = LruCache::new(&files, files.bytes() / 4);
        let (cold, warm) = (cold_hits(&cache, &files, 100_000_000), cache.hits(&files).ratio);
        assert!((cold - warm).abs() < 1e-3, "{cold} {warm}");
        assert_eq!(cold_hits(&cache, &files, 0), 0.0);
    }
}
