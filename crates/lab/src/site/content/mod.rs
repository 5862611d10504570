//! What a site serves and what its clients ask: files, and the order of requests.

mod class;
mod directory;
mod log;
mod sizes;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::Serialize;

pub use class::{ContentClass, MOST_CONTENT_SCALE};
pub(super) use directory::path_of;

use crate::programs::web::{Asked, Served, Zipf};

/// Requests of a log that are taken; the sequence then repeats.
const MOST_REQUESTS: usize = 1 << 18;

/// Bytes of a file that are written at once.
const PIECE: usize = 1 << 20;

/// The content that a plan names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ContentSource {
    /// Files of a class, whose bytes follow from the seed.
    Class {
        /// The law of their sizes.
        class: ContentClass,
        /// Divides all sizes.
        scale: u32,
        /// Exponent of Zipf's law.
        alpha: f64,
        /// Decides the order of ranks and the bytes.
        seed: u64,
    },
    /// Files and requests of a log of the 1998 World Cup's web site in its published form.
    Trace {
        /// The log, compressed or not.
        log: PathBuf,
        /// Divides all sizes.
        scale: u32,
        /// Decides the bytes.
        seed: u64,
    },
    /// A directory of the user's. Its files are never changed.
    Directory {
        /// Its path.
        path: PathBuf,
        /// An access log, whose order of requests is kept. Without one, popularity follows Zipf's
        /// law, in an order of files that the seed draws.
        log: Option<PathBuf>,
        /// Exponent of Zipf's law, without a log.
        alpha: f64,
        /// Decides the order of ranks.
        seed: u64,
    },
}

/// What a log has for a directory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogSummary {
    /// Requests for files of the directory.
    pub(super) matched: usize,
    /// Lines that are no such requests.
    pub(super) others: usize,
    /// Different files that were requested.
    pub(super) files: usize,
    /// Mean bytes of a requested file, over the requests.
    pub(super) mean: f64,
    /// The exponent of Zipf's law that is nearest to the popularity of the requested files.
    pub(super) alpha: f64,
}

impl ContentSource {
    /// The files, and the order of requests.
    ///
    /// # Errors
    ///
    /// If a directory or a log cannot be read, or if nothing in the log is in the directory.
    pub(super) fn asked(&self) -> io::Result<Asked> {
        match self {
            Self::Class {
                class,
                scale,
                alpha,
                seed,
            } => {
                let sizes = sizes::by_rank(class.sizes(*scale), *alpha, *seed);
                let files = (0..).zip(sizes).map(|(rank, length): (u32, _)| Served {
                    name: format!("file{rank}"),
                    length,
                });
                Ok(by_zipf(files.collect(), *alpha, *seed))
            }
            Self::Trace { log, scale, .. } => {
                let cannot = |error: io::Error| {
                    io::Error::new(
                        error.kind(),
                        format!("cannot follow the trace {}: {error}", log.display()),
                    )
                };
                let mut asked = Asked::world_cup(log).map_err(cannot)?;
                for file in &mut asked.files {
                    file.length = (file.length / u64::from(*scale)).max(1);
                }
                Ok(asked)
            }
            Self::Directory {
                path,
                log: None,
                alpha,
                seed,
            } => {
                let mut files = directory::files(path)?;
                fastrand::Rng::with_seed(*seed).shuffle(&mut files);
                Ok(by_zipf(files, *alpha, *seed))
            }
            Self::Directory {
                path, log: Some(log), ..
            } => Ok(logged(path, log)?.0),
        }
    }

    /// What divides its sizes; `None` if its files stay where they are.
    pub(super) fn scale(&self) -> Option<u32> {
        match self {
            Self::Class { scale, .. } | Self::Trace { scale, .. } => Some(*scale),
            Self::Directory { .. } => None,
        }
    }

