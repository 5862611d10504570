//! One request through the whole chain: a site is ready when it brings the right bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::content::is_file_of;

/// The command that brings this program to [`main`].
pub const FETCH_NAME: &str = "lab-site-fetch";

/// Time without a byte before the request is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of an answer's head.
const LONGEST_HEAD: usize = 64 << 10;

/// Asks for a file, and compares the answer with the file itself. The reason for a failure goes to
/// standard error.
pub fn main(address: SocketAddr, name: &str, file: &Path) -> ExitCode {
    match fetch(address, name, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(address: SocketAddr, name: &str, file: &Path) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // In HTTP/1.0, no answer comes in chunks, and each ends with its connection.
    write!(
        stream,
        "GET /{name} HTTP/1.0\r\nHost: site\r\nConnection: close\r\n\r\n"
    )?;
    let most = std::fs::metadata(file)?.len() + LONGEST_HEAD as u64;
    let mut answer = Vec::new();
    stream.take(most).read_to_end(&mut answer)?;
    check(&answer, file)
}

/// Compares the body of an answer with a file.
fn check(answer: &[u8], file: &Path) -> io::Result<()> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or_else(|| io::Error::other("the answer has no end of its head"))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("the answer is `{status}`")));
    }
    if !is_file_of(file, &answer[end + 4..])? {
        return Err(io::Error::other("the answer has other bytes than the file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_bytes_pass() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "Hello").unwrap();
        let said = |answer: &[u8]| check(answer, file.path()).map_err(|error| error.to_string());
        assert_eq!(said(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nHello"), Ok(()));
        for (answer, reason) in [
            (&b"HTTP/1.1 200 OK\r\n\r\nHell"[..], "other bytes"),
            (b"HTTP/1.1 200 OK\r\n\r\nHello!", "other bytes"),
            (b"HTTP/1.1 502 Bad Gateway\r\n\r\nHello", "502"),
            (b"", "no end"),
        ] {
            assert!(said(answer).unwrap_err().contains(reason), "{reason}");
        }
    }
}
