//! Guards walks along chains whose links lie in shared memory.

/// Counts the steps along a chain of entries of one table, which contains each entry at most once.
/// Another process that writes to the memory can make the chain cyclic; a walk along it must still
/// end.
#[derive(Debug)]
pub struct Steps {
    left: u32,
}

impl Steps {
    /// A guard for a chain in a table of `entries` entries.
    #[inline]
    pub fn along(entries: u32) -> Self {
        Self { left: entries }
    }

    /// Counts a step.
    ///
    /// # Panics
    ///
    /// If the chain has more entries than the table: the memory is damaged and unusable.
    #[inline]
    pub fn count(&mut self) {
        assert!(self.left > 0, "a chain is longer than its table");
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_has_at_most_all_entries_of_table() {
        let mut steps = Steps::along(3);
        (0..3).for_each(|_| steps.count());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| steps.count())).is_err());
    }
}
