//! A connection on which nothing happens: what its two nodes use all the same.
//!
//! The server's program waits in a call for a message, the client's is somewhere else.
//! What is counted is the time that the processors' clocks gave to either process and to
//! what belongs to its node.

use std::io;
use std::time::{Duration, Instant};

use super::meter::{Meter, processor_ns_of};
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
    let engines = testbed.engines();
    let side = std::thread::scope(|scope| {
        // One more thread looks at the clocks. It sleeps otherwise.
        let counted = scope.spawn(|| count(&engines, span));
        read_end(&mut connection)?;
        counted
            .join()
            .map_err(|_| io::Error::other("the clocks cannot be read"))
    })?;
    connection.finish()?;
    Ok(side)
}

pub(super) fn drive<T: Testbed>(
    testbed: &mut T,
    mut connection: T::Connection,
    span: Duration,
) -> io::Result<Side> {
    let side = count(&testbed.engines(), span);
    std::thread::sleep(2 * SETTLE);
    connection.finish()?;
    read_end(&mut connection)?;
    Ok(side)
}

fn count(engines: &[u32], span: Duration) -> Side {
    std::thread::sleep(SETTLE);
    let before = processor_ns_of(engines);
    let meter = Meter::start();
    let began = Instant::now();
    while began.elapsed() < span {
        std::thread::sleep(span.saturating_sub(began.elapsed()));
    }
    let side = meter.stop(0, 0);
    Side {
        engine_ns: processor_ns_of(engines).saturating_sub(before),
        ..side
    }
}
