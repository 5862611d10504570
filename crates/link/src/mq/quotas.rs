//! How many of a node's slots for peers a user and a process may have.
//!
//! A peer is a shard of a member, and a process can make as many members as it likes. Without
//! bounds one process would take all slots, and a member that joins later would have none.

use super::settings::MAX_PEERS;
use crate::steering::MAX_SHARDS;

/// Of a node's slots, one of so many is the last that a crowd can have: the slots beyond are for
/// processes that have few.
const LAST: usize = 8;

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    /// The process's user.
    pub(super) uid: u32,
    /// A number that tells it from others; `None` if the kernel does not tell.
    pub(super) process: Option<u64>,
}

impl Caller {
    /// Whether both are the same process for certain.
    pub(super) fn is_process_of(&self, other: &Caller) -> bool {
        self.process.is_some() && self.process == other.process
    }
}

/// Bounds of how many of a node's slots for peers one user and one process can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Most peers of one process.
    pub process: usize,
    /// Most peers of one user. `None` means all for the node's own user, and half of the slots for
    /// any other.
    pub user: Option<usize>,
}

impl Quotas {
    /// No bounds but that of the slots.
    pub const NONE: Quotas = Quotas {
        process: MAX_PEERS,
        user: Some(MAX_PEERS),
    };

    /// Whether a process may have one more of `slots`, of which `taken` have theirs. `own`: the
    /// node's user.
    pub(super) fn admit(
        &self,
        slots: usize,
        taken: impl Iterator<Item = Caller>,
        own: u32,
        caller: &Caller,
    ) -> bool {
        let user = match self.user {
            Some(user) => user,
            None if caller.uid == own => slots,
            None => (slots / 2).max(1),
        };
        let (mut count, mut of_user, mut of_process) = (0, 0, 0);
        for member in taken {
            count += 1;
            of_user += usize::from(member.uid == caller.uid);
            of_process += usize::from(member.is_process_of(caller));
        }
        let is_last = slots.saturating_sub(count) <= slots / LAST;
        let process = match is_last {
            // One node has room, whatever shards it has.
            true => self.process.min(MAX_SHARDS.into()),
            false => self.process,
        };
        of_user < user && (of_process < process || self.process >= MAX_PEERS)
    }

    /// Most handshakes under way with one process, of `most` with all.
    pub(super) fn handshakes(&self, most: usize) -> usize {
        match self.process >= MAX_PEERS {
            true => most,
            false => most / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;
    const SLOTS: usize = 256;
    const QUOTAS: Quotas = Quotas {
        process: 64,
        user: None,
    };

    fn caller(uid: u32, process: u64) -> Caller {
        Caller {
            uid,
            process: Some(process),
        }
    }

    /// How many slots each caller gets if all ask again and again, in turn.
    fn taken(quotas: Quotas, callers: &[Caller]) -> Vec<usize> {
        let mut taken = Vec::new();
        for _ in 0..2 * SLOTS {
            for caller in callers {
                if quotas.admit(SLOTS, taken.iter().copied(), OWN, caller) && taken.len() < SLOTS {
                    taken.push(*caller);
                }
            }
        }
        let count = |caller: &Caller| taken.iter().filter(|known| *known == caller).count();
        callers.iter().map(count).collect()
    }

    #[test]
    fn process_asking_for_all_slots_gets_its_quota() {
        assert_eq!(taken(QUOTAS, &[caller(OWN, 1)]), [64]);
        assert_eq!(taken(Quotas::NONE, &[caller(OWN, 1)]), [SLOTS]);
    }

    #[test]
    fn last_slots_go_to_processes_with_few() {
        let crowd: Vec<_> = (1..=4).map(|process| caller(OWN, process)).collect();
        let crowded = taken(QUOTAS, &crowd);
        assert_eq!(crowded.iter().sum::<usize>(), SLOTS - SLOTS / LAST);
        let slots: Vec<_> = crowd
            .iter()
            .zip(&crowded)
            .flat_map(|(caller, count)| [*caller].repeat(*count))
            .collect();
        let newcomer = caller(OWN, 99);
        assert!(QUOTAS.admit(SLOTS, slots.iter().copied(), OWN, &newcomer));
        assert!(!QUOTAS.admit(SLOTS, slots.iter().copied(), OWN, &crowd[0]));
    }

    #[test]
    fn nodes_of_one_user_fill_all_slots_with_a_process_each() {
        let nodes: Vec<_> = (1..=SLOTS as u64).map(|process| caller(OWN, process)).collect();
        assert_eq!(taken(QUOTAS, &nodes), vec![1; SLOTS]);
    }

    #[test]
    fn another_user_gets_half_by_default() {
        let nodes: Vec<_> = (1..=SLOTS as u64).map(|process| caller(7, process)).collect();
        let all = |quotas| taken(quotas, &nodes).iter().sum::<usize>();
        assert_eq!(all(QUOTAS), SLOTS / 2);
        let user = Some(10);
        assert_eq!(all(Quotas { user, ..QUOTAS }), 10);
        assert_eq!(all(Quotas::NONE), SLOTS);
    }

    #[test]
    fn indistinguishable_processes_share_quota_of_their_user() {
        let hidden = Caller {
            uid: OWN,
            process: None,
        };
        assert!(!hidden.is_process_of(&hidden));
        assert_eq!(taken(QUOTAS, &[hidden]), [SLOTS]);
    }
}
