//! Stations whose speed depends on how many requests they have, by convolution (Buzen, 1973).
//!
//! Load-dependent mean value analysis subtracts nearly equal numbers where a station of several
//! servers is busy, and its results drift. Convolution only adds. Sums are kept as logarithms, so
//! that no number of clients overflows. One or two chains of clients are solved alike.

use super::closed::{ClosedNetwork, NetworkError, NetworkSolution, StationKind};

/// States of clients at most, over which sums run: clients of the first chain and one, times those
/// of the second and one.
pub const MOST_STATES: usize = 4400;

/// Logarithms over all numbers of clients of two chains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Weights {
    clients: [usize; 2],
    logs: Vec<f64>,
}

impl Weights {
    /// The number of states for so many clients.
    fn states(clients: [usize; 2]) -> usize {
        clients[0]
            .saturating_add(1)
            .saturating_mul(clients[1].saturating_add(1))
    }

    fn make(clients: [usize; 2], log: impl Fn(usize, usize) -> f64) -> Self {
        let [first, second] = clients;
        let cells = (0..=first).flat_map(|one| (0..=second).map(move |two| (one, two)));
        Self {
            clients,
            logs: cells.map(|(one, two)| log(one, two)).collect(),
        }
    }

    fn at(&self, one: usize, two: usize) -> f64 {
        self.logs[one * (self.clients[1] + 1) + two]
    }

    /// No station: all clients are none.
    fn empty(clients: [usize; 2]) -> Self {
        Self::make(
            clients,
            |one, two| if one + two == 0 { 0.0 } else { f64::NEG_INFINITY },
        )
    }

    /// The weights of a station: (n₁+n₂)!/(n₁!·n₂!)·D₁^n₁·D₂^n₂ over the product of its rates.
    fn station(clients: [usize; 2], demands: [f64; 2], kind: &StationKind) -> Self {
        let most = clients[0] + clients[1];
        let mut factorials = vec![0.0; most + 1];
        let mut rates = vec![0.0; most + 1];
        for number in 1..=most {
            factorials[number] = factorials[number - 1] + (number as f64).ln();
            rates[number] = rates[number - 1] + kind.rate(number).ln();
        }
        let powers = |number: usize, demand: f64| {
            if number == 0 {
                0.0
            } else {
                number as f64 * demand.ln()
            }
        };
        Self::make(clients, |one, two| {
            let orders = factorials[one + two] - factorials[one] - factorials[two];
            orders + powers(one, demands[0]) + powers(two, demands[1]) - rates[one + two]
        })
    }

    /// The weight of two groups of stations with so many clients.
    fn joined(&self, other: &Self, one: usize, two: usize) -> f64 {
        let terms = || {
            let firsts = 0..=one;
            firsts.flat_map(move |first| {
                (0..=two).map(move |second| self.at(first, second) + other.at(one - first, two - second))
            })
        };
        let most = terms().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return most;
        }
        most + terms().map(|term| (term - most).exp()).sum::<f64>().ln()
    }

    fn convolved(&self, other: &Self) -> Self {
        Self::make(self.clients, |one, two| self.joined(other, one, two))
    }
}

/// Throughput and mean numbers of both chains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Joint {
    pub(super) throughputs: [f64; 2],
    /// Mean numbers of each chain at each station.
    pub(super) queues: Vec<[f64; 2]>,
}

