//! Pages that no block in use needs go back to the system.

use super::{FREE, Head, Payload};
use crate::arena::ArenaId;

impl Payload {
    /// Resets an arena, as if none of its blocks had ever been in use.
    pub(super) fn reset(&mut self, place: usize, life: ArenaId) {
        let before = self.heads[place].touched;
        self.heads[place] = Head {
            life,
            ..Head::default()
        };
        self.heads[0].touched_total = self.heads[0].touched_total.saturating_sub(before);
    }

    /// Returns the pages of an arena without blocks in use to the system.
    #[cold]
    pub(super) fn discard_all(&mut self, place: usize) {
        let Head {
            touched, used, life, ..
        } = self.heads[place];
        if used == 0
            && touched > 0
            && self
                .arenas
                .discard(place - 1, 0, (touched as usize) << self.shift)
        {
            self.reset(place, life);
        }
    }

    /// Whether to call [`Payload::discard_unused`]: more blocks may have pages than private memory
    /// has.
    #[inline]
    pub fn wants_discard(&self) -> bool {
        self.heads[0].touched_total > self.private
    }

    /// Returns unused pages to the system: those of closed arenas. If private memory and all arenas
    /// together have more pages than private memory may, it also returns theirs. Only the process
    /// that maps all arenas calls this, now and then.
    pub fn discard_unused(&mut self) {
        for place in 1..self.heads.len() {
            let (life, is_open) = self.arenas.life(place - 1);
            if is_open {
                continue;
            }
            if self.heads[place].life == life {
                self.discard_all(place);
            }
            if self.touched_of(place) == 0 {
                self.arenas.unmap(place - 1);
            }
        }
        if self.wants_discard() {
            (0..self.heads.len()).rev().for_each(|place| self.shrink(place));
        }
    }

    /// Returns the pages of free blocks. Those behind the last block in use count as never touched.
    fn shrink(&mut self, place: usize) {
        let (first, touched) = (self.span(place).0, self.touched_of(place));
        let end = first + touched;
        let is_free = |block: u32| self.links[block as usize] & FREE != 0;
        let mut block = first;
        while block < end {
            let run = (block..end).take_while(|&block| is_free(block)).count();
            let (offset, len) = (((block - first) as usize) << self.shift, run << self.shift);
            let is_done = match place.checked_sub(1) {
                _ if run == 0 => true,
                None => self.area.region().discard(self.area_offset + offset, len),
                Some(arena) => self.arenas.discard(arena, offset, len),
            };
            if !is_done {
                return;
            }
            block += run as u32 + 1;
        }
        let used_to = (first..end).rev().find(|&block| !is_free(block));
        let used_to = used_to.map_or(0, |last| last - first + 1);
        let mut free = 0;
        for block in (first..first + used_to).rev() {
            if let Some(link) = self
                .links
                .get_mut(block as usize)
                .filter(|link| **link & FREE != 0)
            {
                *link = FREE | free;
                free = block + 1;
            }
        }
        let head = &mut self.heads[place];
        (head.free, head.touched) = (free, used_to);
        (head.retired_first, head.retired_last, head.retired) = (0, 0, 0);
        let total = &mut self.heads[0].touched_total;
        *total = total.saturating_sub(touched - used_to);
    }
}
