//! The memory that direct connections accept, and its cost for a process.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};

use crate::RegionError;
use crate::direct::bank::{DIRECTORY_LEN, HALF_LEN, SIGNALS_LEN};
use crate::direct::*;

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("toehold-test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn dup(fd: std::os::fd::BorrowedFd<'_>) -> OwnedFd {
    fd.try_clone_to_owned().unwrap()
}

#[test]
fn memory_without_seals_or_of_another_length_is_refused() {
    let error = PeerHalf::open(memfd(HALF_LEN, SealFlags::empty())).unwrap_err();
    assert_eq!(error, MemoryError::Region(RegionError::NotSealed));
    for len in [HALF_LEN - 4096, HALF_LEN + 4096, 4096] {
        let error = PeerHalf::open(memfd(len, SealFlags::SHRINK)).unwrap_err();
        let expected = HALF_LEN;
        assert_eq!(error, MemoryError::Length { len, expected });
    }
    let len = SIGNALS_LEN as u64;
    let error = Signals::open(memfd(len, SealFlags::SHRINK)).unwrap_err();
    assert_eq!(error, MemoryError::Foreign);
    let pipe = rustix::pipe::pipe().unwrap().0;
    let error = PeerHalf::open(pipe).unwrap_err();
    assert_eq!(error, MemoryError::Region(RegionError::NotMemory));
}

#[test]
fn memory_of_another_kind_or_version_is_refused() {
    let journal = Journal::create("toehold-test", 1).unwrap();
    assert!(matches!(
        Ends::open(dup(journal.fd())),
        Err(MemoryError::Length { .. })
    ));
    let fd = memfd(DIRECTORY_LEN as u64, SealFlags::SHRINK);
    let write = |at, word: u32| rustix::io::pwrite(&fd, &word.to_le_bytes(), at).unwrap();
    rustix::io::pwrite(&fd, b"toehold+", 0).unwrap();
    write(8, bank::VERSION + 1);
    let error = PeerDirectory::open(fd.try_clone().unwrap()).unwrap_err();
    assert_eq!(error, MemoryError::Version(bank::VERSION + 1));
    write(8, bank::VERSION);
    write(12, 1);
    let error = PeerDirectory::open(fd.try_clone().unwrap()).unwrap_err();
    assert_eq!(error, MemoryError::Foreign);
    write(12, 3);
    assert!(PeerDirectory::open(fd).is_ok());
}

#[test]
fn every_memory_opens_in_other_processes_of_the_node() {
    let half = Half::create("toehold-test", 11).unwrap();
    assert_eq!(Half::open(dup(half.fd())).unwrap().incarnation(), 11);
    let peer = PeerHalf::open(half.read_only_fd().unwrap()).unwrap();
    assert_eq!(PeerHalf::open(dup(peer.fd())).unwrap().incarnation(), 11);
    assert_eq!(half.as_peer().incarnation(), 11);
    let signals = Signals::create("toehold-test", 12).unwrap();
    assert_eq!(Signals::open(dup(signals.fd())).unwrap().incarnation(), 12);
    let ends = Ends::create("toehold-test", 13).unwrap();
    assert_eq!(Ends::open(dup(ends.fd())).unwrap().incarnation(), 13);
    let directory = Directory::create("toehold-test", 14).unwrap();
    assert!(Directory::open(dup(directory.fd())).is_ok());
    assert_eq!(directory.as_peer().incarnation(), 14);
    let journal = Journal::create("toehold-test", 15).unwrap();
    let thread = journal.claim(9).unwrap();
    let other = Journal::open(dup(journal.fd())).unwrap();
    assert_eq!(other.process(thread).map(u16::from), Some(9));
    assert_ne!(other.claim(9), Some(thread));
    assert_eq!(other.threads_of(9.try_into().unwrap()).count(), 2);
    other.free(thread);
    assert_eq!(journal.process(thread), None);
}

#[test]
fn half_maps_rings_when_they_are_used_and_returns_their_pages() {
    let half = Half::create("toehold-test", 1).unwrap();
    let before = half.memory_used();
    for number in [0, 63, 64, CONNECTIONS as u16 - 1] {
        half.map(number).unwrap();
    }
    assert_eq!(half.memory_used(), before, "mapping takes no memory");
    let page = (bank::BYTES + bank::RING_BYTES * 64) as u64;
    rustix::io::pwrite(half.fd(), &[1], page).unwrap();
    assert!(half.memory_used() > before);
    assert!(half.release_pages(64));
    assert_eq!(half.memory_used(), before);
}

#[test]
fn half_whose_descriptor_the_program_has_replaced_is_not_mapped() {
    let half = Half::create("toehold-test", 1).unwrap();
    let mine = Half::open(dup(half.fd())).unwrap();
    mine.map(0).unwrap();
    let other = memfd(4096, SealFlags::empty());
    // The program makes another file of the number, as after `closefrom` and `open`.
    let mut number = std::mem::ManuallyDrop::new(dup(half.fd()));
    let replaced = std::os::fd::AsRawFd::as_raw_fd(&mine.fd());
    // SAFETY: the number is that of a descriptor of `mine`, which closes whatever it stands for.
    unsafe { std::ptr::write(&mut *number, std::os::fd::FromRawFd::from_raw_fd(replaced)) };
    rustix::io::dup2(&other, &mut number).unwrap();
    assert_eq!(mine.map(64).unwrap_err(), MemoryError::Closed);
    assert!(!mine.release_pages(0));
    mine.map(1).unwrap();
}

/// KiB of memory that this process has locked and present.
fn locked_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssShmem:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

#[test]
fn half_mapped_in_a_process_that_locks_its_memory_stays_empty() {
    let _alone = crate::process::tests::alone();
    let status = crate::process::tests::forked(|| {
        if mlockall(MlockAllFlags::FUTURE).is_err() {
            return 1;
        }
        let before = locked_kib();
        let Ok(half) = Half::create("toehold-test", 1) else {
            return 1;
        };
        let mapped = half.map(0).is_ok();
        let grown = locked_kib() - before;
        let _ = munlockall();
        // One page is the header's.
        if mapped && grown <= 64 { 1 } else { 2 }
    });
    assert_eq!(status, 1);
}

#[test]
fn half_is_left_out_of_core_dumps() {
    let half = Half::create("toehold-undumped", 1).unwrap();
    half.map(0).unwrap();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut flags = Vec::new();
    for line in maps.lines() {
        if line.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) {
            inside = line.contains("toehold-undumped");
        } else if inside && line.starts_with("VmFlags:") {
            flags.push(line.to_owned());
        }
    }
    assert_eq!(flags.len(), 2);
    assert!(flags.iter().all(|flags| flags.contains(" dd")), "{flags:?}");
}
