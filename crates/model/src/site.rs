//! A site as stations: clients, proxies with caches, web servers with page caches and disks.
//!
//! Caches say how many requests reach each tier. Costs say what a request needs there. The network
//! of stations says what follows for all clients together.

use serde::{Deserialize, Serialize};

use crate::cache::{CacheFiles, SecondLevel, TwoLevels, WebServers};
use crate::disk::DiskSpeeds;
use crate::network::{ClosedNetwork, ModelStation, NetworkError, NetworkSolution};

/// Nodes of a tier at most.
const MOST_NODES: u32 = 64;

/// Processor time of one tier, in seconds at full speed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TierCosts {
    /// A request that the tier's cache answers.
    pub hit: f64,
    /// A request that it passes on, or reads from a disk.
    pub miss: f64,
    /// Each byte that it sends.
    pub byte: f64,
}

/// Where a tier's processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierCores {
    /// Each node of the tier has so many cores of its own.
    Own(u32),
    /// All nodes run on one group of cores, by its index in [`SitePlan::shared`].
    Shared(usize),
}

/// A tier: equal nodes, among which requests are drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SiteTier {
    /// Nodes, 1 to 64.
    pub nodes: u32,
    /// Bytes of files that each node can keep.
    pub cache: u64,
    /// Where the nodes run.
    pub cores: TierCores,
    /// Speed of the cores, 1 where costs were measured.
    pub speed: f64,
    /// Processor time.
    pub costs: TierCosts,
}

/// All that the model of a site needs but for its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SitePlan {
    /// Clients in a closed loop.
    pub clients: usize,
    /// Seconds of a request that no station explains, such as wake-ups.
    pub delay: f64,
    /// Where clients run, with the time of a request (`hit`) and of a byte there.
    pub client: SiteTier,
    /// The proxies. Their caches hold files.
    pub proxies: SiteTier,
    /// The web servers. Their caches hold pages.
    pub servers: SiteTier,
    /// The disk of each web server.
    pub disk: DiskSpeeds,
    /// Disks of each web server, over which files are spread evenly.
    pub disks: u32,
    /// Cores of each shared group.
    pub shared: Vec<u32>,
}

/// What a station of a site stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SitePart {
    /// Cores of the clients.
    Clients,
    /// Cores of one proxy.
    Proxy,
    /// Cores of one web server.
    Server,
    /// One disk.
    Disk,
    /// A group of cores that several tiers share.
    Cores(usize),
    /// Time that no station explains.
    Delay,
}

/// Why a site cannot be modelled.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SiteError {
    /// A tier has no node, or too many.
    #[error("a tier has {0} nodes; choose 1 to {MOST_NODES}")]
    Nodes(u32),
    /// A speed is not above 0.
    #[error("the speed of cores is {0}; choose more than 0")]
    Speed(f64),
    /// A tier runs on a group that does not exist.
    #[error("there is no shared group {0} of cores")]
    Group(usize),
    /// The network cannot be solved.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// A modelled site.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteModel {
    /// The hits of both levels of caches.
    pub hits: SecondLevel,
    /// What each station stands for, in the network's order.
    pub parts: Vec<SitePart>,
    /// The stations.
    pub network: ClosedNetwork,
    clients: usize,
}

impl SitePlan {
    fn check(&self) -> Result<(), SiteError> {
        for tier in [&self.client, &self.proxies, &self.servers] {
            if !(1..=MOST_NODES).contains(&tier.nodes) {
                return Err(SiteError::Nodes(tier.nodes));
            }
            if !tier.speed.is_finite() || tier.speed <= 0.0 {
                return Err(SiteError::Speed(tier.speed));
            }
            if let TierCores::Shared(group) = tier.cores
                && group >= self.shared.len()
            {
                return Err(SiteError::Group(group));
            }
        }
        if !(1..=MOST_NODES).contains(&self.disks) {
            return Err(SiteError::Nodes(self.disks));
        }
        Ok(())
    }

    /// Models the site with a set of files.
    ///
    /// # Errors
    ///
    /// [`SiteError`] names what makes no sense.
    pub fn model(&self, files: &CacheFiles) -> Result<SiteModel, SiteError> {
        self.check()?;
        let pages = files.in_pages();
        let servers = WebServers {
            number: self.servers.nodes,
            cache: self.servers.cache,
        };
        let levels = TwoLevels::new(files, &pages, self.proxies.nodes, self.proxies.cache, servers);
        let hits = levels.hits(files, &pages);
        let passed = 1.0 - hits.first;
        let bytes = files.mean_request();
        let passed_bytes: f64 = files
            .iter()
            .map(|file| file.share * (1.0 - levels.first_hit(file)) * file.bytes as f64)
            .sum();
        let mut stations = Stations::new(&self.shared);
        stations.tier(&self.client, SitePart::Clients, [1.0, 0.0], bytes);
        stations.tier(&self.proxies, SitePart::Proxy, [hits.first, passed], bytes);
        let second = [passed * hits.second, passed * (1.0 - hits.second)];
        stations.tier(&self.servers, SitePart::Server, second, passed_bytes);
        let disks = self.servers.nodes * self.disks;
        let read = self.disk.demand(&levels, files, &pages) / f64::from(disks);
        for _ in 0..disks {
            stations.add(SitePart::Disk, ModelStation::queue(read));
        }
        stations.add(SitePart::Delay, ModelStation::delay(self.delay));
        let (parts, stations) = stations.all.into_iter().unzip();
        Ok(SiteModel {
            hits,
            parts,
            network: ClosedNetwork::new(stations)?,
            clients: self.clients,
        })
    }
}

