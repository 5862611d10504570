//! Dispatches the sides of a workload to the files of its kind.

use std::io;
use std::time::Duration;

use super::faults::Faults;
use super::kind::{Pace, Workload};
use super::several::{self, Part};
use super::{
    acknowledgement, availability, churn, connect, idle, incast, layout, mixed, open_loop, ping_pong, stream,
    switching,
};
use crate::samples::Side;
use crate::testbed::{Connection, Testbed};

/// Bytes of a message that wakes the other side up.
const WAKE_UP_MESSAGE: usize = 64;

/// Pause of both sides in a wake-up: far longer than any side spins.
pub(super) const WAKE_UP_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of each write of a bulk stream, iperf3's default: 128 KiB.
pub(super) const BULK_WRITE: usize = 128 << 10;

/// The most by which the last of many pairs may begin after the first.
const CROWD_OVERLAP: Duration = Duration::from_millis(30);

/// Warm-up of many pairs. In it they find out their number, and their engines begin to poll busy
/// programs less often.
const CROWD_WARM_UP: Duration = Duration::from_millis(350);

/// Least duration of a measurement of many pairs: each has the processor for a fraction of that.
const CROWD_SPAN: Duration = Duration::from_millis(250);

impl Workload {
    /// Runs the accepting side's part, from accepting to the client's end.
    pub fn serve<T: Testbed>(
        &self,
        testbed: &mut T,
        listener: &mut T::Listener,
        pace: &Pace,
    ) -> io::Result<Side> {
        match self {
            Self::PingPong { size } => ping_pong::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::WakeUp => ping_pong::serve(testbed.accept(listener)?, WAKE_UP_MESSAGE, pace),
            Self::Layout { size, .. } => layout::serve(testbed.accept(listener)?, size.bytes()),
            Self::Stream { size } => stream::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::Bulk | Self::Impaired { .. } => stream::serve(testbed.accept(listener)?, BULK_WRITE, pace),
            Self::Connect => connect::serve(testbed, listener, pace),
            Self::Acknowledgement { .. } => acknowledgement::serve(testbed.accept(listener)?),
            Self::Idle { span_ms, .. } => idle::serve(testbed, listener, Duration::from_millis(*span_ms)),
            Self::Crowd { size, .. } => {
                ping_pong::serve(testbed.accept(listener)?, size.bytes(), &crowded(pace))
            }
            Self::Availability { size } => availability::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::Switching { times, still } => switching::serve(testbed, listener, *times, *still),
            Self::Mixed { size } => mixed::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::Churn { size } => churn::serve(testbed, listener, size.bytes(), pace),
            Self::OpenLoop { size, .. } => ping_pong::serve(testbed.accept(listener)?, size.bytes(), pace),
            _ => self.serve_several(testbed, listener, pace),
        }
    }

    /// The pace among others that begin a little earlier or later, and share a core if they are
    /// many.
    pub(super) fn pace_of_several(&self, pace: &Pace) -> Pace {
        if self.clients() > 1 {
            return crowded(pace);
        }
        Pace {
            overlap: CROWD_OVERLAP,
            ..*pace
        }
    }

