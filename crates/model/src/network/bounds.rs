//! What no network can be better or worse than: asymptotic bounds (Muntz and Wong, 1974).

use super::closed::{ClosedNetwork, StationKind};

/// Bounds of throughput, in requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThroughputBounds {
    /// All clients wait for all others at every station.
    pub least: f64,
    /// No client waits, or the slowest station is always busy.
    pub most: f64,
}

impl ThroughputBounds {
    /// The bounds of a network with so many clients.
    pub fn of(network: &ClosedNetwork, clients: usize) -> Self {
        let (mut slowest, mut all, mut delay) = (0.0_f64, 0.0, 0.0);
        for station in network.stations() {
            // The time of a request that is alone, and of each one where many are.
            let alone = station.demand / station.kind.rate(1);
            if station.kind == StationKind::Delay {
                delay += alone;
                continue;
            }
            all += alone;
            slowest = slowest.max(station.kind.most().map_or(0.0, |most| station.demand / most));
        }
        let number = clients as f64;
        let alone = number / (all + delay);
        Self {
            least: if clients == 0 {
                0.0
            } else {
                number / (number * all + delay)
            },
            most: if slowest > 0.0 {
                alone.min(1.0 / slowest)
            } else {
                alone
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::closed::ModelStation;
    use super::*;

    proptest! {
        /// Every exact solution lies within its bounds.
        #[test]
        fn solution_is_within_bounds(
            demands in prop::collection::vec(0.001f64..1.0, 1..5),
            servers in 1u32..5,
            delay in 0.0f64..3.0,
            clients in 1usize..30,
        ) {
            let queues = demands.into_iter().map(ModelStation::queue);
            let others = [ModelStation::servers(0.3, servers), ModelStation::delay(delay)];
            let network = ClosedNetwork::new(queues.chain(others).collect()).unwrap();
            let (bounds, solved) = (ThroughputBounds::of(&network, clients), network.solve(clients).unwrap());
            prop_assert!(solved.throughput <= bounds.most * (1.0 + 1e-9));
            prop_assert!(solved.throughput >= bounds.least * (1.0 - 1e-9));
        }
    }
}
