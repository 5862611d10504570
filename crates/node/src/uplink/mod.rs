//! Members of a fabric without a stack: a process that forwards frames between the fabric
//! and what is beyond it.
//!
//! An *uplink* joins the fabric with fabrics on other hosts, over UDP, or in other machines that
//! map the same memory. It may also join it with the Ethernet behind an interface of the kernel; it
//! is a gateway. A *device* is an interface of the kernel on the fabric (ETHOM), or straight on UDP
//! (ETHOS) or on such memory. Either is served like a node, so that the same commands find and end
//! it; but no program can run on it.

mod config;
mod counters;
mod ends;
mod forwarder;
mod host;
mod lanes;
mod roster;
#[cfg(test)]
mod tests;
mod vacancy;

pub use self::config::{Access, EthernetEnd, InvalidUplink, SegmentEnd, TapEnd, UdpEnd, UplinkConfig};
pub use self::host::UplinkHost;
#[cfg(any(fuzzing, test))]
pub use self::roster::Listener;
pub(crate) use self::roster::known_beyond;
pub(crate) use self::vacancy::ask_beyond;
