//! Access logs in Combined Log Format, and the Common Log Format that it extends.
//!
//! A line has the client, two names, a time in brackets, the request in quotes, the status, and the
//! bytes of the answer. Other lines are counted and left out.

use std::io::{self, BufRead, Read};

/// Longest line, in bytes; the rest of a longer one is read as a line of its own.
pub(super) const LONGEST_LINE: u64 = 64 << 10;

/// Most lines of a log that are read.
pub(super) const MOST_LINES: usize = 4 << 20;

/// The requests of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedRequests {
    /// Paths of successful GET requests, as written, in the log's order.
    pub(super) paths: Vec<String>,
    /// Lines that are other requests, or none.
    pub(super) others: usize,
}

/// Reads at most [`MOST_LINES`] lines.
pub(super) fn read(mut log: impl BufRead) -> io::Result<LoggedRequests> {
    let mut requests = LoggedRequests::default();
    let mut line = Vec::new();
    for _ in 0..MOST_LINES {
        line.clear();
        if log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match path(&String::from_utf8_lossy(&line)) {
            Some(path) => requests.paths.push(path.to_owned()),
            None => requests.others += 1,
        }
    }
    Ok(requests)
}

/// The path of a line, if it is a GET that was answered with the whole file. That is status 200, or
/// 304 for a client that had it.
fn path(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('"')?;
    let (request, rest) = rest.split_once('"')?;
    let status = rest.split_whitespace().next()?;
    let path = request.strip_prefix("GET ")?.split(' ').next()?;
    let is_whole = matches!(status, "200" | "304");
    (is_whole && path.starts_with('/')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn successful_gets_count_and_other_lines_do_not() {
        let log = r#"10.0.0.1 - - [29/Nov/2026:12:00:00 +0000] "GET /a.html HTTP/1.1" 200 512 "-" "curl/8"
10.0.0.1 - bob [29/Nov/2026:12:00:01 +0000] "GET /b?x=1 HTTP/1.1" 304 0
10.0.0.1 - - [29/Nov/2026:12:00:02 +0000] "POST /c HTTP/1.1" 200 1 "-" "-"
10.0.0.1 - - [29/Nov/2026:12:00:03 +0000] "GET /d HTTP/1.1" 404 1 "-" "-"
nonsense
"#;
        let read = read(log.as_bytes()).unwrap();
        assert_eq!(read.paths, ["/a.html", "/b?x=1"]);
        assert_eq!(read.others, 3);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(log in prop::collection::vec(any::<u8>(), 0..500)) {
            let lines = log.split(|&byte| byte == b'\n').count();
            let read = read(&log[..]).unwrap();
            prop_assert!(read.paths.len() + read.others <= lines);
        }
    }
}
