//! Networks of one chain of clients, and what is worked out of them.

use serde::{Deserialize, Serialize};

use super::load_dependent::MOST_STATES;
use super::{load_dependent, mva};

/// How a station serves several requests at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StationKind {
    /// One server.
    Queue,
    /// Several equal servers behind one queue, such as cores. 0 counts as 1.
    Servers(u32),
    /// No queue: each request takes its demand.
    Delay,
    /// With n requests, the station works so many times as fast as its demand says: entry n − 1. The
    /// last entry holds for more requests.
    Rates(Vec<f64>),
}

impl StationKind {
    /// How many times as fast the station works with `number` requests.
    pub(super) fn rate(&self, number: usize) -> f64 {
        match self {
            Self::Queue => 1.0,
            Self::Servers(servers) => (number as f64).min(f64::from((*servers).max(1))),
            Self::Delay => number as f64,
            Self::Rates(rates) => rates.get(number - 1).or(rates.last()).copied().unwrap_or(1.0),
        }
    }

    /// How many times as fast the station works at most; `None` if there is no limit.
    pub(super) fn most(&self) -> Option<f64> {
        match self {
            Self::Delay => None,
            Self::Rates(rates) => rates.iter().copied().reduce(f64::max).or(Some(1.0)),
            other => Some(other.rate(usize::MAX)),
        }
    }

    fn makes_sense(&self) -> bool {
        match self {
            Self::Rates(rates) => {
                !rates.is_empty() && rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
            }
            _ => true,
        }
    }
}

/// A station: cores, a disk's head, a bus, a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelStation {
    /// Seconds of service that a request needs here in all, over all of its visits.
    pub demand: f64,
    /// How the station serves several requests.
    pub kind: StationKind,
}

impl ModelStation {
    /// A station of one server.
    pub fn queue(demand: f64) -> Self {
        let kind = StationKind::Queue;
        Self { demand, kind }
    }

    /// A station of several servers, such as cores.
    pub fn servers(demand: f64, servers: u32) -> Self {
        let kind = StationKind::Servers(servers);
        Self { demand, kind }
    }

    /// Time that passes without a queue.
    pub fn delay(demand: f64) -> Self {
        let kind = StationKind::Delay;
        Self { demand, kind }
    }
}

/// Why a network cannot be solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// A demand is negative or not finite, or all are 0.
    #[error("a station's demand is a number of 0 or more seconds, and one is above 0")]
    Demand,
    /// A station's rates are none, or one of them is not above 0.
    #[error("a station's rates are numbers above 0, and there is one at least")]
    Rates,
    /// There are too many clients for an exact solution.
    #[error("{0} states of clients are too many; choose fewer clients, up to {MOST_STATES} states")]
    Clients(usize),
    /// The two chains do not have the demands of the network's stations.
    #[error("there are {demands} demands for {stations} stations")]
    Stations {
        /// Demands of a chain.
        demands: usize,
        /// Stations of the network.
        stations: usize,
    },
}

/// What a station does in a solved network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StationSolution {
    /// Seconds of a request here, waiting and service.
    pub residence: f64,
    /// Requests here in the mean.
    pub queue: f64,
    /// The share of all that the station could do; 0 for a delay.
    pub utilization: f64,
}

/// A solved network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkSolution {
    /// Requests a second.
    pub throughput: f64,
    /// Seconds from a request to its answer.
    pub response: f64,
    /// The stations, in the network's order.
    pub stations: Vec<StationSolution>,
}

impl NetworkSolution {
    /// Makes a solution of the throughput and the mean number at each station.
    pub(super) fn of(network: &ClosedNetwork, clients: usize, throughput: f64, queues: &[f64]) -> Self {
        let stations = network.stations().iter().zip(queues);
        let stations = stations.map(|(station, &queue)| StationSolution {
            residence: if throughput > 0.0 { queue / throughput } else { 0.0 },
            queue,
            utilization: station
                .kind
                .most()
                .map_or(0.0, |most| throughput * station.demand / most),
        });
        Self {
            throughput,
            response: if throughput > 0.0 {
                clients as f64 / throughput
            } else {
                0.0
            },
            stations: stations.collect(),
        }
    }

