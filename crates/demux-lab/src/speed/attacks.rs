//! Times of look-ups when an attacker chooses the connections or the segments.

use std::hash::BuildHasher;

use serde::Serialize;
use toehold_stack::demux::{FlowTable, Sequent};
use toehold_stack::{DemuxStrategy, FourTuple};

use super::Run;
use super::crc::Crc;
use super::table::{Candidate, Key, Table, Wanted};
use crate::{Connections, connection, secret};

/// Attacks. Unless stated otherwise, the attacker knows everything but the
/// secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Connections that share one of 256 buckets of a flow table with another
    /// secret.
    ChosenKeys,
    /// Connections that share one of 256 buckets of the flow table under test.
    KnownSecret,
    /// Connections that share one of 64 chains of a `sequent` table with
    /// another secret.
    ChosenChains,
    /// Connections that share one of 64 chains of the `sequent` table under
    /// test.
    KnownChains,
    /// Connections with an equal CRC, whatever its initial value.
    CrcKernel,
    /// Consecutive connections from one IPv6 network of 64 bits.
    OneNetwork,
    /// Nine of ten segments belong to no connection.
    BogusAcks,
    /// Each connection has three others in TIME-WAIT, with one of ten segments.
    TimeWaits,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Self; 8] = [
        Self::ChosenKeys,
        Self::KnownSecret,
        Self::ChosenChains,
        Self::KnownChains,
        Self::CrcKernel,
        Self::OneNetwork,
        Self::BogusAcks,
        Self::TimeWaits,
    ];

    /// Returns the attack's name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::ChosenKeys => "chosen-keys",
            Self::KnownSecret => "known-secret",
            Self::ChosenChains => "chosen-chains",
            Self::KnownChains => "known-chains",
            Self::CrcKernel => "crc-kernel",
            Self::OneNetwork => "one-network",
            Self::BogusAcks => "bogus-acks",
            Self::TimeWaits => "time-waits",
        }
    }

    /// Returns the attack's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChosenKeys => "chosen keys",
            Self::KnownSecret => "chosen keys, secret known",
            Self::ChosenChains => "chosen for few chains",
            Self::KnownChains => "few chains, secret known",
            Self::CrcKernel => "kernel of CRC-32C",
            Self::OneNetwork => "one IPv6 /64",
            Self::BogusAcks => "90 % bogus ACKs",
            Self::TimeWaits => "3 in TIME-WAIT for 1 live",
        }
    }
}

/// The effect of an attack on a candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attacked {
    /// The attack.
    pub attack: Attack,
    /// The candidate's name.
    pub candidate: String,
    /// Number of live connections.
    pub connections: u32,
    /// Nanoseconds a look-up without an attack: minimum, median.
    pub usual_ns: [f64; 2],
    /// Nanoseconds a look-up under attack: minimum, median.
    pub attacked_ns: [f64; 2],
    /// Nanoseconds a look-up without an attack, in each round.
    pub usual_rounds_ns: Vec<f64>,
    /// Nanoseconds a look-up under attack, in each round.
    pub attacked_rounds_ns: Vec<f64>,
}

impl Attacked {
    /// Returns each round's time under attack, divided by the round's usual time.
    pub fn round_ratios(&self) -> impl Iterator<Item = f64> {
        let rounds = self.attacked_rounds_ns.iter().zip(&self.usual_rounds_ns);
        rounds.map(|(attacked, usual)| attacked / usual)
    }

    /// Returns the ratio of the medians.
    pub fn ratio(&self) -> f64 {
        self.attacked_ns[1] / self.usual_ns[1]
    }
}

/// Number of look-ups in a sequence, which is repeated.
const LOOKUPS: usize = 1 << 18;

/// Number of chosen connections. 65 536 tuples have an equal CRC.
const CHOSEN: u32 = 1 << 14;

/// Connections and a sequence of look-ups among them.
struct Side {
    connections: Connections,
    wanted: Wanted,
    tables: Vec<(Candidate, Table)>,
}

/// Measures all attacks. `live` is the number of live connections of the last
/// two.
///
/// # Panics
///
/// If a candidate gives a wrong result.
pub fn attacks(live: u32, rounds: u32, seed: u64, mut progress: impl FnMut(&str)) -> Vec<Attacked> {
    let mut found = Vec::new();
    for attack in Attack::ALL {
        progress(attack.name());
        let (connections, mut sides) = sides(attack, live, seed);
        found.extend(compare(&mut sides, rounds).into_iter().map(
            |(candidate, [usual_rounds_ns, attacked_rounds_ns])| Attacked {
                attack,
                candidate,
                connections,
                usual_ns: super::least_and_median(&usual_rounds_ns),
                attacked_ns: super::least_and_median(&attacked_rounds_ns),
                usual_rounds_ns,
                attacked_rounds_ns,
            },
        ));
    }
    found
}

