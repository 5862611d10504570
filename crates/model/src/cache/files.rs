//! The files that clients ask for: how often, and how large they are.

/// Files of one set at most.
pub const MOST_FILES: usize = 1 << 22;

/// Bytes of a page, in whole numbers of which the page cache holds files.
pub const PAGE: u64 = 4096;

/// A file of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheFile {
    /// The file's share of all requests, 0 to 1.
    pub share: f64,
    /// The file's length, in bytes.
    pub bytes: u64,
}

/// Files whose shares add up to 1.
///
/// ```
/// use toehold_model::cache::{CacheFiles, zipf};
///
/// let files = CacheFiles::new(&zipf(3, 1.0), &[1000, 2000, 3000]).unwrap();
/// assert!((files.mean_request() - 1636.4).abs() < 0.1);
/// assert_eq!(files.in_pages().bytes(), 3 * 4096);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CacheFiles(Vec<CacheFile>);

/// Why there can be no such set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// No file, or too many.
    #[error("a set has {0} files; choose 1 to {MOST_FILES}")]
    Number(usize),
    /// Popularity and sizes are of different numbers of files.
    #[error("there are {popularity} popularities for {sizes} sizes")]
    Lengths {
        /// Numbers of popularity.
        popularity: usize,
        /// Numbers of sizes.
        sizes: usize,
    },
    /// A popularity is negative or not finite, or all are 0.
    #[error("a file's popularity is a number of 0 or more, and one is above 0")]
    Popularity,
}

impl CacheFiles {
    /// Makes a set. `popularity` is in proportion to requests.
    ///
    /// # Errors
    ///
    /// [`FilesError`] says what does not fit.
    pub fn new(popularity: &[f64], sizes: &[u64]) -> Result<Self, FilesError> {
        if popularity.len() != sizes.len() {
            return Err(FilesError::Lengths {
                popularity: popularity.len(),
                sizes: sizes.len(),
            });
        }
        if sizes.is_empty() || sizes.len() > MOST_FILES {
            return Err(FilesError::Number(sizes.len()));
        }
        let total: f64 = popularity.iter().sum();
        let is_meant = popularity.iter().all(|one| one.is_finite() && *one >= 0.0);
        if !is_meant || !total.is_finite() || total <= 0.0 {
            return Err(FilesError::Popularity);
        }
        let files = popularity.iter().zip(sizes).map(|(one, bytes)| CacheFile {
            share: one / total,
            bytes: *bytes,
        });
        Ok(Self(files.collect()))
    }

    /// The files, in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CacheFile> {
        self.0.iter().copied()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes of a request in the mean.
    pub fn mean_request(&self) -> f64 {
        self.0.iter().map(|file| file.share * file.bytes as f64).sum()
    }

    /// Returns the set with each file rounded up to whole pages, as the page cache holds it.
    pub fn in_pages(&self) -> Self {
        let in_pages = self.0.iter().map(|file| CacheFile {
            bytes: file.bytes.div_ceil(PAGE).saturating_mul(PAGE),
            ..*file
        });
        Self(in_pages.collect())
    }

    /// Sums `value` over the files, weighed by their requests.
    pub(super) fn weighed(&self, mut value: impl FnMut(CacheFile) -> f64) -> f64 {
        self.0.iter().map(|file| file.share * value(*file)).sum()
    }
}

/// Popularity by Zipf's law: the file of rank i in proportion to i to the power of −α.
pub fn zipf(files: usize, alpha: f64) -> Vec<f64> {
    (1..=files).map(|rank| (rank as f64).powf(-alpha)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_without_sense_is_refused() {
        assert_eq!(CacheFiles::new(&[], &[]), Err(FilesError::Number(0)));
        assert!(CacheFiles::new(&[1.0], &[1, 2]).is_err());
        for popularity in [[0.0, 0.0], [1.0, -1.0], [1.0, f64::NAN], [1.0, f64::INFINITY]] {
            assert_eq!(CacheFiles::new(&popularity, &[1, 1]), Err(FilesError::Popularity));
        }
    }

    #[test]
    fn zipf_halves_at_the_second_rank() {
        let popularity = zipf(4, 1.0);
        assert_eq!(popularity[0], 2.0 * popularity[1]);
        assert!(zipf(4, 0.0).iter().all(|one| *one == 1.0));
    }
}