    /// Runs the accepting side's part with several connections.
    fn serve_several<T: Testbed>(
        &self,
        testbed: &mut T,
        listener: &mut T::Listener,
        pace: &Pace,
    ) -> io::Result<Side> {
        let count = match self {
            Self::MultiStream { streams, .. } => *streams,
            Self::Bidirectional { .. } => 2,
            _ => self.clients(),
        };
        let connections = several::accept(testbed, listener, count)?;
        let pace = self.pace_of_several(pace);
        match self {
            Self::HotSpot { size, .. } => {
                several::run(several::each(Part::Echo, connections), size.bytes(), &pace)
            }
            Self::MultiStream { size, .. } | Self::FanIn { size, .. } => {
                several::run(several::each(Part::Pull, connections), size.bytes(), &pace)
            }
            Self::FanOut { size, .. } => {
                several::run(several::each(Part::Push, connections), size.bytes(), &pace)
            }
            Self::Incast { size, .. } => incast::serve(connections, size.bytes(), &pace),
            Self::Bidirectional { size } => {
                let parts = [Part::Pull, Part::Push].into_iter().zip(connections).collect();
                several::run(parts, size.bytes(), &pace)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Runs the connecting side's part, with a server that listens at `address`.
    pub fn drive<T: Testbed>(&self, testbed: &mut T, address: &str, pace: &Pace) -> io::Result<Side> {
        let mut connect = || testbed.connect(address, self);
        match self {
            Self::PingPong { size } => ping_pong::drive(connect()?, size.bytes(), Duration::ZERO, pace),
            Self::WakeUp => ping_pong::drive(connect()?, WAKE_UP_MESSAGE, WAKE_UP_PAUSE, pace),
            Self::Layout { size, trips } => layout::drive(connect, size.bytes(), *trips, pace),
            Self::Stream { size } => stream::drive(connect()?, size.bytes(), pace),
            Self::Bulk => stream::drive(connect()?, BULK_WRITE, pace),
            Self::Impaired { faults } => stream::drive(connect()?, BULK_WRITE, &delayed(pace, faults)),
            Self::Connect => connect::drive(connect, pace),
            Self::Crowd { size, .. } => {
                ping_pong::drive(connect()?, size.bytes(), Duration::ZERO, &crowded(pace))
            }
            Self::Availability { size } => availability::drive(connect()?, size.bytes(), pace),
            Self::Acknowledgement { times } => {
                let connection = connect()?;
                acknowledgement::drive(testbed, connection, *times)
            }
            Self::Idle { span_ms, .. } => idle::drive(connect()?, Duration::from_millis(*span_ms)),
            Self::Switching { times, still } => {
                let connections = switching::connect(connect)?;
                switching::drive(testbed, connections, *times, *still)
            }
            Self::Mixed { size } => mixed::drive(connect()?, size.bytes(), pace),
            Self::Churn { size } => churn::drive(connect, size.bytes(), pace),
            Self::OpenLoop { rate, size } => open_loop::drive(connect()?, size.bytes(), *rate, pace),
            _ => self.drive_several(connect, pace),
        }
    }

    /// Runs one of several clients, or several connections of one.
    fn drive_several<C: Connection + Send>(
        &self,
        mut connect: impl FnMut() -> io::Result<C>,
        pace: &Pace,
    ) -> io::Result<Side> {
        let pace = self.pace_of_several(pace);
        let mut only = || several::await_go(connect()?);
        match self {
            Self::HotSpot { size, .. } => ping_pong::drive(only()?, size.bytes(), Duration::ZERO, &pace),
            Self::FanIn { size, .. } => stream::drive(only()?, size.bytes(), &pace),
            Self::FanOut { size, .. } => stream::serve(only()?, size.bytes(), &pace),
            Self::Incast { size, .. } => incast::drive(only()?, size.bytes()),
            Self::MultiStream { streams, size } => {
                let connections = several::connect(connect, *streams)?;
                several::run(several::each(Part::Push, connections), size.bytes(), &pace)
            }
            Self::Bidirectional { size } => {
                let connections = several::connect(connect, 2)?;
                let parts = [Part::Push, Part::Pull].into_iter().zip(connections);
                several::run(parts.collect(), size.bytes(), &pace)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// The pace of one pair among many.
pub(super) fn crowded(pace: &Pace) -> Pace {
    Pace {
        warm_up: pace.warm_up.max(CROWD_WARM_UP),
        span: pace.span.max(CROWD_SPAN),
        overlap: CROWD_OVERLAP,
    }
}

/// The pace over a path with delay.
fn delayed(pace: &Pace, faults: &Faults) -> Pace {
    Pace {
        overlap: faults.overlap(),
        ..*pace
    }
}
