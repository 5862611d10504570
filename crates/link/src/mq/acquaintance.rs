//! Nodes that this node knows of and that are no peers at the moment. Says when to dial them again,
//! and which ones to keep away for a while.

use super::message::Refusal;
use super::name::MemberName;
use super::settings::MAX_PEERS;

/// Most nodes remembered; the one least likely to come back makes room.
const MAX_REMEMBERED: usize = 2 * MAX_PEERS;

const FIRST_DELAY_NS: u64 = 50_000_000;
const LONGEST_DELAY_NS: u64 = 5_000_000_000;

/// A node whose socket is missing or dead this many times is forgotten: if it
/// comes back, it dials.
const MAX_MISSING: u32 = 8;

/// A peer that was connected this long has made up for earlier failures.
const FORGIVEN_AFTER_NS: u64 = 10_000_000_000;

#[derive(Debug)]
pub(super) struct Acquaintance {
    pub(super) name: MemberName,
    /// When to dial; `None` while connected or dialling.
    next_attempt_ns: Option<u64>,
    /// Until when its own calls are refused.
    refused_until_ns: u64,
    /// Failed attempts and offences in a row.
    failures: u32,
    missing: u32,
    connected_since_ns: Option<u64>,
    /// Why the last attempt failed.
    pub(super) last_refusal: Option<Refusal>,
}

#[derive(Debug)]
pub(super) struct Acquaintances {
    list: Vec<Acquaintance>,
    /// Spreads the attempts of nodes that lost each other at the same moment.
    jitter: u64,
}

