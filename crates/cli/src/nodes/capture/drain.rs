//! The thread of `toehold capture` that writes the frames from a node's pipe.
//!
//! The command writes the file itself, so that it sees the first write that fails. The file never
//! ends within a block of the pcapng format, which readers would refuse.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::thread::JoinHandle;

/// Bytes that are read from the pipe at once.
const CHUNK: usize = 1 << 18;

/// Bytes at the start of a block that tell its length: type and length, 32 bits each
/// (draft-ietf-opsawg-pcapng §3.1).
const BLOCK_HEAD: usize = 8;

/// A running copy from a node's pipe to a file.
#[derive(Debug)]
pub(super) struct Drain(JoinHandle<io::Result<()>>);

impl Drain {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub(super) fn start(reader: PipeReader, file: File) -> io::Result<Self> {
        // A pipe as large as the system allows loses fewest frames while the disk is slow.
        let _ = rustix::pipe::fcntl_setpipe_size(&reader, 1 << 20);
        let thread = std::thread::Builder::new().name("toehold-drain".into());
        thread.spawn(move || copy(reader, file)).map(Self)
    }

    /// Returns whether the pipe has ended, or a write has failed.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the file has all bytes that the node wrote.
    ///
    /// # Errors
    ///
    /// The first write that failed.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread has panicked")))
    }
}

/// Copies until the pipe ends. After a failed write the file ends with the last whole block, if it can be cut.
fn copy(mut reader: impl Read, mut file: File) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut blocks = Blocks::default();
    // A file opened for appending, or standard output, begins elsewhere than at 0.
    let begin = io::Seek::stream_position(&mut file).unwrap_or(0);
    let mut written = 0;
    loop {
        let n = match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &chunk[..n];
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => {
                    return cut(
                        &file,
                        begin + blocks.whole(written),
                        io::ErrorKind::WriteZero.into(),
                    );
                }
                Ok(n) => {
                    blocks.take(&rest[..n]);
                    written += n as u64;
                    rest = &rest[n..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return cut(&file, begin + blocks.whole(written), error),
            }
        }
    }
}

/// Cuts the bytes behind the last whole block, and returns the error that made this necessary.
fn cut(file: &File, len: u64, error: io::Error) -> io::Result<()> {
    if file.metadata().is_ok_and(|about| about.is_file()) {
        let _ = file.set_len(len);
    }
    Err(error)
}

/// Finds where blocks end in a stream of them.
#[derive(Debug, Default)]
struct Blocks {
    head: Vec<u8>,
    /// Bytes of the present block that have not passed, once its head has.
    left: u64,
    /// Bytes of the present block that have passed.
    passed: u64,
}

impl Blocks {
    /// Processes the next bytes of the stream.
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let n = bytes.len().min(BLOCK_HEAD - self.head.len());
                self.head.extend_from_slice(&bytes[..n]);
                self.passed = self.head.len() as u64;
                bytes = &bytes[n..];
                if self.head.len() == BLOCK_HEAD {
                    let len = self.head[4..].try_into().map(u32::from_ne_bytes).unwrap_or(0);
                    self.left = u64::from(len).saturating_sub(BLOCK_HEAD as u64);
                    self.head.clear();
                    if self.left == 0 {
                        self.passed = 0;
                    }
                }
                continue;
            }
            let n = self.left.min(bytes.len() as u64);
            self.left -= n;
            self.passed = if self.left == 0 { 0 } else { self.passed + n };
            bytes = &bytes[n as usize..];
        }
    }

    /// Returns how many of `written` bytes lie in whole blocks.
    fn whole(&self, written: u64) -> u64 {
        written.saturating_sub(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(body: usize) -> Vec<u8> {
        let len = (12 + body) as u32;
        let mut block = [6u32.to_ne_bytes(), len.to_ne_bytes()].concat();
        block.resize(8 + body, 0xaa);
        block.extend(len.to_ne_bytes());
        block
    }

    #[test]
    fn blocks_in_pieces_end_where_their_lengths_say() {
        let stream = [block(20), block(4), block(100)].concat();
        for piece in [1, 3, 7, 8, 31, 1000] {
            for len in 0..=stream.len() {
                let mut blocks = Blocks::default();
                stream[..len].chunks(piece).for_each(|piece| blocks.take(piece));
                let whole = [0, 32, 48, 160].into_iter().rfind(|&end| end <= len).unwrap();
                assert_eq!(blocks.whole(len as u64), whole as u64, "{len} bytes by {piece}");
            }
        }
    }

    #[test]
    fn write_that_fails_ends_the_copy_with_its_error() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = copy(&block(20)[..], full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
