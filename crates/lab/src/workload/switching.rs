//! A ping-pong and a stream in each direction, while both sides change the placement of their
//! stacks.
//!
//! Every byte is checked. A message of the ping-pong carries its number, and a stream's bytes
//! follow from their position. Time is divided into windows, each of which begins with a change on
//! the client's side. The pause of a window is the longest round trip that ended in it. Without
//! changes, the same windows show the machine's own pauses.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::ping_pong::nanoseconds;
use super::reading::{read_end, read_whole};
use crate::samples::{Recorder, Side};
use crate::testbed::{Connection, Switch, Testbed};

/// Longest time between two changes.
pub(super) const LONGEST_REST: Duration = Duration::from_millis(2);

/// Bytes of a message of the ping-pong: its number, and whether the server has made all of its
/// changes.
const MESSAGE: usize = 64;
const FLAG: usize = 8;

/// Bytes of a write of a stream; the next constant is the pause after each. The streams share two
/// cores with the ping-pong, and should not delay it.
const WRITE: usize = 48 << 10;
const BREATH: Duration = Duration::from_micros(200);

/// A prime: no whole number of segments or buffers has this length.
const PERIOD: usize = 65_521;

/// One side's connections: the ping-pong's, and a stream's in each direction.
pub(super) struct Connections<C> {
    ping_pong: C,
    upwards: C,
    downwards: C,
}

pub(super) fn connect<C>(mut connect: impl FnMut() -> io::Result<C>) -> io::Result<Connections<C>> {
    // They are accepted in the same order: each is opened before the next begins.
    Ok(Connections {
        ping_pong: connect()?,
        upwards: connect()?,
        downwards: connect()?,
    })
}

pub(super) fn serve<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    times: u32,
    still: bool,
) -> io::Result<Side> {
    let connections = connect(|| testbed.accept(listener))?;
    let switch = switch(testbed, still)?;
    let (done, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let content = content();
    let meter = Meter::start();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let result = change(switch, times, 1, |_| {});
            done.store(true, Relaxed);
            result
        });
        let received = scope.spawn(|| receive(connections.upwards, &content));
        let sent = scope.spawn(|| send(connections.downwards, &content, &ended));
        let echoed = echo(connections.ping_pong, &done);
        ended.store(true, Relaxed);
        let bytes = echoed? + joined(received)? + joined(sent)?;
        joined(changes)?;
        Ok(Side {
            total_bytes: bytes,
            ..meter.stop(0, bytes)
        })
    })
}

