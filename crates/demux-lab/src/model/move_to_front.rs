//! §3.2: a list in the order of last use.

use super::Users;

/// Equation 2: the probability that a user enters a transaction within `span` seconds.
pub fn entered_within(rate: f64, span: f64) -> f64 {
    -(-rate * span).exp_m1()
}

/// Equation 3: how many of the other users enter a transaction within `span` seconds.
/// The mean of a binomial distribution.
pub fn others_within(users: f64, rate: f64, span: f64) -> f64 {
    (users - 1.0) * entered_within(rate, span)
}

/// Equation 5: PCBs that precede the one of a user who enters a transaction. The two
/// integrals come to this.
pub fn printed_entry(of: &Users) -> f64 {
    (of.users - 1.0) * (2.0 / 3.0 - (-3.0 * of.load()).exp() / 6.0)
}

/// N(2R): PCBs that precede the one of a user who acknowledges a result.
pub fn printed_acknowledgement(of: &Users) -> f64 {
    others_within(of.users, of.rate, 2.0 * of.response_time)
}

/// Equation 6: the mean of both.
pub fn printed_move_to_front(of: &Users) -> f64 {
    (printed_entry(of) + printed_acknowledgement(of)) / 2.0
}

/// Equation 6 with the PCB itself, which is examined like those that precede it.
pub fn corrected_move_to_front(of: &Users) -> f64 {
    printed_move_to_front(of) + 1.0
}
