//! Caches of whole files: what a least-recently-used cache holds, by simulation and by formula.
//!
//! Time is counted in requests: a file with a tenth of the requests comes every ten units in the
//! mean. Requests are independent of one another (the independent reference model).

mod cold;
mod files;
mod levels;
mod lru;
mod simulated;

pub use cold::{cold_hits, cold_hits_of};
pub use files::{CacheFile, CacheFiles, FilesError, MOST_FILES, PAGE, zipf};
pub use levels::{SecondLevel, TwoLevels, WebServers};
pub use lru::{LruCache, LruHits};
pub use simulated::{SimulatedHits, SimulatedLru};
