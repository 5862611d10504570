//! Classes of content: sets of files whose sizes follow one law, from a small set to a large one.
//!
//! The sets grow as in the datacenter paper, which took its classes from SPECweb. The paper does not
//! give the law of sizes. Here they are log-uniform from 1 KB.

use serde::{Deserialize, Serialize};

/// Bytes of the smallest file.
const SMALLEST: f64 = 1024.0;

/// The largest file in KB, and the bytes of all files, for each class.
const LARGEST_AND_ALL: [(f64, f64); 5] = [
    (250.0, 25e6),
    (1024.0, 100e6),
    (4096.0, 450e6),
    (16_384.0, 2000e6),
    (65_536.0, 6000e6),
];

/// The largest divisor of sizes: the smallest file then has one byte.
pub const MOST_CONTENT_SCALE: u32 = 1024;

/// The number of a class, 0 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ContentClass(u8);

impl ContentClass {
    /// The class of a number; `None` above 4.
    pub fn numbered(number: u64) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < LARGEST_AND_ALL.len()).then_some(Self(number))
    }

    /// Bytes of each file, the smallest first: the quantiles of the law, as many as fill the set.
    /// Each is divided by `scale`, and has at least one byte.
    pub fn sizes(self, scale: u32) -> Vec<u64> {
        let (largest, all) = LARGEST_AND_ALL[usize::from(self.0)];
        let span = (largest * 1024.0 / SMALLEST).ln();
        let mean = (largest * 1024.0 - SMALLEST) / span;
        let files = (all / mean).round();
        let size = |index: usize| {
            let quantile = (index as f64 + 0.5) / files;
            let bytes = SMALLEST * (span * quantile).exp() / f64::from(scale);
            bytes.round().max(1.0) as u64
        };
        (0..files as usize).map(size).collect()
    }
}

impl TryFrom<u64> for ContentClass {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        Self::numbered(number).ok_or_else(|| format!("there is no class {number}: write 0 to 4"))
    }
}

impl From<ContentClass> for u64 {
    fn from(class: ContentClass) -> u64 {
        class.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_files_of_known_number_and_mean_size() {
        let expected = [(541, 45), (662, 148), (893, 492), (1157, 1690), (992, 5900)];
        for (number, (files, mean_kb)) in (0..).zip(expected) {
            let sizes = ContentClass::numbered(number).unwrap().sizes(1);
            assert_eq!(sizes.len(), files, "class {number}");
            let mean = sizes.iter().sum::<u64>() as f64 / files as f64 / 1024.0;
            let off = mean / f64::from(mean_kb) - 1.0;
            assert!(off.abs() < 0.01, "class {number}: {mean} KB");
        }
        assert_eq!(ContentClass::numbered(5), None);
    }

    #[test]
    fn scale_divides_every_size() {
        let class = ContentClass::numbered(2).unwrap();
        let (whole, eighth) = (class.sizes(1), class.sizes(8));
        assert_eq!(whole.len(), eighth.len());
        for (one, other) in whole.iter().zip(&eighth) {
            assert!(one.abs_diff(other * 8) <= 8, "{one}, {other}");
        }
        let smallest = class.sizes(MOST_CONTENT_SCALE)[0];
        assert_eq!(smallest, 1);
    }

    #[test]
    fn sizes_lie_between_bounds_of_the_class() {
        let sizes = ContentClass::numbered(0).unwrap().sizes(1);
        assert!(sizes.is_sorted());
        assert!(sizes[0] >= 1024 && sizes[sizes.len() - 1] <= 250 * 1024);
    }
}
