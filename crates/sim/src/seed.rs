//! Which seeds a test runs with, and how a failure is told and repeated.
//!
//! `TOEHOLD_SEED=n` runs exactly one seed, `TOEHOLD_SEEDS=n` the seeds from 0 to
//! n − 1.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Seeds of a test whose environment does not say how many.
pub const DEFAULT_SEEDS: u64 = 200;

/// The seeds to run: those the environment names, or the first `default`.
///
/// # Panics
///
/// If the environment names something that is no number.
pub fn seeds(default: u64) -> Vec<u64> {
    if let Some(seed) = number("TOEHOLD_SEED") {
        return vec![seed];
    }
    (0..number("TOEHOLD_SEEDS").unwrap_or(default)).collect()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// Runs `test` with every seed. The seed of one that fails is printed, with
/// what repeats it.
///
/// # Panics
///
/// As `test` does.
pub fn for_each_seed(default: u64, test: impl Fn(u64)) {
    for seed in seeds(default) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} fails; repeat it alone with TOEHOLD_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn every_seed_runs_until_one_fails() {
        if std::env::var_os("TOEHOLD_SEED").is_some() || std::env::var_os("TOEHOLD_SEEDS").is_some() {
            return;
        }
        let ran = RefCell::new(Vec::new());
        let result = catch_unwind(AssertUnwindSafe(|| {
            for_each_seed(5, |seed| {
                ran.borrow_mut().push(seed);
                assert!(seed < 3, "as planned");
            });
        }));
        assert!(result.is_err());
        assert_eq!(ran.into_inner(), [0, 1, 2, 3]);
    }
}