/// Stations of a site as they are made: first the shared groups of cores.
struct Stations {
    all: Vec<(SitePart, ModelStation)>,
}

impl Stations {
    fn new(shared: &[u32]) -> Self {
        let groups = shared.iter().enumerate();
        let groups =
            groups.map(|(index, cores)| (SitePart::Cores(index), ModelStation::servers(0.0, *cores)));
        Self {
            all: groups.collect(),
        }
    }

    fn add(&mut self, part: SitePart, station: ModelStation) {
        self.all.push((part, station));
    }

    /// Adds a tier that a request reaches with so many hits and misses, and that sends so many bytes.
    fn tier(&mut self, tier: &SiteTier, part: SitePart, [hits, misses]: [f64; 2], bytes: f64) {
        let costs = tier.costs;
        let demand = (hits * costs.hit + misses * costs.miss + bytes * costs.byte) / tier.speed;
        match tier.cores {
            TierCores::Shared(group) => self.all[group].1.demand += demand,
            TierCores::Own(cores) => {
                for _ in 0..tier.nodes {
                    self.add(part, ModelStation::servers(demand / f64::from(tier.nodes), cores));
                }
            }
        }
    }
}

impl SiteModel {
    /// Solves the network for the plan's clients.
    ///
    /// # Errors
    ///
    /// [`NetworkError`] as [`ClosedNetwork::solve`] has it.
    pub fn solve(&self) -> Result<NetworkSolution, NetworkError> {
        self.network.solve(self.clients)
    }

    /// Returns the part that is busiest in a solution of this site.
    pub fn bottleneck(&self, solution: &NetworkSolution) -> Option<SitePart> {
        self.parts.get(solution.bottleneck()?).copied()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cache::zipf;

    pub(crate) fn files() -> CacheFiles {
        let sizes: Vec<u64> = (0..400).map(|index| 2000 + index * 500).collect();
        CacheFiles::new(&zipf(400, 0.8), &sizes).unwrap()
    }

    /// A site of two cores: clients on one, all tiers on the other.
    pub(crate) fn small() -> SitePlan {
        let tier = |nodes, cache, group, hit, miss| SiteTier {
            nodes,
            cache,
            cores: TierCores::Shared(group),
            speed: 1.0,
            costs: TierCosts {
                hit,
                miss,
                byte: 0.3e-9,
            },
        };
        SitePlan {
            clients: 16,
            delay: 20e-6,
            client: tier(1, 0, 1, 30e-6, 0.0),
            proxies: tier(4, 2 << 20, 0, 40e-6, 70e-6),
            servers: tier(3, 8 << 20, 0, 60e-6, 90e-6),
            disk: DiskSpeeds {
                overhead: 0.1e-3,
                positioning: 12e-3,
                rate: 38e6,
                read_ahead: 128 << 10,
                interleaved: 0.05,
            },
            disks: 1,
            shared: vec![1, 1],
        }
    }

    #[test]
    fn cold_disks_are_the_bottleneck_until_memory_holds_all() {
        let mut plan = small();
        let model = plan.model(&files()).unwrap();
        let solved = model.solve().unwrap();
        assert_eq!(model.bottleneck(&solved), Some(SitePart::Disk));
        plan.servers.cache = 1 << 30;
        let model = plan.model(&files()).unwrap();
        let cached = model.solve().unwrap();
        assert_eq!(model.bottleneck(&cached), Some(SitePart::Cores(0)));
        assert!(cached.throughput > 2.0 * solved.throughput);
        assert!((model.hits.second - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_client_waits_for_the_sum_of_all_demands() {
        let mut plan = small();
        plan.clients = 1;
        let model = plan.model(&files()).unwrap();
        let demands: f64 = model
            .network
            .stations()
            .iter()
            .map(|station| station.demand)
            .sum();
        let response = model.solve().unwrap().response;
        assert!((response / demands - 1.0).abs() < 1e-9);
    }

    #[test]
    fn cores_of_their_own_are_faster_than_shared_ones() {
        let mut plan = small();
        plan.servers.cache = 1 << 30;
        let shared = plan.model(&files()).unwrap().solve().unwrap();
        plan.proxies.cores = TierCores::Own(1);
        plan.servers.cores = TierCores::Own(1);
        let model = plan.model(&files()).unwrap();
        assert_eq!(
            model
                .parts
                .iter()
                .filter(|part| **part == SitePart::Proxy)
                .count(),
            4
        );
        assert!(model.solve().unwrap().throughput > shared.throughput);
    }

    #[test]
    fn plan_without_sense_is_refused() {
        let changes: [fn(&mut SitePlan); 5] = [
            |plan| plan.proxies.nodes = 0,
            |plan| plan.servers.nodes = 65,
            |plan| plan.servers.speed = 0.0,
            |plan| plan.client.cores = TierCores::Shared(9),
            |plan| plan.delay = f64::NAN,
        ];
        for change in changes {
            let mut plan = small();
            change(&mut plan);
            assert!(plan.model(&files()).is_err());
        }
    }
}
