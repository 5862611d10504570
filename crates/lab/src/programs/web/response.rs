//! Parses the parts of a server's answer that clients need.

use std::io;

/// Longest head of an answer, in bytes.
const LONGEST_HEAD: usize = 8 << 10;

/// An answer that arrives in parts.
#[derive(Debug, Default)]
pub(in crate::programs) struct Response {
    head: Vec<u8>,
    /// Missing bytes of the body, once the head is complete.
    missing: Option<u64>,
    /// Whether a cache had the last answer, if it says that in a field `X-Cache`.
    pub(super) hit: Option<bool>,
}

impl Response {
    /// Handles a part. Returns whether it completes an answer with a file of `length` bytes. Any
    /// other answer is an error.
    pub(in crate::programs) fn take(&mut self, piece: &[u8], length: u64) -> io::Result<bool> {
        let body = match self.missing {
            Some(_) => piece,
            None => {
                let before = self.head.len();
                self.head.extend_from_slice(piece);
                let Some(end) = find(&self.head, b"\r\n\r\n") else {
                    return match self.head.len() {
                        0..=LONGEST_HEAD => Ok(false),
                        _ => Err(invalid("an answer whose head does not end")),
                    };
                };
                let said = length_of(&self.head[..end + 2])?;
                self.hit = hit_of(&self.head[..end + 2]);
                if said != length {
                    return Err(invalid(&format!("a file of {said} bytes instead of {length}")));
                }
                self.missing = Some(length);
                self.head.clear();
                // Earlier parts did not contain the end, or it would have been found there.
                &piece[(end + 4).saturating_sub(before)..]
            }
        };
        let missing = self.missing.unwrap_or(0).checked_sub(body.len() as u64);
        let missing = missing.ok_or_else(|| invalid("more than was asked for"))?;
        self.missing = Some(missing).filter(|&missing| missing > 0);
        Ok(self.missing.is_none())
    }
}

/// The length in the head of a successful answer.
fn length_of(head: &[u8]) -> io::Result<u64> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200 ") {
        return Err(invalid(&format!("the answer `{status}`")));
    }
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().and_then(|(_, value)| value.trim().parse().ok());
    length.ok_or_else(|| invalid("an answer of unknown length"))
}

/// Whether the first field `X-Cache` begins with HIT; `None` without one.
fn hit_of(head: &[u8]) -> Option<bool> {
    let head = String::from_utf8_lossy(head);
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let found = fields.find(|(name, _)| name.eq_ignore_ascii_case("x-cache"));
    found.map(|(_, value)| value.trim().starts_with("HIT"))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: a\r\ncontent-length: 5\r\n\r\nHello";

    #[test]
    fn answer_in_any_parts_is_complete() {
        for size in 1..=ANSWER.len() {
            let mut response = Response::default();
            for _ in 0..2 {
                let pieces: Vec<_> = ANSWER.chunks(size).collect();
                let ends = pieces.iter().map(|piece| response.take(piece, 5).unwrap());
                let ends: Vec<_> = ends.collect();
                let (last, others) = ends.split_last().unwrap();
                assert!(*last && !others.contains(&true), "{size}: {ends:?}");
            }
        }
    }

    #[test]
    fn empty_file_is_complete_with_its_head() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert!(Response::default().take(answer, 0).unwrap());
    }

    #[test]
    fn hit_is_what_the_cache_says() {
        for (field, hit) in [
            ("X-Cache: HIT\r\n", Some(true)),
            ("x-cache: MISS\r\n", Some(false)),
            ("Age: 3\r\n", None),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
            let mut response = Response::default();
            assert!(response.take(answer.as_bytes(), 0).unwrap());
            assert_eq!(response.hit, hit, "{field}");
        }
    }

    #[test]
    fn unexpected_answer_is_refused() {
        let refused = |answer: &[u8]| Response::default().take(answer, 5).unwrap_err().to_string();
        assert!(refused(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n").contains("404"));
        assert!(refused(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n").contains("6 bytes instead of 5"));
        assert!(refused(b"HTTP/1.1 200 OK\r\n\r\nHello").contains("unknown length"));
        assert!(refused(&[ANSWER, b"!"].concat()).contains("more than"));
        assert!(refused(&[b'x'; LONGEST_HEAD + 1]).contains("does not end"));
    }
}
