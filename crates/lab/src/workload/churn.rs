//! A connection for each request: set-up, a message in each direction, tear-down.
//!
//! The server closes first, as in [`super::connect`].

use std::io::{self, Write};
use std::time::Instant;

use super::kind::Pace;
use super::meter::Meter;
use super::ping_pong::nanoseconds;
use super::reading::{read_end, read_whole};
use super::served::Served;
use crate::samples::{Recorder, Side};
use crate::testbed::{Connection, Testbed};

/// Least connections before the measurement, however long they take.
const MIN_WARM_UP: u64 = 4;

/// Connections between two reads of the clock in the server's warm-up.
const CLOCK_EVERY: u64 = 4;

pub(super) fn serve<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    size: usize,
    pace: &Pace,
) -> io::Result<Side> {
    let mut message = vec![0; size];
    let mut served = Served::begin(pace, CLOCK_EVERY);
    loop {
        let mut connection = testbed.accept(listener)?;
        // A client that sends no data has no more requests.
        if !read_whole(&mut connection, &mut message)? {
            connection.finish()?;
            return Ok(served.end());
        }
        connection.write_all(&message)?;
        connection.finish()?;
        read_end(&mut connection)?;
        served.exchanged(1, 2 * size as u64);
    }
}

pub(super) fn drive<C: Connection>(
    mut connect: impl FnMut() -> io::Result<C>,
    size: usize,
    pace: &Pace,
) -> io::Result<Side> {
    let (message, mut answer) = (vec![0x5a; size], vec![0; size]);
    let mut ask = || -> io::Result<()> {
        let mut connection = connect()?;
        connection.write_all(&message)?;
        if !read_whole(&mut connection, &mut answer)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read_end(&mut connection)
    };
    let began = Instant::now();
    let mut warm = 0;
    while warm < MIN_WARM_UP || began.elapsed() < pace.warm_up {
        ask()?;
        warm += 1;
    }
    let mut recorder = Recorder::new();
    let meter = Meter::start();
    let mut last = Instant::now();
    let end = last + pace.span;
    let mut asked = 0;
    while last < end {
        ask()?;
        let now = Instant::now();
        recorder.record(nanoseconds(now - last));
        last = now;
        asked += 1;
    }
    let side = meter.stop(asked, 2 * asked * size as u64);
    let mut last = connect()?;
    last.finish()?;
    read_end(&mut last)?;
    Ok(Side {
        total_bytes: 2 * (warm + asked) * size as u64,
        durations: Some(recorder.counts()),
        ..side
    })
}
