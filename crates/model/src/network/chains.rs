//! Two chains of clients in one network, such as a foreground and a background site.

use serde::{Deserialize, Serialize};

use super::closed::{ClosedNetwork, NetworkError, StationKind};
use super::load_dependent::solve_chains;

/// The demands of one chain at the stations of a network, and its clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainDemands {
    /// Seconds of service at each station, in the network's order.
    pub demands: Vec<f64>,
    /// Clients of the chain.
    pub clients: usize,
}

/// What one chain gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainSolution {
    /// Requests a second.
    pub throughput: f64,
    /// Seconds from a request to its answer.
    pub response: f64,
    /// Requests of this chain at each station in the mean.
    pub queues: Vec<f64>,
}

/// A network that two chains share. Stations share their time between all requests alike, as
/// processor sharing does.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoChains {
    kinds: Vec<StationKind>,
    chains: [ChainDemands; 2],
}

impl TwoChains {
    /// Makes a network of the stations of another; `chains` has the demands.
    ///
    /// # Errors
    ///
    /// [`NetworkError`] if a chain has other numbers of demands than stations, or demands that make
    /// no sense.
    pub fn new(network: &ClosedNetwork, chains: [ChainDemands; 2]) -> Result<Self, NetworkError> {
        let kinds: Vec<StationKind> = network
            .stations()
            .iter()
            .map(|station| station.kind.clone())
            .collect();
        for chain in &chains {
            let demands = chain.demands.len();
            if demands != kinds.len() {
                let stations = kinds.len();
                return Err(NetworkError::Stations { demands, stations });
            }
            let is_meant = chain
                .demands
                .iter()
                .all(|demand| demand.is_finite() && *demand >= 0.0);
            if !is_meant || chain.demands.iter().sum::<f64>() <= 0.0 {
                return Err(NetworkError::Demand);
            }
        }
        Ok(Self { kinds, chains })
    }

    /// Solves the network exactly.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Clients`] if there are too many for an exact solution.
    pub fn solve(&self) -> Result<[ChainSolution; 2], NetworkError> {
        let [one, two] = &self.chains;
        let kinds: Vec<&StationKind> = self.kinds.iter().collect();
        let pairs = one.demands.iter().zip(&two.demands);
        let demands: Vec<[f64; 2]> = pairs.map(|(first, second)| [*first, *second]).collect();
        let joint = solve_chains(&kinds, &demands, [one.clients, two.clients])?;
        Ok([0, 1].map(|chain: usize| {
            let throughput = joint.throughputs[chain];
            let clients = self.chains[chain].clients as f64;
            ChainSolution {
                throughput,
                response: if throughput > 0.0 {
                    clients / throughput
                } else {
                    0.0
                },
                queues: joint.queues.iter().map(|both| both[chain]).collect(),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::closed::ModelStation;
    use super::*;

    fn network() -> ClosedNetwork {
        let stations = vec![
            ModelStation::servers(0.4, 2),
            ModelStation::queue(0.3),
            ModelStation::delay(1.0),
        ];
        ClosedNetwork::new(stations).unwrap()
    }

    fn chain(demands: [f64; 3], clients: usize) -> ChainDemands {
        ChainDemands {
            demands: demands.to_vec(),
            clients,
        }
    }

    #[test]
    fn two_halves_of_a_chain_are_the_chain() {
        let whole = network().solve(7).unwrap();
        let demands = [0.4, 0.3, 1.0];
        let halves = TwoChains::new(&network(), [chain(demands, 3), chain(demands, 4)]);
        let [one, two] = halves.unwrap().solve().unwrap();
        assert!(((one.throughput + two.throughput) / whole.throughput - 1.0).abs() < 1e-9);
        assert!((one.throughput / two.throughput - 0.75).abs() < 1e-9);
        assert!((one.response / whole.response - 1.0).abs() < 1e-9);
    }

    #[test]
    fn chain_of_no_clients_leaves_the_other_alone() {
        let two = TwoChains::new(&network(), [chain([0.4, 0.3, 1.0], 5), chain([1.0, 1.0, 1.0], 0)]);
        let [one, none] = two.unwrap().solve().unwrap();
        let alone = network().solve(5).unwrap();
        assert!((one.throughput / alone.throughput - 1.0).abs() < 1e-9);
        assert_eq!((none.throughput, none.response), (0.0, 0.0));
    }

    #[test]
    fn chain_with_other_stations_is_refused() {
        let short = ChainDemands {
            demands: vec![1.0],
            clients: 1,
        };
        let refused = TwoChains::new(&network(), [short, chain([1.0; 3], 1)]);
        assert_eq!(
            refused.unwrap_err(),
            NetworkError::Stations {
                demands: 1,
                stations: 3
            }
        );
        let many = TwoChains::new(&network(), [chain([1.0; 3], 100), chain([1.0; 3], 100)]);
        assert!(matches!(many.unwrap().solve(), Err(NetworkError::Clients(_))));
    }
}
