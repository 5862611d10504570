//! Two levels of caches: proxies, and the page caches of web servers behind them.
//!
//! A proxy passes on what it misses. After a request for a file, a proxy asks for that file no more
//! until a gap of T₁ without requests has passed. So misses are no Poisson process, and T₁ shapes
//! what the second level sees.

use super::files::{CacheFile, CacheFiles};
use super::lru::{LruCache, present, stays_until};

/// Multiples of T₁ up to which the survival is summed as a series; beyond, its slowest exponential
/// part is all that is left.
const SERIES: f64 = 20.0;

/// Steps of the iteration for that part's rate.
const STEPS: u32 = 500;

/// Misses of one proxy for one file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Misses {
    /// Misses a request of the whole site: q·e^(−qT₁).
    rate: f64,
    /// T₁ of this file.
    stays: f64,
}

impl Misses {
    fn of(proxies: u32, cache: &LruCache, file: CacheFile) -> Self {
        let asked = file.share / f64::from(proxies);
        let stays = cache.stays(CacheFile { share: asked, ..file });
        let rate = if asked <= 0.0 {
            0.0
        } else {
            asked * (-asked * stays).exp()
        };
        Self { rate, stays }
    }

    /// The chance that no miss follows a request within `span`:
    /// G(t) = Σₖ (−a)ᵏ(t − kT₁)₊ᵏ/k!, the solution of G′(t) = −a·G(t − T₁).
    fn none_within(self, span: f64) -> f64 {
        if self.rate <= 0.0 || span <= self.stays {
            return 1.0;
        }
        if self.stays <= 0.0 {
            return (-self.rate * span).exp();
        }
        let turns = span / self.stays;
        if turns > SERIES {
            let decays = self.decay() * (turns - SERIES);
            return self.series(SERIES * self.stays) * (-decays).exp();
        }
        self.series(span)
    }

    fn series(self, span: f64) -> f64 {
        let (mut sum, mut sign, mut factorial) = (1.0, 1.0, 1.0);
        for k in 1..=SERIES as u32 {
            let left = span - f64::from(k) * self.stays;
            if left <= 0.0 {
                break;
            }
            sign = -sign;
            factorial *= f64::from(k);
            sum += sign * (self.rate * left).powi(k as i32) / factorial;
        }
        sum.clamp(0.0, 1.0)
    }

    /// The part by which survival decays in T₁: the least x with x = aT₁·eˣ, which is at most 1.
    fn decay(self) -> f64 {
        let product = self.rate * self.stays;
        (0..STEPS).fold(0.0, |x: f64, _| (product * x.exp()).min(1.0))
    }

    /// The chance that no miss comes within `span` of a moment that no request decides.
    fn none_around(self, span: f64) -> f64 {
        self.none_within(self.stays + span)
    }
}

/// The page caches behind the proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebServers {
    /// Web servers, among which a balancer draws at random.
    pub number: u32,
    /// Bytes of files that each can keep.
    pub cache: u64,
}

/// Proxies with caches before web servers with caches. Clients ask a proxy at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoLevels {
    proxies: u32,
    first: LruCache,
    servers: WebServers,
    /// T₂, in requests of the whole site.
    second_stays: f64,
}

/// What two levels do for a set of files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondLevel {
    /// Hits of proxies, as a share of requests.
    pub first: f64,
    /// Hits of web servers' page caches, as a share of the requests that proxies miss.
    pub second: f64,
    /// Bytes that web servers read from disks, a request of the whole site.
    pub disk_bytes: f64,
}

