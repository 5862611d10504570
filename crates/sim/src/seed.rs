//! The seeds of a test. A failed seed is printed and can be repeated alone.
//!
//! `TOEHOLD_SEED=n` runs exactly one seed, `TOEHOLD_SEEDS=n` the seeds from 0 to n
//! − 1, `TOEHOLD_SEEDS=m..n` those from m to n − 1.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Default number of seeds.
pub const DEFAULT_SEEDS: u64 = 200;

/// Returns the seeds that the environment names, or the first `default`.
///
/// # Panics
///
/// If the environment's value is not a number.
pub fn seeds(default: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("TOEHOLD_SEED") {
        return vec![parse(&seed)];
    }
    match std::env::var("TOEHOLD_SEEDS") {
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => (parse(first)..parse(end)).collect(),
            None => (0..parse(&text)).collect(),
        },
        Err(_) => (0..default).collect(),
    }
}

fn parse(text: &str) -> u64 {
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("seeds are numbers, not `{text}`"))
}

/// Runs `test` with every seed. Prints the seed of a failed run and the setting
/// that repeats it.
///
/// # Panics
///
/// If `test` panics.
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
                assert!(seed < 3, "this seed fails");
            });
        }));
        assert!(result.is_err());
        assert_eq!(ran.into_inner(), [0, 1, 2, 3]);
    }
}
