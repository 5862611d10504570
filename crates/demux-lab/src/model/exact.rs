//! The closed loop: a user who waits for a result enters nothing.
//!
//! A user's time alternates between thinking, which ends with an entry, and waiting for R,
//! which ends with an acknowledgement. Seen at any moment he thinks with probability
//! 1 / (1 + aR), and what is left of a wait is as likely to be any part of it. So he sends
//! nothing within a span T with probability
//!
//! ```text
//! q(T) = (exp(-aT) + a max(R - T, 0)) / (1 + aR)
//! ```
//!
//! and whom another user precedes in a list in the order of use, or displaces from a cache,
//! follows from that: between an entry and its acknowledgement lies R, between an
//! acknowledgement and the next entry an exponentially distributed time.

use super::Users;

/// How many others a user shares his chain with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// As many as on every chain.
    Even,
    /// As chance has it: what a good hash does. Binomially distributed.
    Random,
}

/// Nobody but one user sends for `span` seconds, with this probability.
pub fn silent(of: &Users, span: f64) -> f64 {
    let waiting = of.rate * (of.response_time - span).max(0.0);
    ((-of.rate * span).exp() + waiting) / (1.0 + of.load())
}

/// The mean of a function of the time since a user's last segment, over his two kinds of
/// segments: half of it is R, half is exponentially distributed.
fn over_segments(of: &Users, value: impl Fn(f64) -> f64) -> f64 {
    (over_think_time(of, &value) + value(of.response_time)) / 2.0
}

/// The integral of `a exp(-aT) value(T)`, as one over `u = exp(-aT)` from 0 to 1; in two
/// parts, as `silent` has an edge at R.
fn over_think_time(of: &Users, value: impl Fn(f64) -> f64) -> f64 {
    let at = |u: f64| value(-u.max(f64::MIN_POSITIVE).ln() / of.rate);
    let edge = (-of.load()).exp();
    // Chains and lists make powers of `silent` up to that of the users: steep near 1.
    let near = 1.0 - (1.0 - edge) / 64.0;
    simpson(&at, 0.0, edge) + simpson(&at, edge, near) + simpson(&at, near, 1.0)
}

/// Simpson's rule with so many intervals that another thousand change nothing printed.
fn simpson(value: &impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const INTERVALS: u32 = 4096;
    let step = (to - from) / f64::from(INTERVALS);
    let inner: f64 = (1..INTERVALS)
        .map(|i| f64::from(2 + 2 * (i % 2)) * value(from + f64::from(i) * step))
        .sum();
    (value(from) + inner + value(to)) * step / 3.0
}

/// PCBs that precede a user's in a list in the order of use.
pub fn preceding(of: &Users) -> f64 {
    (of.users - 1.0) * (1.0 - over_segments(of, |span| silent(of, span)))
}

/// PCBs examined in a list in the order of use.
pub fn move_to_front(of: &Users) -> f64 {
    preceding(of) + 1.0
}

/// PCBs examined in hash chains in the order of use. A chain's others are those of the list,
/// of which each chain has its share.
pub fn hashed_move_to_front(of: &Users, chains: f64, spread: Spread) -> f64 {
    1.0 + preceding(of) / (of.users - 1.0) * others(of, chains, spread)
}

/// Others on a user's chain, on average.
fn others(of: &Users, chains: f64, spread: Spread) -> f64 {
    match spread {
        Spread::Even => of.users / chains - 1.0,
        Spread::Random => (of.users - 1.0) / chains,
    }
}

/// PCBs examined in a list with a one-entry cache.
pub fn bsd(of: &Users) -> f64 {
    sequent(of, 1.0, Spread::Even)
}

/// Share of segments that a one-entry cache answers, one a chain.
pub fn cache_hits(of: &Users, chains: f64, spread: Spread) -> f64 {
    over_segments(of, |span| undisturbed(of, chains, spread, silent(of, span)).0)
}

/// PCBs examined in hash chains with a one-entry cache each: one if nobody else on the chain
/// has sent anything since, and that and half the chain if somebody has.
pub fn sequent(of: &Users, chains: f64, spread: Spread) -> f64 {
    over_segments(of, |span| {
        let (hit, others_of_hits) = undisturbed(of, chains, spread, silent(of, span));
        let others_of_misses = others(of, chains, spread) - others_of_hits;
        1.0 + (others_of_misses + 2.0 * (1.0 - hit)) / 2.0
    })
}

/// With k others on the chain, of whom each is silent with probability q: the means of
/// q^k and of k q^k.
fn undisturbed(of: &Users, chains: f64, spread: Spread, silent: f64) -> (f64, f64) {
    match spread {
        Spread::Even => {
            let others = of.users / chains - 1.0;
            let hit = silent.powf(others);
            (hit, others * hit)
        }
        Spread::Random => {
            let base = 1.0 - (1.0 - silent) / chains;
            let others = of.users - 1.0;
            let one_less = base.powf(others - 1.0);
            (one_less * base, others * silent / chains * one_less)
        }
    }
}

/// PCBs examined in the flow table: what was found last, and if that is not it, the one
/// that the bucket names.
pub fn flow_table(of: &Users) -> f64 {
    2.0 - cache_hits(of, 1.0, Spread::Even)
}
