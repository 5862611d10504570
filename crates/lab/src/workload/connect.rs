//! Connections set up and torn down, one after the other, without data.
//!
//! The server closes first, as servers with one answer per connection do. The TIME-WAIT records of
//! closed connections stay with the server, and the client's ports are free again at once. Both
//! sides have seen the other's end before the next connection.

use std::io;
use std::time::Instant;

use super::kind::Pace;
use super::meter::Meter;
use super::reading::{read_end, read_whole};
use super::served::Served;
use crate::samples::{Recorder, Side};
use crate::testbed::{Connection, Testbed};

/// Least connections before the measurement, however long they take.
const MIN_WARM_UP: u64 = 4;

/// Connections between two reads of the clock in the server's warm-up.
const CLOCK_EVERY: u64 = 4;

/// The client's message on its last connection.
const LAST: [u8; 1] = *b"Q";

pub(super) fn serve<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    pace: &Pace,
) -> io::Result<Side> {
    let mut served = Served::begin(pace, CLOCK_EVERY);
    loop {
        let mut connection = testbed.accept(listener)?;
        connection.finish()?;
        if read_whole(&mut connection, &mut [0; LAST.len()])? {
            return Ok(served.end());
        }
        served.exchanged(1, 0);
    }
}

pub(super) fn drive<C: Connection>(
    mut connect: impl FnMut() -> io::Result<C>,
    pace: &Pace,
) -> io::Result<Side> {
    let mut cycle = || -> io::Result<()> { read_end(&mut connect()?) };
    let began = Instant::now();
    let mut warm = 0;
    while warm < MIN_WARM_UP || began.elapsed() < pace.warm_up {
        cycle()?;
        warm += 1;
    }

    let mut recorder = Recorder::new();
    let mut connections = 0;
    let meter = Meter::start();
    let mut last = Instant::now();
    let end = last + pace.span;
    while last < end {
        cycle()?;
        let now = Instant::now();
        recorder.record(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
        last = now;
        connections += 1;
    }
    let side = meter.stop(connections, 0);

    let mut connection = connect()?;
    read_end(&mut connection)?;
    connection.write_all(&LAST)?;
    connection.flush()?;
    Ok(Side {
        durations: Some(recorder.counts()),
        ..side
    })
}
