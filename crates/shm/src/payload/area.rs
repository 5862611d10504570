//! Where the blocks lie, for readers that map the region elsewhere.

use std::sync::Arc;

use super::Payload;
use crate::Region;

impl Payload {
    /// The area of the blocks, for other processes.
    pub fn area(&self) -> PayloadArea {
        PayloadArea {
            first: self.area.as_ptr().addr(),
            len: self.area.len(),
            offset: self.area_offset,
            region: self.area.region(),
        }
    }
}

/// The area of a [`Payload`]'s blocks in its region. It turns an address into a reference for
/// readers that map the region elsewhere.
#[derive(Debug, Clone)]
pub struct PayloadArea {
    region: Arc<Region>,
    /// Address of the first block in this process.
    first: usize,
    len: usize,
    offset: usize,
}

impl PayloadArea {
    /// The offset of the `len` bytes at `address` from the start of the *region*. `None` unless all
    /// of them lie in payload memory. The other side finds them with [`Region::gather`].
    #[inline]
    pub fn offset_of(&self, address: *const u8, len: usize) -> Option<u64> {
        let inside = address.addr().wrapping_sub(self.first);
        let fits = inside <= self.len && len <= self.len - inside;
        fits.then(|| (self.offset + inside) as u64)
    }

    /// The region of the blocks.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Bytes from the start of the region to the first block.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of all blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
