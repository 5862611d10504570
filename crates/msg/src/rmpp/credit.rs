//! Grants: how much a sender may send before the receiver has said more.
//!
//! One currency serves all: units of 64 bytes. A message costs its length in units, at
//! least one; an offer costs one. A receiver's grants are promises of memory, so all grants
//! together have a bound, the [`GrantBudget`].

use crate::payload::UNIT_LEN;
use toehold_wire::rmpp::Seq;

/// Units that each flow may send unasked.
pub(crate) const FIRST_GRANT: u32 = 64;
/// Units of a flow that has sent a message, if the budget has them.
pub(crate) const USUAL_GRANT: u32 = 4096;
/// Most units of a flow whose sender waits: half of the field's circle.
pub(crate) const MOST_GRANT: u32 = 32_767;
/// Units by which the grant of a waiting sender grows at a time.
const RAISE: u32 = 64;
/// Units that eager messages leave for offers.
const OFFER_RESERVE: u64 = 16;

/// The units that a message of this length costs.
pub(crate) fn units(len: usize) -> u32 {
    len.div_ceil(UNIT_LEN).max(1) as u32
}

/// A sender's view of its grant.
#[derive(Debug, Clone)]
pub(crate) struct SendCredit {
    granted: u64,
    spent: u64,
    newest_ack: Seq,
}

impl SendCredit {
    pub(crate) fn new() -> Self {
        Self {
            granted: u64::from(FIRST_GRANT),
            spent: 0,
            newest_ack: Seq(0),
        }
    }

    /// Reads the grant of a packet. Returns `true` if there is more than before.
    ///
    /// A grant counts only beside an acknowledgement that is not behind the newest one. The
    /// grant of a late packet, from a lap of 16 bits ago, would look newer.
    pub(crate) fn hear(&mut self, field: u16, ack: Seq) -> bool {
        if ack.lt(self.newest_ack) {
            return false;
        }
        self.newest_ack = ack;
        let more = field.wrapping_sub(self.granted as u16);
        let is_newer = more != 0 && more <= MOST_GRANT as u16;
        if is_newer {
            self.granted += u64::from(more);
        }
        is_newer
    }

    fn left(&self) -> u64 {
        self.granted - self.spent
    }

    /// Whether an eager message of so many units may go.
    pub(crate) fn covers_eager(&self, units: u32) -> bool {
        self.left() >= u64::from(units) + OFFER_RESERVE
    }

    /// Whether an offer may go.
    pub(crate) fn covers_offer(&self) -> bool {
        self.left() > 0
    }

    /// Spends units that are covered.
    pub(crate) fn spend(&mut self, units: u32) {
        self.spent += u64::from(units);
        debug_assert!(self.spent <= self.granted);
    }
}

/// The units that an endpoint has not promised to any flow. Each flow's first grant is set
/// aside beforehand, so that it is always there.
#[derive(Debug, Clone)]
pub(crate) struct GrantBudget {
    free: u32,
}

impl GrantBudget {
    pub(crate) fn new(units: u32, flows: u32) -> Self {
        Self {
            free: units.saturating_sub(flows.saturating_mul(FIRST_GRANT)),
        }
    }
}

/// A receiver's view of a flow's grant.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveCredit {
    /// Units that may be under way or stored at a time.
    limit: u32,
    /// Units that arrived.
    used: u64,
    /// Units whose memory is free again.
    returned: u64,
    /// The grant that the peer has been told.
    told: u64,
    /// Whether the sender has said that it waits.
    is_asked: bool,
}

impl ReceiveCredit {
    pub(crate) fn new() -> Self {
        Self {
            limit: FIRST_GRANT,
            used: 0,
            returned: 0,
            told: u64::from(FIRST_GRANT),
            is_asked: false,
        }
    }

    fn grant(&self) -> u64 {
        self.returned + u64::from(self.limit)
    }

    /// The header's field.
    pub(crate) fn field(&self) -> u16 {
        self.grant() as u16
    }

    /// Notes that a packet has carried the field.
    pub(crate) fn told(&mut self) {
        self.told = self.grant();
    }

