//! The system calls of TAP devices.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Offloads, TapError, TapSettings};
use crate::virtio_net::{HEADER_LEN, last_error};

const TUN: &str = "/dev/net/tun";

/// One queue of a TAP device.
#[derive(Debug)]
pub(super) struct Device {
    descriptor: OwnedFd,
}

/// `struct ifreq` with a name and flags.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: libc::c_short,
    unused: [u8; 22],
}
const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// Whether to create a device or another queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attach {
    Create,
    AnotherQueue,
}

impl Device {
    /// Creates a device, or opens a queue, in the namespace of the calling thread.
    pub(super) fn open(settings: &TapSettings, attach: Attach) -> Result<Device, TapError> {
        let name = &settings.name;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(TUN, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => TapError::NoDriver,
            Errno::ACCESS | Errno::PERM => TapError::NoAccess,
            error => system("open a queue", name, error),
        })?;
        let device = Device { descriptor };
        let mut request = Request {
            name: [0; 16],
            flags: flags_of(settings, attach),
            unused: [0; 22],
        };
        // The name was checked and leaves room for its terminating zero.
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`. `request` has its
        // layout and outlives the call.
        unsafe { device.control(libc::TUNSETIFF, (&raw mut request).cast()) }.map_err(
            |error| match error {
                Errno::PERM | Errno::ACCESS => TapError::NotPermitted(name.clone()),
                // An interface of another kind gives EINVAL.
                Errno::BUSY | Errno::EXIST | Errno::INVAL => TapError::NameTaken(name.clone()),
                error => system("make the interface", name, error),
            },
        )?;
        if settings.vnet_header {
            let mut len = HEADER_LEN as libc::c_int;
            // SAFETY: TUNSETVNETHDRSZ reads an int. `len` is one and outlives the
            // call.
            unsafe { device.control(libc::TUNSETVNETHDRSZ, (&raw mut len).cast()) }
                .map_err(|error| system("set the header", name, error))?;
        }
        Ok(device)
    }

    /// Returns the queue of a descriptor from another process.
    pub(super) fn from_fd(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.descriptor
    }

    /// Tells the kernel which work it may leave to this end. Returns the offloads
    /// that the kernel knows.
    pub(super) fn set_offloads(&self, wanted: Offloads) -> Offloads {
        let mut offloads = wanted.consistent();
        loop {
            let flags = offloads.flags() as usize as *mut libc::c_void;
            // SAFETY: `flags` is a number: `TUNSETOFFLOAD` takes one in place of a pointer.
            if unsafe { self.control(libc::TUNSETOFFLOAD, flags) }.is_ok() {
                return offloads;
            }
            match offloads.reduced() {
                Some(fewer) => offloads = fewer,
                None => return Offloads::NONE,
            }
        }
    }

    /// Switches the carrier on or off.
    pub(super) fn set_carrier(&self, carrier: bool) -> Result<(), Errno> {
        let mut carrier = libc::c_int::from(carrier);
        // SAFETY: TUNSETCARRIER reads an int. `carrier` is one and outlives the
        // call.
        unsafe { self.control(libc::TUNSETCARRIER, (&raw mut carrier).cast()) }
    }

    /// # Safety
    ///
    /// `argument` is valid for the request, for this call.
    unsafe fn control(&self, request: libc::Ioctl, argument: *mut libc::c_void) -> Result<(), Errno> {
        // SAFETY: `self` keeps the descriptor open, and the caller guarantees a
        // valid argument.
        match unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, argument) } {
            -1 => Err(last_error()),
            _ => Ok(()),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn flags_of(settings: &TapSettings, attach: Attach) -> libc::c_short {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if settings.vnet_header {
        flags |= libc::IFF_VNET_HDR;
    }
    if settings.multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if attach == Attach::Create {
        // An existing device is not taken over.
        flags |= libc::IFF_TUN_EXCL;
    }
    // The highest bit is a flag as well.
    flags as libc::c_short
}

pub(super) fn system(action: &'static str, name: &str, error: Errno) -> TapError {
    TapError::System {
        action,
        name: name.to_owned(),
        error,
    }
}
