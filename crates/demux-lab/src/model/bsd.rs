//! §3.1: a list with a one-entry cache.

/// Equation 1: a probe of the cache, and half of the list after a miss. It
/// needs no correction.
pub fn bsd(users: f64) -> f64 {
    1.0 + (users * users - 1.0) / (2.0 * users)
}
