//! Exact mean value analysis (Reiser and Lavenberg, 1980): queues of one server, and delays.

use super::closed::{ClosedNetwork, NetworkSolution, StationKind};

/// Solves a network of queues and delays.
pub(super) fn solve(network: &ClosedNetwork, clients: usize) -> NetworkSolution {
    let stations = network.stations();
    let mut queues = vec![0.0; stations.len()];
    let mut throughput = 0.0;
    for number in 1..=clients {
        let residences: Vec<f64> = stations
            .iter()
            .zip(&queues)
            .map(|(station, queue)| match station.kind {
                StationKind::Delay => station.demand,
                // An arriving request sees the queue of the network with one client less.
                _ => station.demand * (1.0 + queue),
            })
            .collect();
        throughput = number as f64 / residences.iter().sum::<f64>();
        for (queue, residence) in queues.iter_mut().zip(residences) {
            *queue = throughput * residence;
        }
    }
    NetworkSolution::of(network, clients, throughput, &queues)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::closed::ModelStation;
    use super::super::load_dependent;
    use super::*;

    proptest! {
        /// Both exact methods agree, and clients are somewhere.
        #[test]
        fn mean_values_are_those_of_convolution(
            demands in prop::collection::vec(0.001f64..1.0, 1..6),
            delay in 0.0f64..2.0,
            clients in 1usize..40,
        ) {
            let queues = demands.into_iter().map(ModelStation::queue);
            let network = ClosedNetwork::new(queues.chain([ModelStation::delay(delay)]).collect()).unwrap();
            let (one, other) = (solve(&network, clients), load_dependent::solve(&network, clients).unwrap());
            prop_assert!((one.throughput / other.throughput - 1.0).abs() < 1e-9);
            let numbers = one.stations.iter().zip(&other.stations);
            for (station, same) in numbers {
                prop_assert!((station.queue - same.queue).abs() < 1e-6 * clients as f64);
            }
            let total: f64 = one.stations.iter().map(|station| station.queue).sum();
            prop_assert!((total - clients as f64).abs() < 1e-6);
        }
    }
}