    /// Writes the files of a class or a trace below a directory, and returns the directory with the content.
    /// The pages of all files leave the page cache, where that is possible: a server that reads a
    /// file then pays for its pages.
    ///
    /// # Errors
    ///
    /// If a file can be neither written nor opened.
    pub(super) fn provide(&self, asked: &Asked, place: &Path) -> io::Result<PathBuf> {
        let root = match self {
            Self::Directory { path, .. } => path.clone(),
            Self::Class { seed, .. } | Self::Trace { seed, .. } => {
                fs::create_dir(place)?;
                for (number, file) in (0..).zip(&asked.files) {
                    write(
                        &place.join(&file.name),
                        file.length,
                        seed.wrapping_add(number << 32),
                    )?;
                }
                place.to_owned()
            }
        };
        for file in &asked.files {
            let file = File::open(path_of(&root, &file.name))?;
            // Pages that are not on the disk yet would stay.
            let _ = file.sync_data();
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        Ok(root)
    }
}

/// A summary of a log for a directory.
pub(super) fn summary_of(directory: &Path, log: &Path) -> io::Result<LogSummary> {
    logged(directory, log).map(|(_, summary)| summary)
}

/// Number and bytes of the files below a directory.
pub(super) fn extent_of(directory: &Path) -> io::Result<(usize, u64)> {
    let files = directory::files(directory)?;
    Ok((files.len(), files.iter().map(|file| file.length).sum()))
}

fn by_zipf(files: Vec<Served>, alpha: f64, seed: u64) -> Asked {
    let zipf = Zipf::new(files.len(), alpha);
    let mut random = fastrand::Rng::with_seed(seed);
    // The number of files fits 32 bits.
    let requests = (0..MOST_REQUESTS).map(|_| zipf.draw(&mut random) as u32);
    Asked {
        requests: requests.collect(),
        files,
    }
}

fn logged(directory: &Path, log: &Path) -> io::Result<(Asked, LogSummary)> {
    let files = directory::files(directory)?;
    let cannot = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot read the log {}: {error}", log.display()),
        )
    };
    let read = log::read(BufReader::new(File::open(log).map_err(cannot)?)).map_err(cannot)?;
    let numbers: HashMap<&str, u32> = (0..)
        .zip(&files)
        .map(|(number, file)| (&*file.name, number))
        .collect();
    let found = read
        .paths
        .iter()
        .filter_map(|path| numbers.get(&*directory::normalized(path)).copied());
    let mut requests: Vec<u32> = found.collect();
    if requests.is_empty() {
        let (log, directory) = (log.display(), directory.display());
        let reason = format!(
            "no line of {log} is a successful GET of a file below {directory}; \
             the log has to be in Combined Log Format, and its paths begin at that directory"
        );
        return Err(io::Error::other(reason));
    }
    let mut times = vec![0_u64; files.len()];
    let mut bytes = 0;
    for &number in &requests {
        times[number as usize] += 1;
        bytes += files[number as usize].length;
    }
    times.retain(|&times| times > 0);
    let summary = LogSummary {
        matched: requests.len(),
        others: read.others + read.paths.len() - requests.len(),
        files: times.len(),
        mean: bytes as f64 / requests.len() as f64,
        alpha: exponent(times),
    };
    requests.truncate(MOST_REQUESTS);
    Ok((Asked { files, requests }, summary))
}

/// The slope of the logarithm of a file's requests over that of its rank, by least squares, without
/// its sign. Files with one request are left out: their ranks have no order.
fn exponent(mut times: Vec<u64>) -> f64 {
    times.sort_unstable_by(|one, other| other.cmp(one));
    let points: Vec<(f64, f64)> = (1..)
        .zip(times.iter().take_while(|&&times| times > 1))
        .map(|(rank, &times): (u32, _)| (f64::from(rank).ln(), (times as f64).ln()))
        .collect();
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| {
        (x + point.0 / count, y + point.1 / count)
    });
    let up: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if across > 0.0 {
        (-up / across).max(0.0)
    } else {
        0.0
    }
}

/// Writes a file of bytes that follow from a seed.
fn write(path: &Path, length: u64, seed: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut piece = vec![0; PIECE];
    let mut missing = length;
    while missing > 0 {
        let count = usize::try_from(missing).unwrap_or(PIECE).min(PIECE);
        random.fill(&mut piece[..count]);
        file.write_all(&piece[..count])?;
        missing -= count as u64;
    }
    Ok(())
}

