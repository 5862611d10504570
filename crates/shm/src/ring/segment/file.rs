//! The memory of a segment: a file, a shared memory object, a DAX device, or the memory of a PCI
//! device. All of them are opened, and mapped from the beginning to the end.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, Stat, fallocate, fstat, major, minor, open};
use rustix::io::Errno;

use super::{Part, SegmentError};
use crate::Region;

/// Opens an existing file, or creates one of `make` bytes, and maps a part of it.
pub(super) fn map(path: &Path, make: Option<u64>, part: Part) -> Result<Region, SegmentError> {
    let refused = |errno| SegmentError::Open {
        path: path.to_owned(),
        errno,
    };
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    if make.is_some() {
        flags |= OFlags::CREATE;
    }
    let file = match open(path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::NOENT) if make.is_none() => return Err(SegmentError::Missing(path.to_owned())),
        opened => opened.map_err(refused)?,
    };
    let mut len = length(&file).map_err(refused)?;
    if let (0, Some(make)) = (len, make) {
        // Allocate all of it now: a page that the system cannot provide later would kill the thread
        // that touches it.
        fallocate(&file, FallocateFlags::empty(), 0, make).map_err(|errno| SegmentError::Make {
            path: path.to_owned(),
            len: make,
            errno,
        })?;
        len = length(&file).map_err(refused)?;
    }
    match usize::try_from(len) {
        Ok(len) if (1..=isize::MAX as usize).contains(&len) => {
            let (offset, len) = part.within(len);
            Ok(Region::over(file, offset as u64, len)?)
        }
        _ => Err(SegmentError::NoLength(path.to_owned())),
    }
}

/// Bytes that can be mapped.
fn length(file: &OwnedFd) -> Result<u64, Errno> {
    let stat = fstat(file)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => dax_length(&stat).unwrap_or(0),
        _ => stat.st_size as u64,
    })
}

/// The length of a device for direct access. The device file has none; the system knows it.
fn dax_length(stat: &Stat) -> Option<u64> {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    let size = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size"));
    size.ok()?.trim().parse().ok()
}
