//! Several connections of one process at once, each with a thread of its own.
//!
//! The result is the sum of all connections in one window. The main thread opens and closes the
//! window while traffic flows. It sleeps meanwhile, and reads the counts of the others. Traffic
//! begins on all connections at once, when the accepting side announces it. It ends when the
//! sending side stops.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::kind::Pace;
use super::meter::Meter;
use super::reading::{read_end, read_whole};
use crate::samples::Side;
use crate::testbed::{Connection, Testbed};

/// The accepting side's message when traffic may begin.
const GO: [u8; 1] = *b"G";

/// Bytes that a receiver offers to each read.
const READ: usize = 128 << 10;

/// The task of a thread with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Sends each received message back, until the end.
    Echo,
    /// Reads until the end.
    Pull,
    /// Writes until told to stop.
    Push,
}

/// The counts of a thread so far: in cache lines of its own, since it writes them all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count {
    messages: AtomicU64,
    bytes: AtomicU64,
    /// Bytes in both directions.
    total: AtomicU64,
}

/// Accepts a number of connections, and announces on each that traffic may begin.
pub(super) fn accept<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    count: u8,
) -> io::Result<Vec<T::Connection>> {
    let accepted = (0..count).map(|_| testbed.accept(listener));
    let mut accepted = accepted.collect::<io::Result<Vec<_>>>()?;
    for connection in &mut accepted {
        connection.write_all(&GO)?;
        connection.flush()?;
    }
    Ok(accepted)
}

/// Waits until the other side announces it.
pub(super) fn await_go<C: Connection>(mut connection: C) -> io::Result<C> {
    if !read_whole(&mut connection, &mut [0; GO.len()])? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(connection)
}

/// Connects a number of times, and waits until traffic may begin on all.
pub(super) fn connect<C: Connection>(
    mut connect: impl FnMut() -> io::Result<C>,
    count: u8,
) -> io::Result<Vec<C>> {
    let connected = (0..count).map(|_| connect());
    let connected = connected.collect::<io::Result<Vec<_>>>()?;
    connected.into_iter().map(await_go).collect()
}

/// Pairs each connection with the same task.
pub(super) fn each<C>(part: Part, connections: Vec<C>) -> Vec<(Part, C)> {
    connections
        .into_iter()
        .map(|connection| (part, connection))
        .collect()
}

/// Runs a thread for each connection, with messages of `size` bytes. The count is of received
/// messages, or of sent ones if none are received. Echoes count twice, as in a ping-pong.
pub(super) fn run<C: Connection + Send>(parts: Vec<(Part, C)>, size: usize, pace: &Pace) -> io::Result<Side> {
    let counts: Vec<Count> = parts.iter().map(|_| Count::default()).collect();
    let receives = parts.iter().any(|(part, _)| *part == Part::Pull);
    // If any side receives, sent messages are counted at their receiver.
    let is_counted: Vec<_> = parts
        .iter()
        .map(|(part, _)| *part != Part::Push || !receives)
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let whole = Meter::start();
        let mut threads = Vec::with_capacity(counts.len());
        for ((part, connection), count) in parts.into_iter().zip(&counts) {
            let stop = &stop;
            threads.push(scope.spawn(move || part.go_on(connection, size, count, stop)));
        }
        let window = || {
            let counted = counts
                .iter()
                .zip(&is_counted)
                .filter(|(_, is_counted)| **is_counted);
            counted.fold((0, 0), |(messages, bytes), (count, _)| {
                (
                    messages + count.messages.load(Relaxed),
                    bytes + count.bytes.load(Relaxed),
                )
            })
        };
        std::thread::sleep(pace.warm_up);
        let meter = Meter::start();
        let (warm, warm_bytes) = window();
        std::thread::sleep(pace.span);
        let (messages, bytes) = window();
        let mut side = meter.stop(messages - warm, bytes - warm_bytes);
        std::thread::sleep(pace.overlap);
        stop.store(true, Relaxed);
        for thread in threads {
            let done = thread.join();
            done.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        }
        if side.bytes == 0 {
            // Without processor time, no message may have arrived in the window. Then everything
            // counts.
            let (messages, bytes) = window();
            side = whole.stop(messages, bytes);
        }
        Ok(Side {
            total_bytes: counts.iter().map(|count| count.total.load(Relaxed)).sum(),
            ..side
        })
    })
}

impl Part {
    fn go_on<C: Connection>(
        self,
        mut connection: C,
        size: usize,
        count: &Count,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        match self {
            Self::Echo => {
                let mut message = vec![0; size];
                while read_whole(&mut connection, &mut message)? {
                    connection.write_all(&message)?;
                    count.add(2, 2 * size);
                }
                connection.finish()
            }
            Self::Pull => {
                let mut buffer = vec![0; READ];
                let mut read = 0;
                loop {
                    match connection.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(bytes) => {
                            let before = read / size;
                            read += bytes;
                            count.add(read / size - before, bytes);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                connection.finish()
            }
            Self::Push => {
                let message = vec![0x5a; size];
                while !stop.load(Relaxed) {
                    connection.write_all(&message)?;
                    count.add(1, size);
                }
                connection.finish()?;
                read_end(&mut connection)
            }
        }
    }
}

impl Count {
    /// The counter has one writer.
    fn add(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.total.fetch_add(bytes as u64, Relaxed);
    }
}