pub(super) fn drive<T: Testbed>(
    testbed: &mut T,
    connections: Connections<T::Connection>,
    times: u32,
    still: bool,
) -> io::Result<Side> {
    let switch = switch(testbed, still)?;
    let (done, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let longest_ns = AtomicU64::new(0);
    let content = content();
    let meter = Meter::start();
    std::thread::scope(|scope| {
        let pauses = scope.spawn(|| {
            let mut recorder = Recorder::new();
            // The time before the first change, including set-up, does not count.
            let mut at = |number| match (number, longest_ns.swap(0, Relaxed)) {
                (0, _) | (_, 0) => {}
                (_, pause_ns) => recorder.record(pause_ns),
            };
            let result = change(switch, times, 0, &mut at);
            done.store(true, Relaxed);
            result.map(|()| recorder)
        });
        let sent = scope.spawn(|| send(connections.upwards, &content, &ended));
        let received = scope.spawn(|| receive(connections.downwards, &content));
        let played = play(connections.ping_pong, &longest_ns, &done);
        ended.store(true, Relaxed);
        let bytes = played? + joined(sent)? + joined(received)?;
        let mut pauses: Recorder = joined(pauses)?;
        // The last window ends with the last round trip, however long that took.
        pauses.record(longest_ns.load(Relaxed));
        Ok(Side {
            total_bytes: bytes,
            durations: Some(pauses.counts()),
            ..meter.stop(0, bytes)
        })
    })
}

fn switch<T: Testbed>(testbed: &T, still: bool) -> io::Result<Option<Box<dyn Switch>>> {
    if still {
        Ok(None)
    } else {
        testbed.switch().map(Some)
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Makes the changes, each a while after the one before; calls `at` before each.
fn change(
    mut switch: Option<Box<dyn Switch>>,
    times: u32,
    seed: u64,
    mut at: impl FnMut(u32),
) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..times {
        at(number);
        if let Some(switch) = &mut switch {
            switch.next()?;
        }
        std::thread::sleep(LONGEST_REST.mul_f64(random.f64() / 2.0));
    }
    match &mut switch {
        Some(switch) => switch.restore(),
        None => Ok(()),
    }
}

/// Exchanges one message at a time, until both sides have made their changes.
fn play(mut connection: impl Connection, longest_ns: &AtomicU64, done: &AtomicBool) -> io::Result<u64> {
    let (mut message, mut answer) = ([0; MESSAGE], [0; MESSAGE]);
    let mut number = 0_u64;
    while answer[FLAG] == 0 || !done.load(Relaxed) {
        number += 1;
        message[..FLAG].copy_from_slice(&number.to_le_bytes());
        let sent_at = Instant::now();
        connection.write_all(&message)?;
        if !read_whole(&mut connection, &mut answer)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        longest_ns.fetch_max(nanoseconds(sent_at.elapsed()), Relaxed);
        if answer[..FLAG] != message[..FLAG] {
            return Err(wrong("the answer is not the message that was sent"));
        }
    }
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(2 * number * MESSAGE as u64)
}

fn echo(mut connection: impl Connection, done: &AtomicBool) -> io::Result<u64> {
    let mut message = [0; MESSAGE];
    let mut number = 0_u64;
    while read_whole(&mut connection, &mut message)? {
        number += 1;
        if message[..FLAG] != number.to_le_bytes() {
            return Err(wrong("a message was lost or came twice"));
        }
        message[FLAG] = done.load(Relaxed).into();
        connection.write_all(&message)?;
    }
    connection.finish()?;
    Ok(2 * number * MESSAGE as u64)
}

fn send(mut connection: impl Connection, content: &[u8], ended: &AtomicBool) -> io::Result<u64> {
    let mut sent = 0;
    while !ended.load(Relaxed) {
        let from = sent % PERIOD;
        connection.write_all(&content[from..from + WRITE])?;
        sent += WRITE;
        std::thread::sleep(BREATH);
    }
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(sent as u64)
}

fn receive(mut connection: impl Connection, content: &[u8]) -> io::Result<u64> {
    let mut buffer = vec![0; WRITE];
    let mut received = 0;
    loop {
        match read(&mut connection, &mut buffer)? {
            0 => break,
            n => {
                let from = received % PERIOD;
                if buffer[..n] != content[from..from + n] {
                    return Err(wrong("a stream has other bytes than were sent"));
                }
                received += n;
            }
        }
    }
    connection.finish()?;
    Ok(received as u64)
}

fn read(connection: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match connection.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The bytes of a stream, from any position on, for the length of a write.
fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(0);
    let mut content = vec![0; PERIOD];
    random.fill(&mut content);
    content.extend_from_within(..WRITE);
    content
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// The result of a receiver for a stream of these bytes.
    fn received(bytes: &[u8]) -> io::Result<u64> {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let content = content();
        std::thread::scope(|scope| {
            let result = scope.spawn(|| receive(receiver, &content));
            // It may stop reading before the end.
            let _ = sender.write_all(bytes);
            drop(sender);
            result.join().unwrap()
        })
    }

    #[test]
    fn stream_with_wrong_bytes_is_an_error() {
        let content = content();
        let good = [&content[..PERIOD], &content[..PERIOD], &content[..100]].concat();
        assert_eq!(received(&good).unwrap(), good.len() as u64);
        let lost = [&good[..WRITE], &good[WRITE + 1448..]].concat();
        let twice = [&good[..2 * WRITE], &good[WRITE..]].concat();
        for bad in [lost, twice] {
            assert_eq!(received(&bad).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn lost_or_repeated_message_is_an_error() {
        for numbers in [[1_u64, 3], [1, 1]] {
            let (mut sender, receiver) = UnixStream::pair().unwrap();
            for number in numbers {
                let mut message = [0; MESSAGE];
                message[..FLAG].copy_from_slice(&number.to_le_bytes());
                sender.write_all(&message).unwrap();
            }
            let error = echo(receiver, &AtomicBool::new(false)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
