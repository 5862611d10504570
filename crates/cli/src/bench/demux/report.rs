//! What `toehold bench demux` measures, as a document.

use std::collections::BTreeMap;

use serde::Serialize;
use toehold_demux_lab::model::FIGURE_9_USERS;
use toehold_demux_lab::paper::{self, Effort, Entered, Number, Point};
use toehold_demux_lab::speed::{self, Attacked, Candidate, Growth, Plan, Threads, Times};
use toehold_lab::host::{Build, Host};
use toehold_lab::say;
use toehold_lab::statistics::Estimate;

/// What was counted and timed.
#[derive(Debug, Serialize)]
pub(super) struct DemuxReport {
    pub(super) build: Build,
    pub(super) host: Host,
    pub(super) seed: u64,
    pub(super) rounds: u32,
    pub(super) section_3: Vec<Number>,
    pub(super) figure_4: Vec<Entered>,
    pub(super) figure_9: Vec<Point>,
    pub(super) times: Vec<Times>,
    /// Results with one thread and with two threads at once.
    pub(super) threads: Vec<Threads>,
    pub(super) growth: Vec<Growth>,
    /// Time a look-up of the flow table as a multiple of each other candidate's, by
    /// `TRAFFIC_CONNECTIONS/flow-table/CANDIDATE`: the median of the rounds' ratios.
    pub(super) ratios: BTreeMap<String, Estimate>,
    /// Candidates that are missing on this machine, with the reason.
    pub(super) missing: BTreeMap<String, String>,
}

/// A round, as saved.
#[derive(Debug, Serialize)]
pub(super) struct Round<'a> {
    connections: u32,
    traffic: speed::Traffic,
    candidate: &'a str,
    threads: usize,
    ns: f64,
}

/// The effects of attacks.
#[derive(Debug, Serialize)]
pub(super) struct AttackReport {
    pub(super) attacks: Vec<Attacked>,
    /// Time a look-up under attack as a multiple of the usual one, by `ATTACK/CANDIDATE`: the median
    /// of the rounds' ratios.
    pub(super) ratios: BTreeMap<String, Estimate>,
}

impl DemuxReport {
    /// Measures everything but attacks. `quick` shortens the simulation.
    pub(super) fn measured(plan: &Plan, quick: bool) -> Self {
        let effort = Effort {
            lookups: if quick { 20_000 } else { 200_000 },
            seed: plan.seed,
        };
        let users = if quick {
            &FIGURE_9_USERS[..3]
        } else {
            &FIGURE_9_USERS[..]
        };
        let (build, host) = (Build::this(), Host::read());
        say("simulating the paper's users");
        let (section_3, figure_4) = (paper::section_3(effort), paper::figure_4(effort));
        let figure_9 = paper::figure_9(users, effort);
        let times = speed::measure(plan, say);
        let threads = speed::threads(plan, say);
        say("entering connections one by one");
        let most = plan.connections.iter().copied().max().unwrap_or(2);
        let ratios = ratios(&times);
        Self {
            build,
            host,
            seed: plan.seed,
            rounds: plan.rounds,
            section_3,
            figure_4,
            figure_9,
            times,
            threads,
            growth: speed::growth(most, plan.seed),
            ratios,
            missing: missing(),
        }
    }

    /// All timed rounds, one by one.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Round<'_>> {
        let alone = self.times.iter().flat_map(|times| {
            times.rounds_ns.iter().map(|&ns| Round {
                connections: times.connections,
                traffic: times.traffic,
                candidate: &times.candidate,
                threads: 1,
                ns,
            })
        });
        let of_threads = self.threads.iter().flat_map(|found| {
            let of = |threads, ns: &f64| Round {
                connections: found.connections,
                traffic: speed::Traffic::Tpca,
                candidate: &found.candidate,
                threads,
                ns: *ns,
            };
            let alone = found.alone_ns.iter().map(move |ns| of(1, ns));
            alone.chain(found.both_ns.iter().map(move |ns| of(2, ns)))
        });
        alone.chain(of_threads)
    }
}

impl AttackReport {
    /// Measures all attacks on tables of `live` connections.
    pub(super) fn measured(live: u32, rounds: u32, seed: u64) -> Self {
        let attacks = speed::attacks(live, rounds, seed, say);
        let ratio = |row: &Attacked| {
            let name = format!("{}/{}", row.attack.key(), row.candidate);
            Some((name, Estimate::of(row.round_ratios())?))
        };
        Self {
            ratios: attacks.iter().filter_map(ratio).collect(),
            attacks,
        }
    }
}

/// The ratios of the flow table to each other candidate, round by round.
fn ratios(times: &[Times]) -> BTreeMap<String, Estimate> {
    let own = Candidate::OWN.name();
    let mut ratios = BTreeMap::new();
    for ours in times.iter().filter(|times| times.candidate == own) {
        let beside = |other: &&Times| {
            (other.connections, other.traffic) == (ours.connections, ours.traffic) && other.candidate != own
        };
        for other in times.iter().filter(beside) {
            let rounds = ours.rounds_ns.iter().zip(&other.rounds_ns);
            if let Some(ratio) = Estimate::of(rounds.map(|(ours, other)| ours / other)) {
                let (traffic, candidate) = (ours.traffic.name(), &other.candidate);
                ratios.insert(format!("{traffic}_{}/{own}/{candidate}", ours.connections), ratio);
            }
        }
    }
    ratios
}

fn missing() -> BTreeMap<String, String> {
    let candidate = Candidate::RteHash;
    let why = candidate.missing();
    why.into_iter().map(|why| (candidate.name(), why)).collect()
}

#[cfg(test)]
mod tests {
    use toehold_demux_lab::speed::Attack;

    use super::*;
    use crate::json::Document;

    #[test]
    fn key_of_attack_is_its_name_in_json() {
        for attack in Attack::ALL {
            assert_eq!(serde_json::to_value(attack).unwrap(), attack.key());
        }
    }

    #[test]
    fn attack_report_is_document_with_ratio_of_each_candidate() {
        let report = AttackReport::measured(64, 2, 5);
        let text = Document::new("toehold/bench-demux-attacks/1", &report)
            .text()
            .unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["schema"], "toehold/bench-demux-attacks/1");
        let rows = document["attacks"].as_array().unwrap();
        assert_eq!(document["ratios"].as_object().unwrap().len(), rows.len());
        for row in rows {
            let [attack, candidate] = ["attack", "candidate"].map(|name| row[name].as_str().unwrap());
            let ratio = &document["ratios"][format!("{attack}/{candidate}")];
            assert_eq!(ratio["runs"], 2, "{attack}/{candidate}");
            assert!(ratio["median"].as_f64().unwrap() > 0.0, "{ratio}");
        }
    }
}
