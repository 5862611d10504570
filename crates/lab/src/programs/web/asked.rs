//! The clients' requests: the files, and their order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::f64::consts::TAU;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::world_cup::{self, Answer};
use super::zipf::Zipf;
use crate::size::Size;

/// Most served files of a trace: the most popular ones.
const MOST_FILES: usize = 1000;

/// Most bytes of them together. Files are added until the next would exceed it.
const MOST_BYTES: u64 = 256 << 20;

/// Most records of a trace that are read, 80 MiB of them.
const MOST_RECORDS: usize = 4 << 20;

/// Requests before the sequence repeats.
const REQUESTS: usize = 1 << 18;

/// Seed of the requests: the same for all candidates.
const SEED: u64 = 1998;

/// Mean size of the World Cup's files, in bytes.
const MEAN_SIZE: f64 = 307e6 / 20_728.0;

/// The exponent of their popularity.
const EXPONENT: f64 = 1.16;

/// Standard deviation of the logarithms of the synthetic files' sizes. An assumption: a common
/// value of web servers.
const SPREAD: f64 = 1.5;

/// Share of a synthetic file's popularity that is due to its small size, from 0 to 1. It is chosen
/// so that the mean answer is as large as the World Cup's: 4991 GB in 1.35 billion requests.
const SMALLNESS: f64 = 0.54;

/// A file of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// The file's name.
    pub(crate) name: String,
    /// The file's length, in bytes.
    pub(crate) length: u64,
}

/// Files, and requests for them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The files; of a trace, the most popular one first.
    pub(crate) files: Vec<Served>,
    /// The indices of requested files in order, for whichever client is next; the sequence repeats.
    pub(crate) requests: Vec<u32>,
}

impl Asked {
    /// One file, requested again and again.
    pub(in crate::programs) fn one(size: Size) -> Self {
        Self {
            files: files([size.bytes() as u64]),
            requests: vec![0],
        }
    }

    /// The most popular files of a log of the World Cup's site, requested in its order. The log may
    /// be compressed with gzip.
    ///
    /// # Errors
    ///
    /// If it cannot be read, if its last record is incomplete, or if it has no answer with a file.
    pub(crate) fn world_cup(log: &Path) -> io::Result<Self> {
        let largest = u32::try_from(Size::MAX.bytes()).unwrap_or(u32::MAX);
        let mut log = BufReader::new(File::open(log)?);
        // No record of 1998 begins with these bytes.
        let is_compressed = log.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let log: Box<dyn Read> = match is_compressed {
            true => Box::new(MultiGzDecoder::new(log)),
            false => Box::new(log),
        };
        Self::answered(&world_cup::read(log, MOST_RECORDS, largest)?)
    }

    /// Each file is as large as the largest answer with it: smaller answers were interrupted.
    fn answered(answers: &[Answer]) -> io::Result<Self> {
        let mut objects: HashMap<u32, (u32, u32)> = HashMap::new();
        for answer in answers {
            let (times, size) = objects.entry(answer.object).or_default();
            *times += 1;
            *size = answer.size.max(*size);
        }
        let mut objects: Vec<_> = objects.into_iter().collect();
        objects.sort_by_key(|&(object, (times, _))| (Reverse(times), object));
        let mut bytes = 0;
        let fitting = objects.iter().take(MOST_FILES).take_while(|(_, (_, size))| {
            bytes += u64::from(*size);
            bytes <= MOST_BYTES
        });
        let served: Vec<_> = fitting.map(|&(object, (_, size))| (object, size)).collect();
        let ranks: HashMap<_, _> = (0_u32..)
            .zip(&served)
            .map(|(rank, &(object, _))| (object, rank))
            .collect();
        let requests = answers
            .iter()
            .filter_map(|answer| ranks.get(&answer.object).copied());
        let requests: Vec<_> = requests.take(REQUESTS).collect();
        if requests.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has no answer with a file",
            ));
        }
        Ok(Self {
            files: files(served.iter().map(|&(_, size)| u64::from(size))),
            requests,
        })
    }

    /// Synthetic files with the World Cup's mean size and popularity. Small files are popular, for
    /// the most part.
    pub(in crate::programs) fn synthetic() -> Self {
        let mut random = fastrand::Rng::with_seed(SEED);
        let file = |_| {
            let [size, other] = normal(&mut random);
            let rank = SMALLNESS * size + (1.0 - SMALLNESS.powi(2)).sqrt() * other;
            (rank, (SPREAD * size).exp())
        };
        let mut drawn: Vec<_> = (0..MOST_FILES).map(file).collect();
        drawn.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mean = drawn.iter().map(|(_, size)| size).sum::<f64>() / drawn.len() as f64;
        let asked = Self {
            files: files(
                drawn
                    .iter()
                    .map(|(_, size)| (size / mean * MEAN_SIZE).ceil() as u64),
            ),
            requests: Vec::new(),
        };
        asked.by_zipf(EXPONENT)
    }

    /// The files, with requests distributed by Zipf's law instead.
    pub(in crate::programs) fn by_zipf(self, alpha: f64) -> Self {
        let zipf = Zipf::new(self.files.len(), alpha);
        let mut random = fastrand::Rng::with_seed(SEED);
        // The number of files fits 32 bits.
        let requests = (0..REQUESTS).map(|_| zipf.draw(&mut random) as u32);
        Self {
            requests: requests.collect(),
            ..self
        }
    }
}

/// Files with generic names.
fn files(lengths: impl IntoIterator<Item = u64>) -> Vec<Served> {
    let file = |(number, length): (u32, u64)| Served {
        name: format!("file{number}"),
        length,
    };
    (0..).zip(lengths).map(file).collect()
}

/// Two independent draws of the normal distribution (Box and Muller).
fn normal(random: &mut fastrand::Rng) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    let angle = TAU * random.f64();
    [radius * angle.cos(), radius * angle.sin()]
}

#[cfg(test)]
mod tests;