impl TwoLevels {
    /// Works out how long files stay in both levels. `files` are as a proxy holds them, and
    /// `pages` as a page cache does ([`CacheFiles::in_pages`]), in one order. Numbers of 0 count as 1.
    ///
    /// ```
    /// use toehold_model::cache::{CacheFiles, TwoLevels, WebServers, zipf};
    ///
    /// let files = CacheFiles::new(&zipf(1000, 0.9), &[8192; 1000]).unwrap();
    /// let servers = WebServers { number: 1, cache: 2_000_000 };
    /// let levels = TwoLevels::new(&files, &files.in_pages(), 4, 400_000, servers);
    /// let hits = levels.hits(&files, &files.in_pages());
    /// assert!(hits.first > 0.2 && hits.second > 0.2);
    /// ```
    pub fn new(
        files: &CacheFiles,
        pages: &CacheFiles,
        proxies: u32,
        cache: u64,
        servers: WebServers,
    ) -> Self {
        let proxies = proxies.max(1);
        let servers = WebServers {
            number: servers.number.max(1),
            ..servers
        };
        // Shares a proxy: its T₁ in requests of the whole site.
        let first = LruCache::new(files, cache).slower(proxies);
        let mut levels = Self {
            proxies,
            first,
            servers,
            second_stays: f64::INFINITY,
        };
        let capacity = servers.cache as f64;
        let held = |stays: f64| {
            let pairs = files.iter().zip(pages.iter());
            let fit = pairs.filter(|(_, page)| page.bytes <= servers.cache);
            fit.map(|(file, page)| page.bytes as f64 * levels.held(file, stays))
                .sum::<f64>()
        };
        if held(f64::MAX / 8.0) > capacity {
            levels.second_stays = stays_until(held, capacity);
        }
        levels
    }

    fn misses(&self, file: CacheFile) -> Misses {
        Misses::of(self.proxies, &self.first, file)
    }

    /// The chance that a web server holds a file that stays for T₂ there.
    fn held(&self, file: CacheFile, stays: f64) -> f64 {
        let misses = self.misses(file);
        if self.servers.number == 1 {
            return 1.0 - misses.none_around(stays).powi(self.proxies as i32);
        }
        let all = misses.rate * f64::from(self.proxies) / f64::from(self.servers.number);
        present(all, stays)
    }

    /// The chance that a proxy has a file.
    pub fn first_hit(&self, file: CacheFile) -> f64 {
        present(file.share / f64::from(self.proxies), self.first.stays(file))
    }

    /// The chance that a web server holds the file that a proxy misses. `page` is the file as the
    /// page cache holds it.
    pub fn second_hit(&self, file: CacheFile, page: CacheFile) -> f64 {
        if page.bytes > self.servers.cache {
            return 0.0;
        }
        let (misses, stays) = (self.misses(file), self.second_stays);
        if misses.rate <= 0.0 {
            return 1.0;
        }
        if self.servers.number == 1 {
            let others = misses.none_around(stays).powi(self.proxies as i32 - 1);
            return 1.0 - misses.none_within(stays) * others;
        }
        let own = misses.rate / f64::from(self.servers.number);
        let others = own * f64::from(self.proxies - 1);
        let own_span = (stays - misses.stays).max(0.0);
        if stays.is_infinite() {
            return 1.0;
        }
        -(-others * stays - own * own_span).exp_m1()
    }

