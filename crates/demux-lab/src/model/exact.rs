//! The closed loop: a user that waits for a result enters nothing.
//!
//! A user alternates between thinking, which ends with an entry, and waiting for R,
//! which ends with an acknowledgement. At any moment a user thinks with probability
//! 1 / (1 + aR). The remainder of a wait is uniformly distributed. Within a span T
//! a user therefore sends nothing with probability
//!
//! ```text
//! q(T) = (exp(-aT) + a max(R - T, 0)) / (1 + aR)
//! ```
//!
//! From this follows how many users precede another one in a list in the order of
//! use. It also tells how often one displaces another from a cache. Between an entry
//! and its acknowledgement lies R. Between an acknowledgement and the next entry lies
//! an exponentially distributed time.

use super::Users;

/// The number of other users on a user's chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// Equal numbers on every chain.
    Even,
    /// Binomially distributed numbers, as a good hash gives.
    Random,
}

/// Returns the probability that all users but one send nothing for `span`
/// seconds.
pub fn silent(of: &Users, span: f64) -> f64 {
    let waiting = of.rate * (of.response_time - span).max(0.0);
    ((-of.rate * span).exp() + waiting) / (1.0 + of.load())
}

/// The mean of a function of the time since a user's last segment, over both kinds
/// of segments. Half of the times are R, half are exponentially distributed.
fn over_segments(of: &Users, value: impl Fn(f64) -> f64) -> f64 {
    (over_think_time(of, &value) + value(of.response_time)) / 2.0
}

/// Returns the integral of `a exp(-aT) value(T)`, taken over `u = exp(-aT)` between 0 and 1.
/// It has two parts, since `silent` has an edge at R.
fn over_think_time(of: &Users, value: impl Fn(f64) -> f64) -> f64 {
    let at = |u: f64| value(-u.max(f64::MIN_POSITIVE).ln() / of.rate);
    let edge = (-of.load()).exp();
    // Chains and lists raise `silent` to high powers, which are steep near 1.
    let near = 1.0 - (1.0 - edge) / 64.0;
    simpson(&at, 0.0, edge) + simpson(&at, edge, near) + simpson(&at, near, 1.0)
}

/// Simpson's rule. A thousand more intervals would change no printed digit.
fn simpson(value: &impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const INTERVALS: u32 = 4096;
    let step = (to - from) / f64::from(INTERVALS);
    let inner: f64 = (1..INTERVALS)
        .map(|i| f64::from(2 + 2 * (i % 2)) * value(from + f64::from(i) * step))
        .sum();
    (value(from) + inner + value(to)) * step / 3.0
}

/// Number of PCBs that precede a user's in a list in the order of use.
pub fn preceding(of: &Users) -> f64 {
    (of.users - 1.0) * (1.0 - over_segments(of, |span| silent(of, span)))
}

/// Number of PCBs examined in a list in the order of use.
pub fn move_to_front(of: &Users) -> f64 {
    preceding(of) + 1.0
}

/// Number of PCBs examined in hash chains in the order of use. Each chain has its
/// share of the list's other users.
pub fn hashed_move_to_front(of: &Users, chains: f64, spread: Spread) -> f64 {
    1.0 + preceding(of) / (of.users - 1.0) * others(of, chains, spread)
}

/// Mean number of other users on a user's chain.
fn others(of: &Users, chains: f64, spread: Spread) -> f64 {
    match spread {
        Spread::Even => of.users / chains - 1.0,
        Spread::Random => (of.users - 1.0) / chains,
    }
}

/// Number of PCBs examined in a list with a one-entry cache.
pub fn bsd(of: &Users) -> f64 {
    sequent(of, 1.0, Spread::Even)
}

/// Share of segments that the one-entry caches, one a chain, answer.
pub fn cache_hits(of: &Users, chains: f64, spread: Spread) -> f64 {
    over_segments(of, |span| undisturbed(of, chains, spread, silent(of, span)).0)
}

/// Number of PCBs examined in hash chains with a one-entry cache each. It is one if
/// no other user on the chain has sent since. Otherwise it is one and half of the
/// chain.
pub fn sequent(of: &Users, chains: f64, spread: Spread) -> f64 {
    over_segments(of, |span| {
        let (hit, others_of_hits) = undisturbed(of, chains, spread, silent(of, span));
        let others_of_misses = others(of, chains, spread) - others_of_hits;
        1.0 + (others_of_misses + 2.0 * (1.0 - hit)) / 2.0
    })
}

/// Returns the means of q^k and of k q^k, where k other users are on the chain, and
/// each is silent with probability q.
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

/// Number of PCBs examined in the flow table: the last found one, and after a miss
/// the one that the bucket names.
pub fn flow_table(of: &Users) -> f64 {
    2.0 - cache_hits(of, 1.0, Spread::Even)
}
