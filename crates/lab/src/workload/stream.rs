//! One-way stream. Each side counts in a window of its own, which begins after its own warm-up and
//! ends while traffic still runs. The window therefore excludes slow start, and the data left in
//! buffers at the end.

use std::io;
use std::time::{Duration, Instant};

use super::kind::Pace;
use super::meter::Meter;
use super::reading::read_end;
use crate::samples::Side;
use crate::testbed::Connection;

/// Bytes that the receiver offers to each read.
const READ: usize = 128 << 10;

/// Both sides read the clock after this many bytes, or an equivalent number of operations.
const CLOCK_BYTES: usize = 64 << 10;
const CLOCK_OPERATIONS: usize = 64;

/// Least time for which the sender continues after its window. The receiver's window begins a little
/// later, and must end during traffic too.
const OVERLAP: Duration = Duration::from_millis(5);

/// Receives writes of `size` bytes until the sender ends.
pub(super) fn serve(mut connection: impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    serve_with(&mut connection, size, pace, |_| {})
}

/// An end of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Begin,
    End,
}

/// Receives writes of `size` bytes; calls `at` at the beginning and at the end of the window.
pub(super) fn serve_with(
    connection: &mut impl Connection,
    size: usize,
    pace: &Pace,
    mut at: impl FnMut(Edge),
) -> io::Result<Side> {
    let mut buffer = vec![0; READ];
    let mut receiver = Receiver {
        total: 0,
        ended: false,
    };
    receiver.read_some(connection, &mut buffer)?;
    let whole = Meter::start();
    let began = Instant::now();
    while !receiver.ended && began.elapsed() < pace.warm_up {
        receiver.read_some(connection, &mut buffer)?;
    }
    at(Edge::Begin);
    let meter = Meter::start();
    let began = Instant::now();
    let warm = receiver.total;
    while !receiver.ended && began.elapsed() < pace.span {
        receiver.read_some(connection, &mut buffer)?;
    }
    let bytes = receiver.total - warm;
    let mut side = meter.stop(bytes / size as u64, bytes);
    at(Edge::End);
    if bytes == 0 {
        // Without processor time, the stream may end before its window begins. Then everything is
        // the window.
        side = whole.stop(receiver.total / size as u64, receiver.total);
    }
    while !receiver.ended {
        receiver.read_some(connection, &mut buffer)?;
    }
    connection.finish()?;
    Ok(Side {
        total_bytes: receiver.total,
        ..side
    })
}

/// Sends writes of `size` bytes.
pub(super) fn drive(mut connection: impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    let message = vec![0x5a_u8; size];
    let between_looks = (CLOCK_BYTES / size).clamp(1, CLOCK_OPERATIONS);
    let mut write_for = |span: Duration| -> io::Result<u64> {
        let began = Instant::now();
        let mut written = 0;
        while began.elapsed() < span {
            for _ in 0..between_looks {
                connection.write_all(&message)?;
            }
            written += between_looks as u64;
        }
        Ok(written)
    };
    let warm_up = write_for(pace.warm_up)?;
    let meter = Meter::start();
    let counted = write_for(pace.span)?;
    let side = meter.stop(counted, counted * size as u64);
    let overlap = write_for(pace.overlap.max(OVERLAP))?;
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(Side {
        total_bytes: (warm_up + counted + overlap) * size as u64,
        ..side
    })
}

struct Receiver {
    total: u64,
    ended: bool,
}

impl Receiver {
    /// Reads until the clock is due.
    fn read_some(&mut self, connection: &mut impl Connection, buffer: &mut [u8]) -> io::Result<()> {
        let mut bytes = 0;
        for _ in 0..CLOCK_OPERATIONS {
            match connection.read(buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => bytes += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if bytes >= CLOCK_BYTES {
                break;
            }
        }
        self.total += bytes as u64;
        Ok(())
    }
}