    /// The hits of all files in both levels. `pages` are the files as the page cache holds them.
    pub fn hits(&self, files: &CacheFiles, pages: &CacheFiles) -> SecondLevel {
        let (mut first, mut passed, mut second, mut disk_bytes) = (0.0, 0.0, 0.0, 0.0);
        for (file, page) in files.iter().zip(pages.iter()) {
            let hit = self.first_hit(file);
            let missed = file.share * (1.0 - hit);
            let held = self.second_hit(file, page);
            first += file.share * hit;
            passed += missed;
            second += missed * held;
            disk_bytes += missed * (1.0 - held) * page.bytes as f64;
        }
        SecondLevel {
            first,
            second: if passed > 0.0 { second / passed } else { 1.0 },
            disk_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::SimulatedLru;
    use crate::cache::lru::tests::{Requests, log_uniform};

    /// Hits of simulated proxies and web servers, and bytes from disks a request.
    fn simulated(files: &CacheFiles, proxies: usize, cache: u64, servers: WebServers) -> SecondLevel {
        let sizes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
        let pages: Vec<u64> = files.in_pages().iter().map(|file| file.bytes).collect();
        let mut requests = Requests::new(files, 21);
        let mut first = vec![SimulatedLru::new(cache); proxies];
        let mut second = vec![SimulatedLru::new(servers.cache); servers.number as usize];
        for request in 0..600_000 {
            if request == 200_000 {
                first
                    .iter_mut()
                    .chain(&mut second)
                    .for_each(SimulatedLru::count_again);
            }
            let file = requests.next();
            let (proxy, server) = (requests.below(proxies), requests.below(second.len()));
            if !first[proxy].ask(file, sizes[file]) {
                second[server].ask(file, pages[file]);
            }
        }
        let sum =
            |caches: &[SimulatedLru], of: fn(&SimulatedLru) -> u64| caches.iter().map(of).sum::<u64>() as f64;
        let asked = sum(&first, |cache| cache.counts().requests);
        SecondLevel {
            first: sum(&first, |cache| cache.counts().hits) / asked,
            second: sum(&second, |cache| cache.counts().hits) / sum(&second, |cache| cache.counts().requests),
            disk_bytes: sum(&second, |cache| cache.counts().missed_bytes) / asked,
        }
    }

    #[test]
    fn both_levels_are_near_simulated_caches() {
        for (proxies, number, parts) in [
            (1, 1, (0.1, 0.3)),
            (4, 1, (0.05, 0.3)),
            (4, 3, (0.05, 0.2)),
            (2, 2, (0.2, 0.25)),
        ] {
            let files = log_uniform(600, 1e6, 0.9, 3);
            let part = |part: f64| (files.bytes() as f64 * part) as u64;
            let (cache, servers) = (
                part(parts.0),
                WebServers {
                    number,
                    cache: part(parts.1),
                },
            );
            let pages = files.in_pages();
            let model = TwoLevels::new(&files, &pages, proxies, cache, servers).hits(&files, &pages);
            let counted = simulated(&files, proxies as usize, cache, servers);
            let is_near = |one: f64, other: f64| (one - other).abs() < 0.015;
            assert!(
                is_near(model.first, counted.first),
                "{proxies} {number}: {model:?} {counted:?}"
            );
            assert!(
                is_near(model.second, counted.second),
                "{proxies} {number}: {model:?} {counted:?}"
            );
            let off = (model.disk_bytes / counted.disk_bytes - 1.0).abs();
            assert!(off < 0.05, "{proxies} {number}: {model:?} {counted:?}");
        }
    }

    #[test]
    fn proxies_without_cache_leave_one_cache() {
        let files = log_uniform(400, 1e6, 0.9, 4);
        let servers = WebServers {
            number: 1,
            cache: files.bytes() / 5,
        };
        let levels = TwoLevels::new(&files, &files, 4, 0, servers).hits(&files, &files);
        let alone = LruCache::new(&files, servers.cache).hits(&files);
        assert_eq!(levels.first, 0.0);
        assert!((levels.second - alone.ratio).abs() < 1e-9, "{levels:?} {alone:?}");
        assert!((levels.disk_bytes / alone.missed_bytes - 1.0).abs() < 1e-9);
    }

    #[test]
    fn proxies_that_hold_all_pass_nothing_on() {
        let files = log_uniform(100, 1e5, 0.9, 4);
        let servers = WebServers { number: 3, cache: 0 };
        let levels = TwoLevels::new(&files, &files, 4, files.bytes(), servers).hits(&files, &files);
        assert!((levels.first - 1.0).abs() < 1e-12);
        assert_eq!(levels.disk_bytes, 0.0);
    }

    #[test]
    fn survival_joins_its_exponential_part() {
        for product in [0.01, 0.1, 0.25, 0.36] {
            let misses = Misses {
                rate: product / 7.0,
                stays: 7.0,
            };
            let (before, after) = (misses.none_within(7.0 * 19.999), misses.none_within(7.0 * 20.001));
            assert!(
                (before - after).abs() < 1e-3 * before + 1e-6,
                "{product}: {before} {after}"
            );
            assert_eq!(misses.none_within(7.0), 1.0);
            // Euler's steps of G′(t) = −a·G(t − T₁), as an independent solution.
            let steps = 2000;
            let mut solved = vec![1.0; steps + 1];
            for _ in 0..4 * steps {
                let next =
                    solved[solved.len() - 1] - product / steps as f64 * solved[solved.len() - 1 - steps];
                solved.push(next);
            }
            let (sum, euler) = (misses.none_within(7.0 * 5.0), solved[solved.len() - 1]);
            assert!((sum - euler).abs() < 1e-3, "{product}: {sum} {euler}");
        }
    }
}
