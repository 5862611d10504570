//! The ports of the connecting ends of direct connections.
//!
//! A node with direct connections shares its ephemeral ports out: the stack has the lower half,
//! direct connections the upper one. So none of them needs the lease for a port, and no connection
//! over TCP has the four ends of a direct one.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use toehold_shm::{Carver, OutOfMemory, Words};
use toehold_stack::TcpConfig;

/// Processes of a node, at most.
const PROCESSES: usize = 1 << 13;

/// Ports between the beginnings of two processes' searches.
const APART: usize = 64;

/// The ports of each process: in the region of a node's first shard, outside of the lease.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    first: u16,
    owners: Words<AtomicU32>,
    /// Where the next search of each process begins: a hint.
    next: Words<AtomicU32>,
}

impl Ports {
    pub(crate) fn bytes_needed(stack: &TcpConfig) -> usize {
        Words::bytes_needed(ports(stack).len()) + Words::bytes_needed(PROCESSES)
    }

    /// The ports of a node whose stack has these settings.
    pub(crate) fn create(carver: &mut Carver, stack: &TcpConfig) -> Result<Ports, OutOfMemory> {
        let ports = ports(stack);
        Ok(Ports {
            first: ports.start,
            owners: carver.words(ports.len())?,
            next: carver.words(PROCESSES)?,
        })
    }

    fn owner(&self, port: u16) -> Option<&AtomicU32> {
        self.owners.get(usize::from(port.checked_sub(self.first)?))
    }

    /// Takes a free port for a process, never 0. Returns `None` if none is left.
    pub(crate) fn take(&self, process: u16) -> Option<u16> {
        let count = self.owners.len();
        let home = usize::from(process).wrapping_mul(APART).checked_rem(count)?;
        let next = self.next.get(usize::from(process) % PROCESSES)?;
        let begin = home + next.load(Relaxed) as usize;
        let search = (0..count).map(|step| (begin + step) % count);
        for place in search {
            let owner = self.owners.get(place)?;
            let is_free = owner.load(Relaxed) == 0;
            if is_free && owner.compare_exchange(0, process.into(), AcqRel, Relaxed).is_ok() {
                let after = (place + 1 + count - home) % count;
                next.store(after as u32, Relaxed);
                return Some(self.first + place as u16);
            }
        }
        None
    }

    /// Ports that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        let owners = (0..self.owners.len()).filter_map(|place| self.owners.get(place));
        owners.filter(|owner| owner.load(Relaxed) != 0).count()
    }

    /// Gives a port back that a process has. Returns `false` if it is not that process's: another
    /// one may have it by now.
    pub(crate) fn free(&self, port: u16, process: u16) -> bool {
        self.change(port, process, 0)
    }

    fn change(&self, port: u16, from: u16, to: u16) -> bool {
        let owner = self.owner(port);
        owner.is_some_and(|owner| {
            owner
                .compare_exchange(from.into(), to.into(), AcqRel, Relaxed)
                .is_ok()
        })
    }

    /// The ports that a process has. For the engine, after the end of the process.
    pub(crate) fn of(&self, process: u16) -> Vec<u16> {
        let ports = (self.first..).take(self.owners.len());
        let is_its = |port: &u16| {
            let owner = self.owner(*port).map(|owner| owner.load(Acquire));
            owner == Some(process.into())
        };
        ports.filter(is_its).collect()
    }

    /// Lets a port that a process has be another process's. Returns `false` if it is not the first
    /// one's.
    pub(crate) fn hand_over(&self, port: u16, from: u16, to: u16) -> bool {
        self.change(port, from, to)
    }
}

/// Takes the upper half of a stack's ephemeral ports for direct connections.
pub(crate) fn share_out(stack: &mut TcpConfig) {
    let half = stack.ephemeral_last.saturating_sub(stack.ephemeral_first) / 2;
    stack.ephemeral_last -= half;
}

/// The ports of direct connections, if the stack has the lower half.
fn ports(stack: &TcpConfig) -> Range<u16> {
    let first = stack.ephemeral_last.saturating_add(1);
    // As many as the stack has but one, or two if it had an odd number.
    let count = stack.ephemeral_last.saturating_sub(stack.ephemeral_first);
    let count = count.saturating_sub(1);
    first..first.saturating_add(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toehold_shm::Region;

    use super::*;

    const FIRST: u16 = 46_884;
    const COUNT: usize = 14_115;

    fn ports() -> Ports {
        let mut stack = TcpConfig::default();
        share_out(&mut stack);
        assert_eq!((stack.ephemeral_first, stack.ephemeral_last), (32_768, FIRST));
        let region = Region::private(Ports::bytes_needed(&stack)).unwrap();
        Ports::create(&mut Carver::new(region).unwrap(), &stack).unwrap()
    }

    #[test]
    fn ports_are_given_once_each_until_none_is_left() {
        let ports = ports();
        let all = ports.owners.len();
        let taken: BTreeSet<u16> = (0..all)
            .map(|at| ports.take(2 + (at % 3) as u16).unwrap())
            .collect();
        let first = FIRST + 1;
        assert_eq!(
            taken.into_iter().collect::<Vec<_>>(),
            (first..first + all as u16).collect::<Vec<_>>()
        );
        assert_eq!((all, first as usize + all), (COUNT, 61_000));
        assert_eq!(ports.take(2), None);
        let owner = ports.owner(first + 77).unwrap().load(Relaxed) as u16;
        assert!(!ports.free(first + 77, 9) && ports.free(first + 77, owner));
        assert_eq!(ports.take(9), Some(first + 77));
    }

    #[test]
    fn port_that_was_freed_is_not_the_next_one_taken() {
        let ports = ports();
        let first = ports.take(2).unwrap();
        ports.free(first, 2);
        let second = ports.take(2).unwrap();
        assert_ne!(first, second);
        // Another process begins elsewhere.
        assert!(ports.take(3).unwrap() > second + 32);
    }

    #[test]
    fn ports_of_a_process_are_found_and_handed_over() {
        let ports = ports();
        let taken = [(); 3].map(|()| ports.take(5).unwrap());
        ports.take(6).unwrap();
        assert_eq!(ports.of(5), taken);
        assert!(ports.hand_over(taken[1], 5, 1) && !ports.hand_over(taken[1], 5, 1));
        assert_eq!((ports.of(5).len(), ports.of(1)), (2, vec![taken[1]]));
        for nonsense in [0, 80, FIRST, u16::MAX] {
            assert!(!ports.free(nonsense, 0) && !ports.hand_over(nonsense, 0, 5));
        }
        assert_eq!(ports.of(5).len(), 2);
    }
}
