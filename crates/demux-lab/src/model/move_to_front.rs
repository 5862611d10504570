//! §3.2: a list in the order of last use.

use super::Users;

/// Equation 2: the probability that a user enters a transaction within `span`
/// seconds.
pub fn entered_within(rate: f64, span: f64) -> f64 {
    -(-rate * span).exp_m1()
}

/// Equation 3: the number of other users that enter a transaction within `span`
/// seconds. It is the mean of a binomial distribution.
pub fn others_within(users: f64, rate: f64, span: f64) -> f64 {
    (users - 1.0) * entered_within(rate, span)
}

/// Equation 5: the number of PCBs that precede the entering user's. This is the
/// closed form of the two integrals.
pub fn printed_entry(of: &Users) -> f64 {
    (of.users - 1.0) * (2.0 / 3.0 - (-3.0 * of.load()).exp() / 6.0)
}

/// N(2R): the number of PCBs that precede the acknowledging user's.
pub fn printed_acknowledgement(of: &Users) -> f64 {
    others_within(of.users, of.rate, 2.0 * of.response_time)
}

/// Equation 6: the mean of equation 5 and N(2R).
pub fn printed_move_to_front(of: &Users) -> f64 {
    (printed_entry(of) + printed_acknowledgement(of)) / 2.0
}

/// Equation 6 plus the found PCB, which is examined like those that precede it.
pub fn corrected_move_to_front(of: &Users) -> f64 {
    printed_move_to_front(of) + 1.0
}
