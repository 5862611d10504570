//! The published log of the 1998 World Cup's web site: twenty bytes a request.
//!
//! All numbers are big-endian. A record has the time (4 bytes, seconds since 1970), the client (4),
//! the object (4), and bytes of the answer (4). Then follow the method (1), the version of HTTP and
//! the status (2 bits and 6), the kind of file (1), and the server (1). Numbers replace the
//! addresses of clients and the names of objects.

use std::io::{self, Read};

/// Bytes of a record.
pub(super) const RECORD: usize = 20;

/// The code of GET.
const GET: u8 = 0;

/// The bits of the status; the next constant is the code of 200.
const STATUS: u8 = 0x3f;
const OK: u8 = 2;

/// An answer with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The number of the file.
    pub(super) object: u32,
    /// Bytes of the file.
    pub(super) size: u32,
}

impl Answer {
    /// The answer of a record, if it is a GET answered with 200 and 1 to `largest` bytes. Any bytes
    /// are a valid record.
    fn of(record: &[u8; RECORD], largest: u32) -> Option<Self> {
        let word =
            |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (size, method, status) = (word(12), record[16], record[17] & STATUS);
        // An unknown size has all bits set.
        let is_file = method == GET && status == OK && (1..=largest).contains(&size);
        is_file.then(|| Self {
            object: word(8),
            size,
        })
    }
}

/// Answers with files of up to `largest` bytes among the first `most` records of a log.
///
/// # Errors
///
/// An incomplete record is an error that tells where it begins.
pub(super) fn read(log: impl Read, most: usize, largest: u32) -> io::Result<Vec<Answer>> {
    let mut bytes = Vec::new();
    log.take((most * RECORD) as u64).read_to_end(&mut bytes)?;
    let (records, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        let (at, length) = (bytes.len() - rest.len(), rest.len());
        let reason = format!("the record at byte {at} has {length} bytes instead of {RECORD}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let answers = records.iter().filter_map(|record| Answer::of(record, largest));
    Ok(answers.collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record of a file requested with GET, over HTTP/1.0, on 10 June 1998.
    pub(in super::super) fn record(object: u32, size: u32) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&[0x35, 0x7e, 0x5a, 0x80, 0, 0, 0x30, 0x39]);
        record[8..12].copy_from_slice(&object.to_be_bytes());
        record[12..16].copy_from_slice(&size.to_be_bytes());
        record[16..].copy_from_slice(&[GET, 0x42, 1, 0x64]);
        record
    }

    #[test]
    fn record_is_read_in_published_format() {
        let record = [
            0x35, 0x4a, 0x2c, 0x81, 0, 0, 1, 2, 0, 0, 0x51, 0x0f, 0, 1, 0xe2, 0x40, 0, 0x82, 2, 0x25,
        ];
        let answer = Answer {
            object: 20_751,
            size: 123_456,
        };
        assert_eq!(Answer::of(&record, 123_456), Some(answer));
        assert_eq!(Answer::of(&record, 123_455), None, "too large a file");
    }

    #[test]
    fn only_successful_gets_of_files_count() {
        let with = |at: usize, byte: u8| {
            let mut changed = record(7, 1000);
            changed[at] = byte;
            Answer::of(&changed, u32::MAX - 1)
        };
        assert!(with(17, 0x02).is_some(), "whatever the version");
        assert_eq!(with(16, 2), None, "POST");
        assert_eq!(with(17, 0x40 | 13), None, "304");
        assert_eq!(with(17, 0x40 | 8), None, "206");
        assert_eq!(Answer::of(&record(7, 0), u32::MAX - 1), None);
        assert_eq!(Answer::of(&record(7, u32::MAX), u32::MAX - 1), None, "not known");
    }

    #[test]
    fn truncated_log_is_reported_with_position() {
        let log = [record(1, 10), record(2, 20), record(1, 10)];
        let log = log.as_flattened();
        assert_eq!(read(log, 9, 99).unwrap().len(), 3);
        assert_eq!(read(log, 2, 99).unwrap().len(), 2, "no more than is asked for");
        assert_eq!(read(&log[..0], 9, 99).unwrap(), []);
        for end in 41..60 {
            let said = read(&log[..end], 9, 99).unwrap_err().to_string();
            let (rest, wanted) = (end - 40, "the record at byte 40 has ");
            assert_eq!(said, format!("{wanted}{rest} bytes instead of 20"));
            assert_eq!(
                read(&log[..end], 2, 99).unwrap().len(),
                2,
                "what is not asked for may be missing"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_yield_bounded_answers_or_an_error(
            log in prop::collection::vec(any::<u8>(), 0..400), most in 0_usize..30
        ) {
            match read(&log[..], most, 1000) {
                Ok(answers) => {
                    prop_assert!(answers.len() <= most.min(log.len() / RECORD));
                    prop_assert!(answers.iter().all(|answer| (1..=1000).contains(&answer.size)));
                }
                Err(_) => prop_assert!(log.len() % RECORD != 0 && log.len() < most * RECORD),
            }
        }
    }
}
