//! Incast: the server sends a request to all clients at once and waits for all their answers, which
//! meet on the path.

use std::io;
use std::time::Instant;

use super::kind::Pace;
use super::meter::Meter;
use super::ping_pong::nanoseconds;
use super::reading::{read_end, read_whole};
use crate::samples::{Recorder, Side};
use crate::testbed::Connection;

/// Bytes of a request: its number.
const QUESTION: usize = 8;

/// Least rounds before the measurement, however long they take.
const MIN_WARM_UP: u64 = 4;

/// Sends requests, over connections to all clients.
pub(super) fn serve<C: Connection>(mut clients: Vec<C>, size: usize, pace: &Pace) -> io::Result<Side> {
    let mut answer = vec![0; size];
    let mut asked = 0_u64;
    let mut ask = |clients: &mut [C]| -> io::Result<()> {
        asked += 1;
        for client in clients.iter_mut() {
            client.write_all(&asked.to_le_bytes())?;
            client.flush()?;
        }
        for client in clients {
            if !read_whole(client, &mut answer)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    };
    let began = Instant::now();
    let mut warm = 0;
    while warm < MIN_WARM_UP || began.elapsed() < pace.warm_up {
        ask(&mut clients)?;
        warm += 1;
    }
    let mut recorder = Recorder::new();
    let meter = Meter::start();
    let mut last = Instant::now();
    let end = last + pace.span;
    let mut rounds = 0;
    while last < end {
        ask(&mut clients)?;
        let now = Instant::now();
        recorder.record(nanoseconds(now - last));
        last = now;
        rounds += 1;
    }
    let answers = rounds * clients.len() as u64;
    let side = meter.stop(answers, answers * size as u64);
    let total_bytes = (warm + rounds) * (clients.len() * (QUESTION + size)) as u64;
    for client in &mut clients {
        client.finish()?;
    }
    for client in &mut clients {
        read_end(client)?;
    }
    Ok(Side {
        total_bytes,
        durations: Some(recorder.counts()),
        ..side
    })
}

/// Answers until the server ends.
pub(super) fn drive(mut connection: impl Connection, size: usize) -> io::Result<Side> {
    let answer = vec![0x5a; size];
    let mut question = [0; QUESTION];
    let mut answered = 0_u64;
    let meter = Meter::start();
    while read_whole(&mut connection, &mut question)? {
        connection.write_all(&answer)?;
        answered += 1;
    }
    connection.finish()?;
    Ok(Side {
        total_bytes: answered * (QUESTION + size) as u64,
        ..meter.stop(answered, answered * size as u64)
    })
}
