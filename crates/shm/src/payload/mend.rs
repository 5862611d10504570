//! Repair of the lists of free blocks after a process died in the middle of a change.

use super::{FREE, Payload};

/// A chain of blocks, each + 1; 0 if there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chain {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) blocks: u32,
}

impl Payload {
    /// Repairs the memory after a process died in the middle of a change. Keeps all blocks that are
    /// marked in `owned`, and frees those that were free. Returns a chain of the blocks in no
    /// queue; see [`ByteQueue::claim_blocks`](crate::ByteQueue::claim_blocks). Takes time in
    /// proportion to the most blocks that were ever in use.
    pub fn mend(&mut self, owned: &[bool]) -> Chain {
        let mut stray = Chain::default();
        let (mut total, mut touched) = (0, 0);
        for place in (0..self.heads.len()).rev() {
            self.mend_place(place, owned, &mut stray);
            total += self.heads[place].used;
            touched += self.touched_of(place);
        }
        (self.heads[0].total, self.heads[0].touched_total) = (total, touched);
        stray
    }

    fn mend_place(&mut self, place: usize, owned: &[bool], stray: &mut Chain) {
        let (first, _) = self.span(place);
        let (mut free, mut used) = (0, 0);
        for block in (first..first + self.touched_of(place)).rev() {
            let number = block + 1;
            let block = block as usize;
            if owned.get(block).is_some_and(|&owned| owned) {
                used += 1;
            } else if self.links[block] & FREE != 0 {
                self.links[block] = FREE | free;
                free = number;
            } else {
                used += 1;
                self.links[block] = stray.first;
                if stray.blocks == 0 {
                    stray.last = number;
                }
                stray.first = number;
                stray.blocks += 1;
            }
        }
        let head = &mut self.heads[place];
        (head.free, head.used) = (free, used);
        (head.retired_first, head.retired_last, head.retired) = (0, 0, 0);
        if place > 0 {
            self.arenas.note_used(place - 1, used);
        }
    }

    /// Leaves the lists of free blocks in a state that no complete change leaves.
    #[cfg(test)]
    pub(crate) fn disturb(&mut self) {
        let head = &mut self.heads[0];
        (head.free, head.used, head.retired_last, head.retired) = (head.touched, 7, 1, 5);
    }
}
