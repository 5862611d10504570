//! Messages between the runner and a side: JSON, a line each, over a socket.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::samples::Side;
use crate::testbed::Context;
use crate::workload::Workload;

/// Longest line accepted, in bytes: a histogram of every three-digit duration fits.
const LONGEST_LINE: usize = 4 << 20;

/// The runner's next request. Each is answered by one [`Reply`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Become a side of a candidate, pinned to `cores`.
    Enter {
        context: Box<Context>,
        cores: Vec<usize>,
    },
    /// Connect with the other side.
    Join,
    /// Server: listen for a workload.
    Listen { workload: Workload },
    /// Server: serve the workload it listens for.
    Serve,
    /// Client: drive a workload.
    Drive { workload: Workload, address: String },
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// Done.
    Ready,
    /// Done; clients connect here.
    Listening { address: String },
    /// A workload is done.
    Measured { side: Side },
    /// The candidate is not available here.
    Unavailable { reason: String },
    /// The request failed. The process cannot be used any more.
    Failed { reason: String },
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Line {
    reader: BufReader<UnixStream>,
    /// The received part of the next line.
    pending: Vec<u8>,
}

impl Line {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            reader: BufReader::new(socket),
            pending: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        self.reader.get_mut().write_all(&text)
    }

    /// Tells the other end that no more messages follow.
    pub(crate) fn close(&self) {
        // The other end may be gone already.
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// Waits for the next message; `None` if the other end is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next message if it has arrived completely. Never waits.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') else {
            return Ok(None);
        };
        let line = self.pending.drain(..=end).collect::<Vec<_>>();
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// Reads available bytes, waiting for at least one. Returns 0 if the other end is gone.
    pub(crate) fn fill(&mut self) -> io::Result<usize> {
        let available = match self.reader.fill_buf() {
            Ok(available) => available,
            // The socket of a process that was killed with unread data is reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
            Err(error) => return Err(error),
        };
        let n = available.len();
        if self.pending.len() + n > LONGEST_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the line does not end",
            ));
        }
        self.pending.extend_from_slice(available);
        self.reader.consume(n);
        Ok(n)
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_complete_and_in_order() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Line::new(here), Line::new(there));
        here.send(&Request::Join).unwrap();
        here.send(&Request::Drive {
            workload: Workload::Bulk,
            address: "a\nb".into(),
        })
        .unwrap();
        assert!(matches!(there.receive().unwrap(), Some(Request::Join)));
        match there.take().unwrap() {
            Some(Request::Drive {
                workload: Workload::Bulk,
                address,
            }) => assert_eq!(address, "a\nb"),
            other => panic!("{other:?}"),
        }
        assert!(there.take::<Request>().unwrap().is_none());
        drop(here);
        assert!(there.receive::<Request>().unwrap().is_none());
    }

    #[test]
    fn endless_line_is_refused() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || while here.write_all(&[b'x'; 65536]).is_ok() {});
        let error = Line::new(there).receive::<Request>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        writer.join().unwrap();
    }
}
