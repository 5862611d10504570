//! The workloads of the two sides, with a file for each kind of traffic.
//!
//! The generators are deliberately cheap. They allocate no memory while traffic runs. They read the
//! clock once a round trip in a ping-pong, and every few dozen operations in a stream. They record
//! results while waiting for the other side.

mod acknowledgement;
mod alone;
mod availability;
mod cell;
mod churn;
mod connect;
mod costs;
mod faults;
mod idle;
mod incast;
mod kind;
mod layout;
mod machine;
mod meter;
mod metrics;
mod mixed;
mod names;
mod open_loop;
mod ping_pong;
mod popularity;
mod programs;
mod quantity;
mod reading;
mod served;
mod services;
mod several;
mod sides;
mod stream;
mod switching;
mod tiers;
mod valid;

pub use cell::{Cell, Factors};
pub use faults::Faults;
pub(crate) use faults::QUEUE;
pub use kind::{Pace, Workload};
pub use meter::process_cpu;
pub(crate) use meter::{Meter, Watched, processor_ns_of, watch};
pub(crate) use names::{KINDS, OPTIONAL};
pub use popularity::{Alpha, AlphaError, Trace};
pub use programs::{MpiLibrary, WebServer};
pub use quantity::{Better, Metric, Quantity, Reading};
pub use services::MeasuredProgram;
pub use tiers::{FileSize, SiteContent, SiteStart};

use std::time::Duration;

use crate::settings::Settings;

/// Time for servers with several workers to begin and to end, and for their clients to round up to
/// whole seconds.
const SERVICES: Duration = Duration::from_millis(1200);

/// Approximate time of a site's request, if their number is given.
const SITE_REQUEST: Duration = Duration::from_micros(150);

/// Approximate time for a megabyte of a file on a disk.
const FILE_MEGABYTE: Duration = Duration::from_millis(30);

impl Workload {
    /// The workload's approximate duration if it succeeds.
    pub fn length(&self, settings: &Settings) -> Duration {
        let pace = Pace::from(settings);
        match self {
            Self::Acknowledgement { times } => acknowledgement::CYCLE * *times,
            Self::Idle { span_ms, .. } => Duration::from_millis(*span_ms) + 3 * idle::SETTLE,
            Self::Crowd { .. } => {
                let pace = sides::crowded(&pace);
                pace.warm_up + pace.span + pace.overlap
            }
            Self::Availability { .. } => pace.warm_up + availability::span(&pace) + availability::ALONE,
            Self::Switching { times, .. } => switching::LONGEST_REST * *times,
            Self::Impaired { faults } => pace.warm_up + pace.span + faults.overlap(),
            Self::Workers { .. } => pace.warm_up + pace.span + SERVICES,
            Self::Site { requests, .. } if *requests > 0 => SITE_REQUEST * (2 * *requests),
            Self::Site { .. } => 2 * pace.span,
            Self::FileRead { size, .. } | Self::FileWrite { size, .. } => {
                FILE_MEGABYTE * u32::try_from(size.bytes() >> 20).unwrap_or(0)
            }
            Self::Layout { trips, .. } => layout::length(*trips),
            _ if self.is_alone() => self.length_alone(),
            _ if self.is_of_several() => {
                let pace = self.pace_of_several(&pace);
                pace.warm_up + pace.span + pace.overlap
            }
            _ => pace.warm_up + pace.span,
        }
    }
}

#[cfg(test)]
mod tests;
