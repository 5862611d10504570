//! A connection on which nothing happens: what its two nodes use all the same.
//!
//! The server's program waits in a call for a message, the client's is somewhere else.
//! What is counted is the time that the processors' clocks gave to either process and to
//! what belongs to its node.

use std::io;
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::read_end;
use crate::samples::Side;
use crate::testbed::{Connection, Testbed};

/// Before anything counts, everybody comes to rest; and afterwards others may still count.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

pub(super) fn serve<T: Testbed>(
    testbed: &mut T,
    listener: &mut T::Listener,
    span: Duration,
) -> io::Result<Side> {
    let mut connection = testbed.accept(listener)?;
    let side = std::thread::scope(|scope| {
        // One more thread looks at the clocks. It sleeps otherwise.
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
