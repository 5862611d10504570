//! Walks along chains whose links lie in shared memory.

/// Counts the steps along a chain of entries of one table, of which it has each at most
/// once. What else can write to the memory can make it bite its tail; whoever walks
/// along it must not walk for ever then.
#[derive(Debug)]
pub struct Steps {
    left: u32,
}

impl Steps {
    /// For a chain in a table of so many entries.
    #[inline]
    pub fn along(entries: u32) -> Self {
        Self { left: entries }
    }

    /// Counts a step.
    ///
    /// # Panics
    ///
    /// If the chain has more entries than the table: the memory is damaged, and of no
    /// more use to anybody.
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
    fn a_chain_has_each_entry_of_its_table_at_most() {
        let mut steps = Steps::along(3);
        (0..3).for_each(|_| steps.count());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| steps.count())).is_err());
    }
}
