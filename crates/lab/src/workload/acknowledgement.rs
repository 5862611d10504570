//! Messages that arrive while the server's program computes between two calls: the time for which
//! the client's bytes stay unacknowledged.
//!
//! The server announces when it begins to compute. The client waits for a part of that time,
//! different in each turn, sends, and polls until everything is acknowledged. A stack that runs
//! only in the program's calls therefore answers when the program is done. It never answers earlier
//! because the program happened to be in a call.
//!
//! No side is pinned: the program has one core, and its node's engine may use the other, which the
//! client leaves free between two polls.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::ping_pong::nanoseconds;
use super::reading::{read_end, read_whole};
use crate::samples::{Recorder, Side};
use crate::testbed::{Connection, Testbed};

/// Time for which the program computes between two calls.
const COMPUTING: Duration = Duration::from_millis(10);

/// Duration of one message with its turn.
pub(super) const CYCLE: Duration = Duration::from_millis(11);

/// Bytes of a message: more than two segments of an Ethernet frame's size, so that TCP acknowledges
/// it at once (RFC 9293 §3.8.6.3).
const MESSAGE: usize = 4096;

/// Messages before the measurement.
const WARM_UP: u32 = 3;

/// The first part of the computing time, in which messages are sent.
const SENDING: Duration = Duration::from_millis(8);

/// Interval of the client's polls.
const LOOK: Duration = Duration::from_micros(20);

/// The server's message when it begins to compute.
const BEGIN: [u8; 1] = *b"B";

pub(super) fn serve(mut connection: impl Connection) -> io::Result<Side> {
    let mut message = vec![0; MESSAGE];
    let meter = Meter::start();
    let mut received = 0;
    loop {
        connection.write_all(&BEGIN)?;
        connection.flush()?;
        compute(COMPUTING);
        if !read_whole(&mut connection, &mut message)? {
            break;
        }
        received += 1;
    }
    let side = meter.stop(received, received * MESSAGE as u64);
    connection.finish()?;
    Ok(Side {
        total_bytes: side.bytes,
        ..side
    })
}

pub(super) fn drive<T: Testbed>(
    testbed: &mut T,
    mut connection: T::Connection,
    times: u32,
) -> io::Result<Side> {
    let message = vec![0x5a; MESSAGE];
    // The golden ratio spreads any number of moments evenly.
    let moment = |number: u32| SENDING.mul_f64(f64::from(number) * 0.618_033_988_75 % 1.0);
    let mut recorder = Recorder::new();
    let meter = Meter::start();
    for number in 0..WARM_UP + times {
        read_whole(&mut connection, &mut [0; BEGIN.len()])?;
        std::thread::sleep(moment(number));
        let sent_at = Instant::now();
        connection.write_all(&message)?;
        while testbed.unacknowledged(&connection)? > 0 {
            std::thread::sleep(LOOK);
        }
        if number >= WARM_UP {
            recorder.record(nanoseconds(sent_at.elapsed()));
        }
    }
    let messages = u64::from(WARM_UP + times);
    let side = meter.stop(messages, messages * MESSAGE as u64);
    read_whole(&mut connection, &mut [0; BEGIN.len()])?;
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(Side {
        total_bytes: side.bytes,
        durations: Some(recorder.counts()),
        ..side
    })
}

/// Uses the processor, and makes no call.
fn compute(span: Duration) {
    let began = Instant::now();
    while began.elapsed() < span {
        super::availability::turn();
    }
}