    /// Returns the index of the busiest station, if one has a queue.
    pub fn bottleneck(&self) -> Option<usize> {
        let stations = self.stations.iter().enumerate();
        let busiest =
            stations.max_by(|(_, one), (_, other)| one.utilization.total_cmp(&other.utilization))?;
        (busiest.1.utilization > 0.0).then_some(busiest.0)
    }
}

/// A closed network of one chain.
///
/// ```
/// use toehold_model::network::{ClosedNetwork, ModelStation};
///
/// let site = ClosedNetwork::new(vec![
///     ModelStation::servers(0.5e-3, 2),
///     ModelStation::queue(0.1e-3),
///     ModelStation::queue(0.03e-3),
/// ]);
/// let site = site.unwrap();
/// assert!((site.solve(2).unwrap().throughput - 3089.75).abs() < 0.01);
/// assert_eq!(site.solve(8).unwrap().bottleneck(), Some(0));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedNetwork(Vec<ModelStation>);

impl ClosedNetwork {
    /// Makes a network.
    ///
    /// # Errors
    ///
    /// [`NetworkError`] if demands or rates make no sense.
    pub fn new(stations: Vec<ModelStation>) -> Result<Self, NetworkError> {
        let demands = || stations.iter().map(|station| station.demand);
        let is_meant = demands().all(|demand| demand.is_finite() && demand >= 0.0);
        if !is_meant || demands().sum::<f64>() <= 0.0 {
            return Err(NetworkError::Demand);
        }
        if !stations.iter().all(|station| station.kind.makes_sense()) {
            return Err(NetworkError::Rates);
        }
        Ok(Self(stations))
    }

    /// The stations.
    pub fn stations(&self) -> &[ModelStation] {
        &self.0
    }

    /// Solves the network for a number of clients: by mean value analysis where each station is a
    /// queue or a delay, else by convolution.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Clients`] if there are too many for an exact solution.
    pub fn solve(&self, clients: usize) -> Result<NetworkSolution, NetworkError> {
        if clients >= MOST_STATES {
            return Err(NetworkError::Clients(clients));
        }
        let is_plain =
            |station: &ModelStation| matches!(station.kind, StationKind::Queue | StationKind::Delay);
        if self.0.iter().all(is_plain) {
            Ok(mva::solve(self, clients))
        } else {
            load_dependent::solve(self, clients)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_without_sense_is_refused() {
        for demands in [[0.0, 0.0], [1.0, -1.0], [1.0, f64::NAN], [f64::INFINITY, 1.0]] {
            let stations = demands.map(ModelStation::queue).to_vec();
            assert_eq!(ClosedNetwork::new(stations), Err(NetworkError::Demand));
        }
        for rates in [vec![], vec![0.0], vec![1.0, f64::NAN]] {
            let kind = StationKind::Rates(rates);
            let stations = vec![ModelStation { demand: 1.0, kind }];
            assert_eq!(ClosedNetwork::new(stations), Err(NetworkError::Rates));
        }
    }

    #[test]
    fn too_many_clients_are_refused() {
        let network = ClosedNetwork::new(vec![ModelStation::servers(1.0, 2)]).unwrap();
        assert!(network.solve(MOST_STATES).is_err());
        assert_eq!(network.solve(0).unwrap().throughput, 0.0);
    }

    #[test]
    fn throughputs_of_the_text_are_met() {
        let three = |demands: [f64; 3], first: u32| {
            let [one, two, three] = demands.map(|demand| demand * 1e-3);
            let stations = vec![
                ModelStation::servers(one, first),
                ModelStation::queue(two),
                ModelStation::queue(three),
            ];
            ClosedNetwork::new(stations).unwrap()
        };
        for (network, expected) in [
            (
                three([0.12, 0.467, 0.03], 1),
                [1620.746, 2009.517, 2141.290, 2141.328],
            ),
            (
                three([0.5, 0.1, 0.03], 2),
                [1587.302, 3089.750, 3996.538, 4000.000],
            ),
        ] {
            for (clients, expected) in [1, 2, 8, 64].into_iter().zip(expected) {
                let solved = network.solve(clients).unwrap().throughput;
                assert!(
                    (solved - expected).abs() < 0.002,
                    "{clients}: {solved} {expected}"
                );
            }
        }
    }
}