impl Acquaintances {
    pub(super) fn new(seed: u64) -> Acquaintances {
        Acquaintances {
            list: Vec::new(),
            jitter: seed | 1,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Acquaintance> {
        self.list.iter()
    }

    /// A node was found: dial it at once.
    pub(super) fn found(&mut self, name: MemberName, now_ns: u64) {
        self.entry(name).next_attempt_ns = Some(now_ns);
    }

    /// Whether its calls are answered with [`Refusal::TryLater`].
    pub(super) fn is_kept_away(&self, name: &MemberName, now_ns: u64) -> bool {
        self.get(name)
            .is_some_and(|known| now_ns < known.refused_until_ns)
    }

    /// The next node to be dialled now; it is not due again until told so.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<MemberName> {
        let due = |known: &&mut Acquaintance| known.next_attempt_ns.is_some_and(|at| at <= now_ns);
        let known = self.list.iter_mut().find(due)?;
        known.next_attempt_ns = None;
        Some(known.name)
    }

    /// When the next node has to be dialled.
    pub(super) fn next_attempt_ns(&self) -> Option<u64> {
        self.list.iter().filter_map(|known| known.next_attempt_ns).min()
    }

    pub(super) fn connected(&mut self, name: MemberName, now_ns: u64) {
        let known = self.entry(name);
        known.next_attempt_ns = None;
        known.connected_since_ns = Some(now_ns);
        known.missing = 0;
        known.last_refusal = None;
    }

    /// Notes that a handshake with the node came to nothing.
    pub(super) fn failed(&mut self, name: MemberName, reason: Option<Refusal>, now_ns: u64) {
        let delay_ns = self.failure_delay_ns(name);
        let known = self.entry(name);
        known.last_refusal = reason;
        known.next_attempt_ns = Some(now_ns.saturating_add(delay_ns));
    }

    /// Notes that the node's socket is missing or dead.
    pub(super) fn missing(&mut self, name: MemberName, now_ns: u64) {
        let delay_ns = self.failure_delay_ns(name);
        let known = self.entry(name);
        known.missing += 1;
        if known.missing < MAX_MISSING {
            known.next_attempt_ns = Some(now_ns.saturating_add(delay_ns));
        } else {
            self.list.retain(|known| known.name != name);
        }
    }

    /// The peer hung up.
    pub(super) fn lost(&mut self, name: MemberName, now_ns: u64) {
        self.forgive(name, now_ns);
        let delay_ns = self.failure_delay_ns(name);
        self.entry(name).next_attempt_ns = Some(now_ns.saturating_add(delay_ns));
    }

    /// The peer broke the rules: the link to it was cut, and stays so for a
    /// while that grows with every offence.
    pub(super) fn offended(&mut self, name: MemberName, now_ns: u64) {
        self.forgive(name, now_ns);
        let delay_ns = self.failure_delay_ns(name);
        let known = self.entry(name);
        known.refused_until_ns = now_ns.saturating_add(delay_ns);
        known.next_attempt_ns = Some(known.refused_until_ns);
    }

    fn forgive(&mut self, name: MemberName, now_ns: u64) {
        let known = self.entry(name);
        let connected_ns = known
            .connected_since_ns
            .take()
            .map_or(0, |since| now_ns.saturating_sub(since));
        if connected_ns >= FORGIVEN_AFTER_NS {
            known.failures = 0;
        }
    }

    /// Doubles with every failure, plus up to a quarter at random.
    fn failure_delay_ns(&mut self, name: MemberName) -> u64 {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let jitter = self.jitter;
        let known = self.entry(name);
        let delay_ns = (FIRST_DELAY_NS << known.failures.min(16)).min(LONGEST_DELAY_NS);
        known.failures = known.failures.saturating_add(1);
        delay_ns + jitter % (delay_ns / 4)
    }

    fn get(&self, name: &MemberName) -> Option<&Acquaintance> {
        self.list.iter().find(|known| known.name == *name)
    }

    fn entry(&mut self, name: MemberName) -> &mut Acquaintance {
        let at = self
            .list
            .iter()
            .position(|known| known.name == name)
            .unwrap_or_else(|| {
                if self.list.len() >= MAX_REMEMBERED {
                    self.make_room();
                }
                self.list.push(Acquaintance {
                    name,
                    next_attempt_ns: None,
                    refused_until_ns: 0,
                    failures: 0,
                    missing: 0,
                    connected_since_ns: None,
                    last_refusal: None,
                });
                self.list.len() - 1
            });
        &mut self.list[at]
    }

    /// Forgets a node that is not connected, the most often missing one first.
    fn make_room(&mut self) {
        let rank = |known: &Acquaintance| (known.connected_since_ns.is_none(), known.missing, known.failures);
        if let Some(at) = (0..self.list.len()).max_by_key(|&at| rank(&self.list[at])) {
            self.list.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn name(number: usize) -> MemberName {
        format!("node-{number}").parse().unwrap()
    }

    #[test]
    fn missing_node_is_dialled_less_often_and_forgotten() {
        let mut known = Acquaintances::new(1);
        known.found(name(1), 0);
        let mut delays = Vec::new();
        let mut now = 0;
        while let Some(at) = known.next_attempt_ns() {
            delays.push((at - now) / MS);
            now = at;
            assert_eq!(known.take_due(now), Some(name(1)));
            assert_eq!(known.take_due(now), None);
            known.missing(name(1), now);
        }
        assert_eq!(delays.len(), MAX_MISSING as usize);
        for (delay, least) in delays[1..].iter().zip([50, 100, 200, 400, 800, 1600, 3200]) {
            assert!((least..=least * 5 / 4).contains(delay), "{delays:?}");
        }
        assert_eq!(known.iter().count(), 0);
    }

    #[test]
    fn offender_is_kept_away_longer_each_time() {
        let mut known = Acquaintances::new(1);
        let mut now = 0;
        let mut last = 0;
        for _ in 0..5 {
            known.connected(name(1), now);
            known.offended(name(1), now);
            let until = known.next_attempt_ns().unwrap();
            assert!(until - now > last, "longer than before");
            last = until - now;
            assert!(known.is_kept_away(&name(1), until - 1));
            assert!(!known.is_kept_away(&name(1), until));
            assert!(!known.is_kept_away(&name(2), now));
            now = until;
        }
        // A long time of good conduct counts.
        known.connected(name(1), now);
        now += FORGIVEN_AFTER_NS;
        known.offended(name(1), now);
        assert!(!known.is_kept_away(&name(1), now + 100 * MS));
    }

    #[test]
    fn memory_is_bounded() {
        let mut known = Acquaintances::new(1);
        known.connected(name(0), 0);
        for number in 1..4 * MAX_REMEMBERED {
            known.found(name(number), 0);
        }
        assert_eq!(known.iter().count(), MAX_REMEMBERED);
        assert!(
            known.iter().any(|known| known.name == name(0)),
            "a peer is not forgotten"
        );
    }
}
