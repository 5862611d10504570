//! A pool of threads, without one of which a request cannot enter a part of the network.

use super::closed::{ClosedNetwork, ModelStation, NetworkError, StationKind};

/// Replaces the stations that a request uses while it holds a thread by one station with the same
/// flow (Chandy, Herzog and Woo, 1975). With n requests inside, that station works as fast as the
/// stations alone with n clients, and with no more than `threads`. The station's demand is one
/// request, and its rates are requests a second.
///
/// ```
/// use toehold_model::network::{ClosedNetwork, ModelStation, thread_pool};
///
/// let inside = ClosedNetwork::new(vec![ModelStation::queue(0.2), ModelStation::delay(0.8)]).unwrap();
/// let pool = thread_pool(&inside, 1).unwrap(); // One request at a time: one a second.
/// let site = ClosedNetwork::new(vec![pool, ModelStation::delay(0.1)]).unwrap();
/// assert!((site.solve(50).unwrap().throughput - 1.0).abs() < 1e-9);
/// ```
///
/// # Errors
///
/// [`NetworkError::Clients`] if there are too many threads for an exact solution.
pub fn thread_pool(inside: &ClosedNetwork, threads: usize) -> Result<ModelStation, NetworkError> {
    let rates: Result<Vec<f64>, _> = (1..=threads.max(1))
        .map(|number| Ok(inside.solve(number)?.throughput))
        .collect();
    Ok(ModelStation {
        demand: 1.0,
        kind: StationKind::Rates(rates?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_of_as_many_threads_as_clients_changes_nothing() {
        let inside = vec![ModelStation::servers(0.4, 2), ModelStation::queue(0.3)];
        let outside = vec![ModelStation::queue(0.1), ModelStation::delay(0.5)];
        let pool = thread_pool(&ClosedNetwork::new(inside.clone()).unwrap(), 9).unwrap();
        let pooled = ClosedNetwork::new([vec![pool], outside.clone()].concat()).unwrap();
        let flat = ClosedNetwork::new([inside, outside].concat()).unwrap();
        for clients in 1..=9 {
            let (one, other) = (pooled.solve(clients).unwrap(), flat.solve(clients).unwrap());
            assert!(
                (one.throughput / other.throughput - 1.0).abs() < 1e-9,
                "{clients}"
            );
        }
    }

    #[test]
    fn fewer_threads_never_give_more() {
        let inside = ClosedNetwork::new(vec![ModelStation::queue(0.2), ModelStation::delay(1.0)]).unwrap();
        let reached = |threads| {
            let pool = thread_pool(&inside, threads).unwrap();
            let site = ClosedNetwork::new(vec![pool, ModelStation::delay(0.3)]).unwrap();
            site.solve(20).unwrap().throughput
        };
        for threads in 1..12 {
            assert!(reached(threads) < reached(threads + 1) + 1e-12, "{threads}");
        }
    }
}
