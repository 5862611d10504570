//! §3.3: hash chains with a one-entry cache each.

use super::{Users, bsd};

/// Equations 7 and 8: the list's cost with a chain's share of the users.
pub fn sequent_uniform(users: f64, chains: f64) -> f64 {
    bsd(users / chains)
}

/// Equation 9: the probability that no other user on the chain sends during a
/// response time.
pub fn undisturbed(of: &Users, chains: f64) -> f64 {
    (-2.0 * of.load() * (of.users / chains - 1.0)).exp()
}

/// Equation 10: the cost of an acknowledgement without the failing probe of the
/// cache.
pub fn printed_sequent_acknowledgement(of: &Users, chains: f64) -> f64 {
    let hit = undisturbed(of, chains);
    hit + (1.0 - hit) * (of.users / chains + 1.0) / 2.0
}

/// Equation 10 with the failing probe of the cache.
pub fn corrected_sequent_acknowledgement(of: &Users, chains: f64) -> f64 {
    printed_sequent_acknowledgement(of, chains) + 1.0 - undisturbed(of, chains)
}

/// Equation 11 to the letter, with `2 N² / H` in place of `2 (N/H)²`.
pub fn misprinted_sequent(of: &Users, chains: f64) -> f64 {
    equation_11(of, chains, 2.0 * of.users * of.users / chains)
}

/// Equation 11 as the paper's figures use it: the mean of equations 8 and 10.
pub fn printed_sequent(of: &Users, chains: f64) -> f64 {
    let share = of.users / chains;
    equation_11(of, chains, 2.0 * share * share)
}

fn equation_11(of: &Users, chains: f64, square: f64) -> f64 {
    let share = of.users / chains;
    let hit = undisturbed(of, chains);
    (hit * (1.0 - share) / 2.0 + (square + 3.0 * share - 1.0) / (2.0 * share)) / 2.0
}

/// The mean of equation 8 and the corrected equation 10.
pub fn corrected_sequent(of: &Users, chains: f64) -> f64 {
    (sequent_uniform(of.users, chains) + corrected_sequent_acknowledgement(of, chains)) / 2.0
}