    /// Takes the units of an arriving message. Returns `false` if the peer had no grant for
    /// them.
    pub(crate) fn take(&mut self, units: u32, budget: &mut GrantBudget) -> bool {
        let used = self.used + u64::from(units);
        if used > self.grant() {
            return false;
        }
        self.used = used;
        self.raise_to(USUAL_GRANT, budget);
        if self.is_asked && self.grant() - self.used < u64::from(RAISE) {
            self.raise_to(self.limit + RAISE, budget);
        }
        true
    }

    /// Notes that the sender waits.
    pub(crate) fn ask(&mut self, budget: &mut GrantBudget) {
        self.is_asked = true;
        self.raise_to(self.limit + RAISE, budget);
    }

    fn raise_to(&mut self, limit: u32, budget: &mut GrantBudget) {
        let more = limit.min(MOST_GRANT).saturating_sub(self.limit);
        if more > 0 && more <= budget.free {
            budget.free -= more;
            self.limit += more;
        }
    }

    /// Notes that the memory of so many units is free again.
    pub(crate) fn give_back(&mut self, units: u32) {
        self.returned += u64::from(units);
        debug_assert!(self.returned <= self.used);
    }

    /// Whether the peer should be told of its grant by a packet of its own.
    pub(crate) fn is_worth_telling(&self) -> bool {
        let untold = self.grant() - self.told;
        untold > 0 && (self.is_asked || untold * 2 >= u64::from(self.limit))
    }

    /// Units that arrived and whose memory is not free again.
    pub(crate) fn outstanding(&self) -> u64 {
        self.used - self.returned
    }

    /// Returns what was promised beyond a flow's first grant.
    pub(crate) fn end(&self, budget: &mut GrantBudget) {
        budget.free += self.limit - FIRST_GRANT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_of_late_packet_is_ignored() {
        let mut credit = SendCredit::new();
        assert!(credit.hear(4096, Seq(10)));
        credit.spend(4000);
        assert!(credit.hear(8096, Seq(20)));
        // Three MiB ago the field was larger than it is now, on its circle.
        assert!(!credit.hear(8096u16.wrapping_add(20_000), Seq(19)));
        assert!(!credit.hear(4096, Seq(20)));
        assert_eq!(credit.left(), 4096);
    }

    #[test]
    fn budget_always_has_the_first_grant() {
        let mut budget = GrantBudget::new(USUAL_GRANT * 2, 8);
        let mut flows: Vec<_> = (0..8).map(|_| ReceiveCredit::new()).collect();
        for flow in &mut flows {
            assert!(flow.take(1, &mut budget));
            flow.ask(&mut budget);
        }
        let sum: u32 = flows.iter().map(|flow| flow.limit).sum();
        assert!(sum <= USUAL_GRANT * 2, "{sum}");
        assert!(flows.iter().all(|flow| flow.limit >= FIRST_GRANT));
        flows.iter().for_each(|flow| flow.end(&mut budget));
        assert_eq!(budget.free, USUAL_GRANT * 2 - 8 * FIRST_GRANT);
    }

    #[test]
    fn message_beyond_grant_is_refused() {
        let mut budget = GrantBudget::new(0, 1);
        let mut credit = ReceiveCredit::new();
        assert!(!credit.take(FIRST_GRANT + 1, &mut budget));
        assert!(credit.take(FIRST_GRANT, &mut budget));
        assert!(!credit.take(1, &mut budget));
        credit.give_back(1);
        assert!(credit.take(1, &mut budget));
    }

    #[test]
    fn waiting_sender_is_granted_each_unit() {
        let mut budget = GrantBudget::new(1 << 19, 512);
        let mut credit = ReceiveCredit::new();
        assert!(credit.take(32, &mut budget));
        credit.told();
        credit.give_back(1);
        assert!(!credit.is_worth_telling());
        credit.ask(&mut budget);
        credit.told();
        credit.give_back(1);
        assert!(credit.is_worth_telling());
        for _ in 0..10_000 {
            credit.ask(&mut budget);
        }
        assert!(credit.limit <= MOST_GRANT);
    }
}
