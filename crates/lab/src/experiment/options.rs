//! The user's choices for an experiment whose plan this program makes.

use super::Settings;
use crate::size::Size;

/// Sizes, candidates, and how, and how often, each is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sizes of messages.
    pub sizes: Vec<Size>,
    /// Names of candidates.
    pub candidates: Vec<String>,
    /// Rounds.
    pub rounds: u32,
    /// Determines the order.
    pub seed: u64,
    /// How each measurement is taken.
    pub settings: Settings,
}
