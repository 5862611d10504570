//! Ping-pong whose messages are followed through the kernel by its tracepoints.
//!
//! The client turns tracepoints on and off between blocks of round trips. The server only answers.

use std::io;
use std::time::{Duration, Instant};

use toehold_trace::clock_source::ClockSource;
use toehold_trace::kernel::tracefs::{Tracefs, TracefsError};
use toehold_trace::kernel::{
    KernelBlockUse, KernelBlocks, KernelPingPong, KernelPlan, MOST_TRIPS, measure_kernel,
};

use super::kind::Pace;
use super::meter::Meter;
use super::ping_pong::{Client, nanoseconds};
use super::reading::{read_end, read_whole};
use crate::samples::{Followed, Recorder, Side};
use crate::testbed::{Connection, TestbedError};

/// Bytes by which the server tells its thread.
const THREAD: usize = 4;

/// Time to turn all tracepoints of a block on or off, and to read its events, on a busy machine.
const BLOCK: Duration = Duration::from_millis(250);

/// Time of a round trip with tracepoints.
const TRIP: Duration = Duration::from_micros(80);

/// The approximate duration of a measurement, which is one round of blocks.
pub(super) fn length(trips: u32) -> Duration {
    (BLOCK + TRIP * trips) * KernelBlockUse::BLOCKS_OF_ROUND
}

/// Tells the client which thread answers, and answers until the client ends.
pub(super) fn serve(mut connection: impl Connection, size: usize) -> io::Result<Side> {
    let thread = u32::try_from(nix::unistd::gettid().as_raw()).map_err(io::Error::other)?;
    connection.write_all(&thread.to_le_bytes())?;
    let meter = Meter::start();
    let mut message = vec![0; size];
    let mut served = 0;
    while read_whole(&mut connection, &mut message)? {
        connection.write_all(&message)?;
        served += 2;
    }
    let bytes = served * size as u64;
    let side = meter.stop(served, bytes);
    connection.finish()?;
    Ok(Side {
        total_bytes: bytes,
        ..side
    })
}

/// Runs the client. Without the right to trace, it does not connect.
pub(super) fn drive<C: Connection>(
    connect: impl FnOnce() -> io::Result<C>,
    size: usize,
    trips: u32,
    pace: &Pace,
) -> io::Result<Side> {
    let tracefs = Tracefs::found().map_err(unavailable)?;
    let mut trip = FollowedTrip::begin(connect()?, size)?;
    let began = Instant::now();
    while began.elapsed() < pace.warm_up {
        trip.round_trips(1)?;
    }
    let meter = Meter::start();
    let warm = trip.client.sent;
    let clock = ClockSource::of_this_machine();
    let plan = KernelPlan {
        rounds: 1,
        trips: trips.min(MOST_TRIPS),
    };
    let blocks = measure_kernel(&tracefs, clock, plan, &mut trip).map_err(unavailable)?;
    let mut client = trip.client;
    let messages = 2 * (client.sent - warm);
    let side = meter.stop(messages, messages * size as u64);
    client.connection.finish()?;
    read_end(&mut client.connection)?;
    let mut recorder = Recorder::new();
    untraced_ns(&blocks).for_each(|ns| recorder.record(ns));
    Ok(Side {
        total_bytes: 2 * client.sent * size as u64,
        durations: Some(recorder.counts()),
        followed: Some(Box::new(Followed {
            clock: clock.to_string(),
            blocks,
        })),
        ..side
    })
}

/// The round trips of blocks without tracepoints.
fn untraced_ns(blocks: &KernelBlocks) -> impl Iterator<Item = u64> {
    let untraced = |use_of: KernelBlockUse| use_of == KernelBlockUse::Untraced;
    let blocks = blocks
        .blocks
        .iter()
        .filter(move |block| untraced(block.block_use));
    blocks.flat_map(|block| block.round_trips_ns.iter().copied())
}

/// The error of a measurement: what the machine or the user lacks, or a failure.
fn unavailable(error: TracefsError) -> io::Error {
    match error {
        TracefsError::Workload(error) => error,
        TracefsError::Io(..) => io::Error::other(error.to_string()),
        lacking => io::Error::other(TestbedError::Unavailable(format!(
            "messages cannot be followed through the kernel: {lacking}"
        ))),
    }
}

/// The client of a ping-pong, and both threads.
struct FollowedTrip<C> {
    client: Client<C>,
    threads: [u32; 2],
    size: usize,
}

impl<C: Connection> FollowedTrip<C> {
    fn begin(mut connection: C, size: usize) -> io::Result<Self> {
        let mut theirs = [0; THREAD];
        if !read_whole(&mut connection, &mut theirs)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let own = u32::try_from(nix::unistd::gettid().as_raw()).map_err(io::Error::other)?;
        Ok(Self {
            client: Client::new(connection, size),
            threads: [own, u32::from_le_bytes(theirs)],
            size,
        })
    }
}

impl<C: Connection> KernelPingPong for FollowedTrip<C> {
    fn threads(&self) -> [u32; 2] {
        self.threads
    }

    fn message_bytes(&self) -> u32 {
        u32::try_from(self.size).unwrap_or(u32::MAX)
    }

    fn round_trips(&mut self, count: u32) -> io::Result<Vec<u64>> {
        let mut times = Vec::with_capacity(count as usize);
        let mut began = Instant::now();
        for number in 0..=count {
            let now = Instant::now();
            if number > 0 {
                times.push(nanoseconds(now - began));
            }
            began = now;
            self.client.send()?;
            self.client.receive()?;
        }
        Ok(times)
    }
}