/// Returns the times of each candidate on both sides, which take turns.
fn compare([usual, attacked]: &mut [Side; 2], rounds: u32) -> Vec<(String, [Vec<f64>; 2])> {
    let mut pairs = Vec::new();
    for ((candidate, table), (_, other)) in usual.tables.iter_mut().zip(&mut attacked.tables) {
        let sides = [
            (table, &usual.wanted, &usual.connections),
            (other, &attacked.wanted, &attacked.connections),
        ];
        pairs.push(sides.map(|(table, wanted, connections)| {
            let mut run = Run {
                candidate: *candidate,
                table,
                wanted,
                connections,
                lookups: super::FEWEST,
                next: 0,
                rounds: Vec::new(),
            };
            run.calibrate();
            run
        }));
    }
    for _ in 0..rounds {
        for run in pairs.iter_mut().flatten() {
            run.round(super::Traffic::Tpca);
        }
    }
    let named = |pair: [Run<'_>; 2]| (pair[0].candidate.name(), pair.map(|run| run.rounds));
    pairs.into_iter().map(named).collect()
}

fn candidates(connections: u32) -> Vec<Candidate> {
    let chains = (connections / 4).max(1);
    vec![
        Candidate::Bursts(DemuxStrategy::FlowTable),
        Candidate::Alone(DemuxStrategy::FlowTable),
        Candidate::Bursts(DemuxStrategy::Sequent { chains: 19 }),
        Candidate::Bursts(DemuxStrategy::Sequent { chains }),
        Candidate::Foldhash,
        Candidate::Crc,
    ]
}

/// Returns the number of connections and both sides of an attack.
fn sides(attack: Attack, live: u32, seed: u64) -> (u32, [Side; 2]) {
    let side = |tuples: Vec<FourTuple>, wanted: Wanted, count: u32| {
        let connections = Connections::of(tuples);
        let filled = |candidate: Candidate| (candidate, candidate.filled(&connections, seed));
        let tables = candidates(count).into_iter().map(filled).collect();
        Side {
            connections,
            wanted,
            tables,
        }
    };
    let any = |count: u32| (0..count).map(connection).collect::<Vec<_>>();
    let chosen = |usual: Vec<FourTuple>, tuples: Vec<FourTuple>| {
        assert_eq!(usual.len(), tuples.len());
        let sides = [usual, tuples].map(|tuples| {
            let wanted = wanted(&tuples, CHOSEN, 0, CHOSEN, seed);
            side(tuples, wanted, CHOSEN)
        });
        (CHOSEN, sides)
    };
    match attack {
        Attack::ChosenKeys => chosen(any(CHOSEN), in_few_buckets(&secret(seed + 1))),
        Attack::KnownSecret => chosen(any(CHOSEN), in_few_buckets(&secret(seed))),
        Attack::ChosenChains => chosen(any(CHOSEN), in_few_chains(&secret(seed + 1))),
        Attack::KnownChains => chosen(any(CHOSEN), in_few_chains(&secret(seed))),
        Attack::CrcKernel => chosen(any(CHOSEN), crc_kernel()),
        Attack::OneNetwork => {
            let networks = (0..CHOSEN).map(|number| connection(number * 4)).collect();
            chosen(networks, one_network())
        }
        Attack::BogusAcks => {
            let all = any(2 * live);
            let sides = [0, 9].map(|tenths| {
                let wanted = wanted(&all, live, tenths, 2 * live, seed);
                side(all[..live as usize].to_vec(), wanted, live)
            });
            (live, sides)
        }
        Attack::TimeWaits => {
            let all = any(4 * live);
            let usual = side(
                all[..live as usize].to_vec(),
                wanted(&all, live, 0, live, seed),
                live,
            );
            let wanted = wanted(&all, live, 1, 4 * live, seed);
            // One table holds both live and waiting connections, as a stack's flow
            // table does, and as the lists of the paper's time did.
            let attacked = side(all, wanted, live);
            (live, [usual, attacked])
        }
    }
}

/// Returns look-ups of the first `live` tuples. `tenths` of ten are of later
/// ones, up to `until`.
fn wanted(tuples: &[FourTuple], live: u32, tenths: u32, until: u32, seed: u64) -> Wanted {
    let mut random = fastrand::Rng::with_seed(seed);
    let number = |_| match random.u32(..10) < tenths {
        true => random.u32(live..until),
        false => random.u32(..live),
    };
    let numbers: Vec<u32> = (0..LOOKUPS).map(number).collect();
    Wanted {
        tuples: numbers.iter().map(|&number| tuples[number as usize]).collect(),
        numbers,
    }
}

/// Returns tuples that share one of 256 buckets of a flow table with this
/// secret.
fn in_few_buckets(secret: &[u8; 16]) -> Vec<FourTuple> {
    let hash = FlowTable::hash_under(secret);
    let chosen = (0..).map(connection).filter(|tuple| hash(tuple) >> 56 == 0);
    chosen.take(CHOSEN as usize).collect()
}

/// Returns tuples that share the first chain, or one of every 64, of `sequent`
/// with this secret.
fn in_few_chains(secret: &[u8; 16]) -> Vec<FourTuple> {
    let hash = Sequent::hash_under(secret);
    let chosen = (0..).map(connection).filter(|tuple| hash(tuple) >> 58 == 0);
    chosen.take(CHOSEN as usize).collect()
}

fn one_network() -> Vec<FourTuple> {
    let client = |n: u16| format!("[2001:db8::1:0:0:0:{n:x}]:1024").parse();
    let server = "[2001:db8::1]:443".parse().expect("an address");
    let tuple = |n| FourTuple::new(server, client(n).expect("an address"));
    (0..CHOSEN as u16).map(tuple).collect()
}

/// Returns an IPv4 tuple with these 48 bits as its remote end.
fn remote_end(bits: u64) -> FourTuple {
    let address = ((bits >> 16) as u32).to_be_bytes();
    FourTuple::new(([10, 0, 0, 1], 443).into(), (address, bits as u16).into())
}

/// Returns tuples with an equal CRC. The CRC is linear: any sum of remote ends with
/// the CRC of zero also has the CRC of zero.
fn crc_kernel() -> Vec<FourTuple> {
    let crc = |bits| Crc::new(0).hash_one(Key(remote_end(bits)));
    let change = |bits| Crc::unspread(crc(bits)) ^ Crc::unspread(crc(0));
    // Elimination: each pivot changes a bit of the CRC that later ones do not
    // change.
    let mut pivots: Vec<(u64, u32)> = Vec::new();
    let mut kernel = Vec::new();
    for bit in 0..48 {
        let (mut bits, mut changed) = (1 << bit, change(1 << bit));
        for (other, by) in &pivots {
            let highest = 1 << by.ilog2();
            if changed & highest != 0 {
                (bits, changed) = (bits ^ other, changed ^ by);
            }
        }
        if changed == 0 {
            kernel.push(bits);
        } else {
            pivots.push((bits, changed));
        }
    }
    let sum = |combination: u32| {
        let chosen = kernel
            .iter()
            .zip(0..)
            .filter(|(_, at)| combination >> at & 1 == 1);
        chosen.fold(0, |sum, (bits, _)| sum ^ bits)
    };
    (0..CHOSEN)
        .map(|combination| remote_end(sum(combination)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn chosen_tuples_differ_and_have_equal_crc_for_any_initial_value() {
        let tuples = crc_kernel();
        assert_eq!(tuples.iter().collect::<HashSet<_>>().len(), CHOSEN as usize);
        for seed in [0, 1, 0xdead_beef] {
            let crcs: HashSet<_> = tuples
                .iter()
                .map(|tuple| Crc::new(seed).hash_one(Key(*tuple)))
                .collect();
            assert_eq!(crcs.len(), 1, "beginning with {seed}");
        }
        let others: HashSet<_> = (0..100)
            .map(|n| Crc::new(0).hash_one(Key(connection(n))))
            .collect();
        assert_eq!(others.len(), 100);
    }

    #[test]
    fn every_attack_measures_every_candidate() {
        let found = attacks(64, 1, 5, |_| {});
        assert_eq!(found.len(), Attack::ALL.len() * candidates(64).len());
        assert!(found.iter().all(|attacked| attacked.ratio() > 0.0));
        assert!(found.iter().all(|attacked| attacked.round_ratios().count() == 1));
    }
}
