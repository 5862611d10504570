//! Ping-pong: one message in each direction at a time. Half a round trip is the latency.

use std::io;
use std::time::{Duration, Instant};

use super::kind::Pace;
use super::meter::Meter;
use super::reading::{read_end, read_whole};
use super::served::Served;
use crate::samples::{Recorder, Side};
use crate::testbed::Connection;

/// Least round trips before the measurement, however long they take.
const MIN_WARM_UP: u64 = 16;

/// Messages between two reads of the clock in the server's warm-up.
const CLOCK_EVERY: u64 = 16;

pub(super) fn serve(mut connection: impl Connection, size: usize, pace: &Pace) -> io::Result<Side> {
    let mut message = vec![0; size];
    let mut served = Served::begin(pace, CLOCK_EVERY);
    while read_whole(&mut connection, &mut message)? {
        connection.write_all(&message)?;
        // Each round trip is a message received and a message sent.
        served.exchanged(2, 2 * size as u64);
    }
    let side = served.end();
    connection.finish()?;
    Ok(side)
}

/// Runs the client; it sleeps for `pause` between two round trips.
pub(super) fn drive(
    connection: impl Connection,
    size: usize,
    pause: Duration,
    pace: &Pace,
) -> io::Result<Side> {
    let mut client = Client::new(connection, size);
    let began = Instant::now();
    while client.sent < MIN_WARM_UP || began.elapsed() < pace.warm_up {
        client.send()?;
        client.receive()?;
        rest(pause);
    }

    let mut recorder = Recorder::new();
    let warm = client.sent;
    let meter = Meter::start();
    let began = Instant::now();
    let end = began + pace.span;
    let mut sent_at = began;
    let mut round_trip: Option<Duration> = None;
    loop {
        client.send()?;
        // The previous round trip is recorded while this one is in progress.
        if let Some(round_trip) = round_trip {
            recorder.record(nanoseconds(round_trip));
        }
        client.receive()?;
        // One read of the clock ends this round trip and begins the next.
        let now = Instant::now();
        round_trip = Some(now - sent_at);
        sent_at = now;
        if now >= end {
            break;
        }
        if !pause.is_zero() {
            rest(pause);
            sent_at = Instant::now();
        }
    }
    recorder.record(nanoseconds(round_trip.unwrap_or_default()));

    let messages = 2 * (client.sent - warm);
    let side = meter.stop(messages, messages * size as u64);
    let ended = Instant::now();
    while !pace.overlap.is_zero() && ended.elapsed() < pace.overlap {
        client.send()?;
        client.receive()?;
    }
    client.connection.finish()?;
    read_end(&mut client.connection)?;
    Ok(Side {
        total_bytes: 2 * client.sent * size as u64,
        durations: Some(recorder.counts()),
        ..side
    })
}

fn rest(pause: Duration) {
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

/// A client that sends a message and waits for its answer.
pub(super) struct Client<C> {
    pub(super) connection: C,
    message: Vec<u8>,
    answer: Vec<u8>,
    /// Number of messages sent.
    pub(super) sent: u64,
}

impl<C: Connection> Client<C> {
    pub(super) fn new(connection: C, size: usize) -> Self {
        Self {
            connection,
            message: vec![0x5a; size],
            answer: vec![0; size],
            sent: 0,
        }
    }

    /// Sends a message that differs from the one before.
    #[inline]
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.sent += 1;
        let tag = self.sent.to_le_bytes();
        let tagged = self.message.len().min(tag.len());
        self.message[..tagged].copy_from_slice(&tag[..tagged]);
        self.connection.write_all(&self.message)
    }

    /// Waits for the answer, which must equal the message.
    #[inline]
    pub(super) fn receive(&mut self) -> io::Result<()> {
        if !read_whole(&mut self.connection, &mut self.answer)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let tagged = self.message.len().min(8);
        if self.answer[..tagged] != self.message[..tagged] {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is not the message that was sent",
            ));
        }
        Ok(())
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
