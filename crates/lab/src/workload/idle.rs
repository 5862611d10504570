//! A connection without traffic: the use of its two idle nodes.
//!
//! The server's program waits in a call for a message, and the client's is outside of any call. The
//! result is the processor time of each process and of the other processes of its node.

use std::io;
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::reading::read_end;
use crate::samples::Side;
use crate::testbed::{Connection, Testbed};

/// Time before and after the measurement, in which all processes come to rest, or others still
/// count.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

pub(super) fn serve<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    span: Duration,
) -> io::Result<Side> {
    let mut connection = testbed.accept(listener)?;
    let side = std::thread::scope(|scope| {
        // One more thread reads the clocks, and sleeps otherwise.
        let counted = scope.spawn(|| count(span));
        read_end(&mut connection)?;
        counted
            .join()
            .map_err(|_| io::Error::other("the clocks cannot be read"))
    })?;
    connection.finish()?;
    Ok(side)
}

pub(super) fn drive(mut connection: impl Connection, span: Duration) -> io::Result<Side> {
    let side = count(span);
    std::thread::sleep(2 * SETTLE);
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(side)
}

fn count(span: Duration) -> Side {
    std::thread::sleep(SETTLE);
    let meter = Meter::start();
    let began = Instant::now();
    while began.elapsed() < span {
        std::thread::sleep(span.saturating_sub(began.elapsed()));
    }
    meter.stop(0, 0)
}
