//! Solutions of networks against their Markov chains, whose balance equations are solved directly.

use std::collections::HashMap;

use toehold_model::network::{
    ChainDemands, ClosedNetwork, ModelStation, StationKind, TwoChains, thread_pool,
};

/// Numbers of both chains' requests at each station.
type State = Vec<[usize; 2]>;

/// How many times as fast a station works with so many requests.
fn rate(kind: &StationKind, number: usize) -> f64 {
    match kind {
        StationKind::Queue => 1.0,
        StationKind::Servers(servers) => number.min(*servers as usize) as f64,
        StationKind::Delay => number as f64,
        StationKind::Rates(rates) => rates[number.min(rates.len()) - 1],
    }
}

/// A chain over all states. Requests go from each station to the next one, and processor sharing
/// gives each request an equal part of a station.
struct Markov<'a> {
    kinds: &'a [StationKind],
    demands: &'a [[f64; 2]],
}

impl Markov<'_> {
    /// The states that follow a state, with their rates and the chain that moved from the last station.
    fn follow(&self, state: &State) -> Vec<(State, f64, Option<usize>)> {
        let mut next = Vec::new();
        for (station, numbers) in state.iter().enumerate() {
            let all = numbers[0] + numbers[1];
            for chain in [0, 1] {
                if numbers[chain] == 0 {
                    continue;
                }
                let share = numbers[chain] as f64 / all as f64;
                let speed = share * rate(&self.kinds[station], all) / self.demands[station][chain];
                let mut moved = state.clone();
                moved[station][chain] -= 1;
                let behind = (station + 1) % state.len();
                moved[behind][chain] += 1;
                next.push((moved, speed, (behind == 0).then_some(chain)));
            }
        }
        next
    }

    /// Throughputs of both chains, and mean numbers at each station.
    fn solve(&self, clients: [usize; 2]) -> ([f64; 2], Vec<[f64; 2]>) {
        let mut first = vec![[0, 0]; self.kinds.len()];
        first[0] = clients;
        let mut states = vec![first.clone()];
        let mut index = HashMap::from([(first, 0)]);
        let mut moves: Vec<Vec<(usize, f64, Option<usize>)>> = Vec::new();
        while moves.len() < states.len() {
            let state = states[moves.len()].clone();
            let follow = self.follow(&state).into_iter().map(|(next, speed, done)| {
                let new = states.len();
                let at = *index.entry(next.clone()).or_insert(new);
                if at == new {
                    states.push(next);
                }
                (at, speed, done)
            });
            let follow = follow.collect();
            moves.push(follow);
        }
        let out: Vec<f64> = moves
            .iter()
            .map(|all| all.iter().map(|one| one.1).sum())
            .collect();
        let fastest = out.iter().copied().fold(0.0, f64::max) * 1.05;
        let mut chances = vec![1.0 / states.len() as f64; states.len()];
        for _ in 0..200_000 {
            let mut next: Vec<f64> = chances
                .iter()
                .zip(&out)
                .map(|(chance, out)| chance * (1.0 - out / fastest))
                .collect();
            for (chance, all) in chances.iter().zip(&moves) {
                for (at, speed, _) in all {
                    next[*at] += chance * speed / fastest;
                }
            }
            let change: f64 = next
                .iter()
                .zip(&chances)
                .map(|(one, other)| (one - other).abs())
                .sum();
            chances = next;
            if change < 1e-14 {
                break;
            }
        }
        let mut throughputs = [0.0; 2];
        let mut numbers = vec![[0.0; 2]; self.kinds.len()];
        for ((chance, all), state) in chances.iter().zip(&moves).zip(&states) {
            for (_, speed, done) in all {
                if let Some(chain) = done {
                    throughputs[*chain] += chance * speed;
                }
            }
            for (mean, number) in numbers.iter_mut().zip(state) {
                mean[0] += chance * number[0] as f64;
                mean[1] += chance * number[1] as f64;
            }
        }
        (throughputs, numbers)
    }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-7 * (1.0 + other.abs())
}

#[test]
fn networks_of_one_chain_are_their_markov_chains() {
    let kinds = [
        StationKind::Queue,
        StationKind::Servers(2),
        StationKind::Delay,
        StationKind::Rates(vec![1.0, 1.4, 2.5]),
    ];
    for demands in [[0.3, 0.5, 0.8, 0.6], [0.05, 1.0, 0.1, 0.1]] {
        let stations = kinds.iter().zip(demands).map(|(kind, demand)| ModelStation {
            demand,
            kind: kind.clone(),
        });
        let network = ClosedNetwork::new(stations.collect()).unwrap();
        let both = demands.map(|demand| [demand, 1.0]);
        let chain = Markov {
            kinds: &kinds,
            demands: &both,
        };
        for clients in 1..=6 {
            let (throughputs, numbers) = chain.solve([clients, 0]);
            let solved = network.solve(clients).unwrap();
            assert!(
                is_near(solved.throughput, throughputs[0]),
                "{clients}: {solved:?} {throughputs:?}"
            );
            for (station, number) in solved.stations.iter().zip(&numbers) {
                assert!(
                    is_near(station.queue, number[0]),
                    "{clients}: {solved:?} {numbers:?}"
                );
            }
        }
    }
}

#[test]
fn networks_of_two_chains_are_their_markov_chains() {
    let kinds = [StationKind::Servers(2), StationKind::Queue, StationKind::Delay];
    let demands = [[0.4, 0.1], [0.3, 0.9], [1.0, 0.2]];
    let stations = kinds.iter().map(|kind| ModelStation {
        demand: 1.0,
        kind: kind.clone(),
    });
    let network = ClosedNetwork::new(stations.collect()).unwrap();
    let chain = Markov {
        kinds: &kinds,
        demands: &demands,
    };
    for clients in [[1, 1], [3, 2], [2, 4]] {
        let of = |which: usize| ChainDemands {
            demands: demands.iter().map(|both| both[which]).collect(),
            clients: clients[which],
        };
        let solved = TwoChains::new(&network, [of(0), of(1)]).unwrap().solve().unwrap();
        let (throughputs, numbers) = chain.solve(clients);
        for which in [0, 1] {
            assert!(
                is_near(solved[which].throughput, throughputs[which]),
                "{clients:?}: {solved:?} {throughputs:?}"
            );
            for (queue, number) in solved[which].queues.iter().zip(&numbers) {
                assert!(
                    is_near(*queue, number[which]),
                    "{clients:?}: {solved:?} {numbers:?}"
                );
            }
        }
    }
}

#[test]
fn pool_of_few_threads_is_near_its_markov_chain() {
    // With exponential service outside and inside, the pool's own station is what is approximate:
    // here it is exact, since the flow depends on the number inside only.
    let inside = ClosedNetwork::new(vec![ModelStation::queue(0.3), ModelStation::servers(0.5, 2)]).unwrap();
    let pool = thread_pool(&inside, 3).unwrap();
    let kinds = [pool.kind.clone(), StationKind::Delay];
    let demands = [[1.0, 1.0], [0.7, 1.0]];
    let (throughputs, _) = Markov {
        kinds: &kinds,
        demands: &demands,
    }
    .solve([8, 0]);
    let site = ClosedNetwork::new(vec![pool, ModelStation::delay(0.7)]).unwrap();
    assert!(is_near(site.solve(8).unwrap().throughput, throughputs[0]));
}
