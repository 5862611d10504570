//! The checks of a region, and its protection from other processes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

use crate::{Access, Carver, Region, RegionError};

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("toehold-test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn error(fd: OwnedFd) -> RegionError {
    Region::open(fd, Access::ReadOnly).unwrap_err()
}

/// Whether the memory behind `fd` can be mapped for writing.
fn map_for_writing(fd: impl AsFd) -> Result<(), Errno> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address for the new mapping, so no memory in use is
    // affected.
    unsafe { mmap(core::ptr::null_mut(), 4096, flags, MapFlags::SHARED, fd, 0) }.map(|_| ())
}

#[test]
fn unsealed_memory_is_refused() {
    assert_eq!(error(memfd(4096, SealFlags::empty())), RegionError::NotSealed);
    assert_eq!(
        error(memfd(4096, SealFlags::GROW | SealFlags::WRITE)),
        RegionError::NotSealed
    );
    assert!(Region::open(memfd(4096, SealFlags::SHRINK), Access::ReadOnly).is_ok());
}

#[test]
fn empty_memory_is_refused() {
    assert_eq!(error(memfd(0, SealFlags::SHRINK)), RegionError::Length(0));
    assert_eq!(
        Region::create("toehold-test", 0).unwrap_err(),
        RegionError::Length(0)
    );
    assert!(matches!(
        Region::private(usize::MAX).unwrap_err(),
        RegionError::Length(_)
    ));
}

#[test]
fn descriptors_of_other_things_are_refused() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(error(reader), RegionError::NotMemory);
    assert_eq!(
        error(std::fs::File::open("/proc/self/exe").unwrap().into()),
        RegionError::NotMemory
    );
    assert_eq!(
        error(std::fs::File::open("/dev/zero").unwrap().into()),
        RegionError::NotMemory
    );
}

#[test]
fn huge_page_memory_is_refused() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // A kernel without huge pages has nothing to refuse.
    let Ok(fd) = memfd_create("toehold-test", flags) else {
        return;
    };
    fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    assert_eq!(error(fd), RegionError::NotMemory);
}

#[test]
fn region_length_and_seals_are_fixed() {
    let region = Region::create("toehold-test", 10_000).unwrap();
    assert_eq!(region.len(), 12_288);
    let fd = region.fd().unwrap();
    assert_eq!(ftruncate(fd, 4096), Err(Errno::PERM));
    assert_eq!(ftruncate(fd, 1 << 20), Err(Errno::PERM));
    assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn read_only_descriptor_cannot_be_mapped_for_writing() {
    let region = Region::create("toehold-test", 4096).unwrap();
    let read_only = region.read_only_fd().unwrap();
    assert_eq!(map_for_writing(&read_only), Err(Errno::ACCESS));
    assert!(matches!(
        Region::open(read_only, Access::ReadWrite).unwrap_err(),
        RegionError::Map {
            errno: Errno::ACCESS,
            ..
        }
    ));
    let peer = Region::open(region.read_only_fd().unwrap(), Access::ReadOnly).unwrap();
    // Nor can a mapping for reading be turned into one for writing.
    // SAFETY: the range is that of the region, and the call has to fail.
    let changed = unsafe {
        mprotect(
            peer.base().cast_mut().cast(),
            4096,
            MprotectFlags::READ | MprotectFlags::WRITE,
        )
    };
    assert_eq!(changed, Err(Errno::ACCESS));
}

#[test]
fn gathers_stay_inside_read_only_regions() {
    let region = Region::create("toehold-test", 4096).unwrap();
    let peer = Region::open(region.read_only_fd().unwrap(), Access::ReadOnly).unwrap();
    assert_eq!(peer.gather(0, 4096).unwrap().len(), 4096);
    assert_eq!(peer.gather(4096, 0).unwrap().len(), 0);
    assert!(peer.gather(4096, 1).is_none());
    assert!(peer.gather(1, 4096).is_none());
    assert!(peer.gather(u64::MAX, 2).is_none());
    assert!(peer.gather(2, u64::MAX).is_none());
    assert!(region.gather(0, 1).is_none());
}

#[test]
fn private_memory_has_no_descriptor() {
    let region = Region::private(1).unwrap();
    assert!(region.fd().is_none());
    assert_eq!(region.read_only_fd().unwrap_err(), RegionError::Private);
}

#[test]
fn populating_any_range_is_harmless() {
    let region = Region::create("toehold-test", 8192).unwrap();
    for (offset, len) in [
        (0, 8192),
        (1, 1),
        (4095, 2),
        (8192, 1),
        (100_000, usize::MAX),
        (0, 0),
        (5000, usize::MAX),
    ] {
        region.populate(offset, len);
    }
    let table = Carver::new(region).unwrap().table::<u8>(8192).unwrap();
    assert!(table.iter().all(|&byte| byte == 0));
}

#[test]
fn region_drops_its_descriptor_and_mapping() {
    let maps = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .matches("toehold-leak")
            .count()
    };
    for _ in 0..1000 {
        let region = Region::create("toehold-leak", 4096).unwrap();
        let peer = Region::open(region.read_only_fd().unwrap(), Access::ReadOnly).unwrap();
        drop((peer, region));
    }
    assert_eq!(maps(), 0);
    let leaked = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(
        leaked
            .filter(|path| path.to_string_lossy().contains("toehold-leak"))
            .count(),
        0
    );
}
