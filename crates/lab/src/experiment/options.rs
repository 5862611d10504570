//! What a person may choose of an experiment whose plan is made by this program.

use super::Settings;
use crate::size::Size;

/// Sizes, candidates, and how often and how each is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sizes of messages.
    pub sizes: Vec<Size>,
    /// Names of candidates.
    pub candidates: Vec<String>,
    /// Rounds.
    pub rounds: u32,
    /// Decides the order.
    pub seed: u64,
    /// How each measurement is taken.
    pub settings: Settings,
}
