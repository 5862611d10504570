//! Time as the driver passes it to the stack.

use core::ops::{Add, Sub};
use core::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A point in time: nanoseconds on the driver's monotonic clock.
///
/// The clock is the same for every process that drives the same stack.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// Later than every deadline: "never" in stored state.
    pub const NEVER: Self = Self(u64::MAX);

    /// Whether this is a real point in time.
    pub fn is_set(self) -> bool {
        self != Self::NEVER
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since `earlier`; zero if that is later.
    pub fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds since the clock's zero.
    pub fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The point `nanos` nanoseconds later, never reaching [`Instant::NEVER`].
    pub fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos).min(u64::MAX - 1))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        self.plus_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
