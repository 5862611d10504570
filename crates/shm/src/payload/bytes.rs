//! The bytes of blocks.

use core::ptr::NonNull;

use super::Payload;
use crate::channel::SharedBytes;

impl Payload {
    /// The bytes of a block, for a caller that uses the memory alone.
    ///
    /// # Panics
    ///
    /// If there is no such block, or if this process does not map it.
    #[inline]
    pub fn bytes(&self, block: u32) -> &[u8] {
        let first = self.first(block).expect("the block is mapped");
        // SAFETY: the block stays mapped as long as `self` is borrowed, since an arena's mapping is
        // replaced only while none of its blocks is in use.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.block_len()) }
    }

    /// The bytes of a block, for a caller that uses the memory alone.
    ///
    /// # Panics
    ///
    /// If there is no such block, or if this process does not map it.
    #[inline]
    pub fn bytes_mut(&mut self, block: u32) -> &mut [u8] {
        let first = self.first(block).expect("the block is mapped");
        // SAFETY: the block stays mapped as long as `self` is borrowed; `&mut self` makes the
        // reference the only one in this process.
        unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), self.block_len()) }
    }

    /// The address of a block. `None` if there is no such block, or if this process does not map
    /// it.
    #[inline]
    fn first(&self, block: u32) -> Option<NonNull<u8>> {
        let (from, within) = match block.checked_sub(self.private) {
            None => (self.area.first(), block),
            Some(beyond) => {
                let arena = self.arenas.first((beyond >> self.arena_shift) as usize)?;
                (arena, beyond & ((1 << self.arena_shift) - 1))
            }
        };
        // SAFETY: private blocks lie in the area, and the blocks of an arena in its mapping, which
        // has room for all of them.
        Some(unsafe { from.add((within as usize) << self.shift) })
    }

    /// Whether this process maps a block.
    #[inline]
    pub fn is_mapped(&self, block: u32) -> bool {
        block < self.private || self.first(block).is_some()
    }

    /// The address of some bytes of a block. `None` if there is no such block, or if this process
    /// does not map it. The bytes stay mapped as long as `self` is borrowed: an arena's mapping is
    /// replaced only while none of its blocks is in use.
    ///
    /// This is an address and not a reference, because other processes may access the memory at the
    /// same time. These are the arena's peer, or a faulty process of the node.
    ///
    /// # Panics
    ///
    /// If a block is shorter.
    #[inline]
    pub(crate) fn part(&self, block: u32, within: usize, len: usize) -> Option<NonNull<u8>> {
        assert!(within <= self.block_len() && len <= self.block_len() - within);
        let first = self.first(block)?;
        // SAFETY: `within` and `len` lie in one block, so the address stays in the same mapping.
        Some(unsafe { first.add(within) })
    }

    /// The bytes of all blocks, for threads that use some of them without the lease.
    pub(crate) fn share(&self) -> SharedBytes {
        SharedBytes::new(
            (self.area.first(), self.area.len()),
            (self.arenas.clone(), self.arena_shift),
            self.shift,
            self.area.region(),
        )
    }

    /// Copies `len` bytes from one place to another; both may lie in one block. False, without any
    /// change, if this process does not map both.
    ///
    /// # Panics
    ///
    /// If either does not lie in one block.
    pub(crate) fn copy_within(&mut self, from: (u32, usize), to: (u32, usize), len: usize) -> bool {
        let start = |(block, offset): (u32, usize)| Some(self.part(block, offset, len)?.as_ptr());
        let (Some(from), Some(to)) = (start(from), start(to)) else {
            return false;
        };
        // SAFETY: both places lie in mapped blocks, borrowed mutably. The first branch is taken
        // only if they do not overlap.
        unsafe {
            if from.addr().abs_diff(to.addr()) >= len {
                crate::copy::copy(from, to, len);
            } else {
                core::ptr::copy(from, to, len);
            }
        }
        true
    }
}