/// Solves for two chains. `demands` has those of both chains for each station.
pub(super) fn solve_chains(
    kinds: &[&StationKind],
    demands: &[[f64; 2]],
    clients: [usize; 2],
) -> Result<Joint, NetworkError> {
    if Weights::states(clients) > MOST_STATES {
        return Err(NetworkError::Clients(Weights::states(clients)));
    }
    let pairs = kinds.iter().zip(demands);
    let stations: Vec<Weights> = pairs
        .map(|(kind, both)| Weights::station(clients, *both, kind))
        .collect();
    // All stations but one are those before it and those behind it.
    let mut behind = vec![Weights::empty(clients)];
    for station in stations.iter().rev() {
        let next = behind[behind.len() - 1].convolved(station);
        behind.push(next);
    }
    let all = behind.pop().unwrap_or_else(|| Weights::empty(clients));
    let [first, second] = clients;
    let total = all.at(first, second);
    let mut before = Weights::empty(clients);
    let mut queues = Vec::with_capacity(stations.len());
    for station in &stations {
        let others = behind
            .pop()
            .map_or_else(|| before.clone(), |behind| before.convolved(&behind));
        queues.push(mean_numbers(station, &others, total));
        before = before.convolved(station);
    }
    let less = |one: usize, two: usize| (all.at(one, two) - total).exp();
    Ok(Joint {
        throughputs: [
            if first > 0 { less(first - 1, second) } else { 0.0 },
            if second > 0 { less(first, second - 1) } else { 0.0 },
        ],
        queues,
    })
}

/// The mean numbers of both chains at a station, beside all others.
fn mean_numbers(station: &Weights, others: &Weights, total: f64) -> [f64; 2] {
    let [first, second] = station.clients;
    let mut means = [0.0; 2];
    for one in 0..=first {
        for two in 0..=second {
            let chance = (station.at(one, two) + others.at(first - one, second - two) - total).exp();
            means[0] += one as f64 * chance;
            means[1] += two as f64 * chance;
        }
    }
    means
}

/// Solves a network of one chain.
pub(super) fn solve(network: &ClosedNetwork, clients: usize) -> Result<NetworkSolution, NetworkError> {
    let kinds: Vec<&StationKind> = network.stations().iter().map(|station| &station.kind).collect();
    let demands: Vec<[f64; 2]> = network
        .stations()
        .iter()
        .map(|station| [station.demand, 0.0])
        .collect();
    let joint = solve_chains(&kinds, &demands, [clients, 0])?;
    let queues: Vec<f64> = joint.queues.iter().map(|both| both[0]).collect();
    Ok(NetworkSolution::of(
        network,
        clients,
        joint.throughputs[0],
        &queues,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::closed::ModelStation;
    use super::*;

    fn throughput(stations: Vec<ModelStation>, clients: usize) -> f64 {
        let network = ClosedNetwork::new(stations).unwrap();
        solve(&network, clients).unwrap().throughput
    }

    #[test]
    fn station_of_one_server_is_a_queue() {
        for clients in [1, 5, 50] {
            let others = || vec![ModelStation::queue(0.3), ModelStation::delay(0.7)];
            let queue = [others(), vec![ModelStation::queue(0.5)]].concat();
            let server = [others(), vec![ModelStation::servers(0.5, 1)]].concat();
            assert_eq!(throughput(queue, clients), throughput(server, clients));
        }
    }

    #[test]
    fn station_of_as_many_servers_as_clients_is_a_delay() {
        let with = |station| vec![ModelStation::queue(0.3), station];
        let delay = throughput(with(ModelStation::delay(0.5)), 12);
        let servers = throughput(with(ModelStation::servers(0.5, 12)), 12);
        assert!((delay / servers - 1.0).abs() < 1e-12);
    }

    #[test]
    fn many_clients_saturate_without_overflow() {
        let stations = vec![
            ModelStation::servers(0.4, 4),
            ModelStation::delay(20.0),
            ModelStation::queue(0.05),
        ];
        let reached = throughput(stations, 3000);
        assert!((reached - 10.0).abs() < 1e-6, "{reached}");
    }

    #[test]
    fn station_of_no_demand_is_empty() {
        let network = ClosedNetwork::new(vec![ModelStation::servers(0.0, 2), ModelStation::servers(1.0, 2)]);
        let solved = solve(&network.unwrap(), 3).unwrap();
        assert_eq!(solved.stations[0].queue, 0.0);
        assert!((solved.stations[1].queue - 3.0).abs() < 1e-12);
    }
}
