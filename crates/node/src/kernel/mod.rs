//! The kernel's stack beside the node's: a TAP device with the node's addresses. Over it the kernel
//! gets what does not belong to the node's stack, and sends what it has to say.
//!
//! The thread that drives the node hands the kernel's frames over at once (`outlet`). Every process
//! of the node has the device's descriptor for that, so a frame for the kernel waits for no thread
//! to wake up. A thread of the engine carries what the kernel sends to the fabric (`inlet`); it
//! sleeps in between. Of a device with several queues there is a thread for each. The kernel gives
//! a port at which a program of the node listens to no other program (`ports`). The device itself,
//! its namespace, and what is left of them when the engine is killed, are the engine's (`device`,
//! `leftovers`).

mod device;
mod inlet;
pub(crate) mod leftovers;
mod names;
mod outlet;
mod own;
mod ports;
mod watched;

pub use self::device::KernelError;
pub(crate) use self::device::{Description, Device};
pub(crate) use self::inlet::Inlet;
pub use self::names::{DEFAULT_DEVICE, InterfaceName};
pub(crate) use self::outlet::{Outlet, queues_of_shard};
pub use self::own::{OwnNetworkError, enter_own_network};
pub(crate) use self::ports::Ports;
pub(crate) use self::watched::Watched;
