//! Time as the caller tells it.

/// A point in time: nanoseconds on the caller's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// Later than every deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the point `span_ns` nanoseconds later, always before [`Moment::NEVER`].
    #[must_use]
    pub const fn plus_ns(self, span_ns: u64) -> Self {
        let later = self.0.saturating_add(span_ns);
        Self(if later == u64::MAX { later - 1 } else { later })
    }

    /// Returns the nanoseconds since `earlier`; 0 if that is later.
    #[must_use]
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