/// Whether a file has exactly these bytes.
pub(super) fn is_file_of(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut own = Vec::new();
    // One byte more shows a longer file.
    File::open(path)?
        .take(bytes.len() as u64 + 1)
        .read_to_end(&mut own)?;
    Ok(own == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::deployment::{MOST_CLIENTS, MOST_TIERS};
    use crate::site::storage::MOST_DISKS;

    fn class(alpha: f64) -> ContentSource {
        ContentSource::Class {
            class: ContentClass::numbered(0).unwrap(),
            scale: 64,
            alpha,
            seed: 1,
        }
    }

    #[test]
    fn first_file_of_a_class_has_its_share_of_requests() {
        let asked = class(1.0).asked().unwrap();
        let first = asked.requests.iter().filter(|&&file| file == 0).count() as f64;
        let all: f64 = (1..=541).map(|rank| 1.0 / f64::from(rank)).sum();
        let share = first / asked.requests.len() as f64 * all;
        assert!((0.95..1.05).contains(&share), "{share}");
    }

    #[test]
    fn files_of_a_class_are_written_with_their_sizes_and_bytes() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("content");
        let content = class(0.9);
        let asked = content.asked().unwrap();
        assert_eq!(content.provide(&asked, &root).unwrap(), root);
        for file in &asked.files {
            assert_eq!(fs::metadata(root.join(&file.name)).unwrap().len(), file.length);
        }
        let [one, other] = ["file1", "file2"].map(|name| fs::read(root.join(name)).unwrap());
        assert_ne!(one[..8], other[..8]);
        assert!(is_file_of(&root.join("file1"), &one).unwrap());
        assert!(!is_file_of(&root.join("file1"), &one[1..]).unwrap());
    }

    #[test]
    fn document_has_the_bounds_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bounds.md");
        let document = fs::read_to_string(path).unwrap();
        for (constant, bound) in [
            ("MOST_TIERS", MOST_TIERS as u64),
            ("MOST_CLIENTS", MOST_CLIENTS.into()),
            ("MOST_DISKS", MOST_DISKS.into()),
            ("MOST_CONTENT_SCALE", MOST_CONTENT_SCALE.into()),
            ("MOST_FILES", directory::MOST_FILES as u64),
            ("DEEPEST", directory::DEEPEST as u64),
            ("LONGEST_LINE", log::LONGEST_LINE),
            ("MOST_LINES", log::MOST_LINES as u64),
            ("MOST_REQUESTS", MOST_REQUESTS as u64),
        ] {
            let name = format!("| `{constant}` |");
            let row = document.lines().find(|line| line.contains(&name));
            let row = row.unwrap_or_else(|| panic!("{constant} is not in the table"));
            let mut numbers = row.split(|letter: char| !letter.is_ascii_digit());
            assert!(
                numbers.any(|number| number == bound.to_string()),
                "{constant} is {bound}: {row}"
            );
        }
    }

    #[test]
    fn trace_of_the_world_cup_has_its_files_and_its_order() {
        let Some(log) = std::env::var_os("TOEHOLD_WORLD_CUP_LOG") else {
            // Past the harness, which shows nothing of a test that passes.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED, no trace was followed: TOEHOLD_WORLD_CUP_LOG names a log of the 1998 World Cup's web site"
            );
            return;
        };
        let trace = |scale| ContentSource::Trace {
            log: PathBuf::from(&log),
            scale,
            seed: 1,
        };
        let asked = trace(1).asked().unwrap();
        assert!(asked.files.len() > 100 && asked.requests.len() > 1000);
        let mut times = vec![0_u64; asked.files.len()];
        asked.requests.iter().for_each(|&file| times[file as usize] += 1);
        let most = times.iter().max().unwrap();
        assert!(
            *most > 10 * asked.requests.len() as u64 / asked.files.len() as u64,
            "some files are popular"
        );
        let scaled = trace(8).asked().unwrap();
        assert_eq!(scaled.requests, asked.requests);
        let of = |asked: &Asked| asked.files.iter().map(|file| file.length).sum::<u64>();
        assert!(of(&scaled) < of(&asked) / 7);
    }

    #[test]
    fn log_gives_order_and_exponent() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("www");
        fs::create_dir(&root).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(root.join(name), "123").unwrap();
        }
        let line = |path: &str| format!("1.1.1.1 - - [t] \"GET {path} HTTP/1.1\" 200 3 \"-\" \"-\"\n");
        let mut text = line("/b") + &line("/missing");
        // Requests in proportion to 1, 1/2 and 1/3: the exponent is 1.
        for (path, times) in [("/a", 60), ("/b", 29), ("/c", 20)] {
            text += &line(path).repeat(times);
        }
        let log = place.path().join("access.log");
        fs::write(&log, text).unwrap();
        let (asked, summary) = logged(&root, &log).unwrap();
        assert_eq!(asked.requests[..2], [1, 0]);
        assert_eq!((summary.matched, summary.others, summary.files), (110, 1, 3));
        assert!((summary.alpha - 1.0).abs() < 1e-9, "{}", summary.alpha);
        fs::write(&log, line("/missing")).unwrap();
        assert!(
            logged(&root, &log)
                .unwrap_err()
                .to_string()
                .contains("Combined Log Format")
        );
    }
}
