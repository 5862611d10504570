//! The bytes of a disk, in memory. Blocks of zeros are not kept.

/// Bytes of the largest disk: 1 TiB.
pub const MOST_BYTES: u64 = 1 << 40;

const BLOCK: usize = 4096;

/// Blocks that one table of blocks has.
const GROUP: usize = 512;

type Block4K = Box<[u8; BLOCK]>;

/// Tables are made where blocks are: a disk that is empty takes 4 bytes a mebibyte.
type BlockTable = Box<[Option<Block4K>; GROUP]>;

/// The bytes of a disk.
///
/// ```
/// let mut image = toehold_disk::DiskImage::new(1 << 30).unwrap();
/// image.write(4000, &[7; 200]);
/// image.write(8192, &[0; 4096]);
/// assert_eq!(image.kept_bytes(), 8192);
/// let mut read = [1; 3];
/// image.read(4199, &mut read);
/// assert_eq!(read, [7, 0, 0]);
/// ```
#[derive(Debug)]
pub struct DiskImage {
    size: u64,
    tables: Vec<Option<BlockTable>>,
    kept: u64,
}

/// The part of a run of bytes that lies in one block.
struct InBlock {
    table: usize,
    entry: usize,
    begin: usize,
    end: usize,
}

impl InBlock {
    /// The first part of `bytes` bytes from `offset`.
    fn first(offset: u64, bytes: usize) -> Self {
        let block = (offset / BLOCK as u64) as usize;
        let begin = (offset % BLOCK as u64) as usize;
        Self {
            table: block / GROUP,
            entry: block % GROUP,
            begin,
            end: (begin + bytes).min(BLOCK),
        }
    }
}

impl DiskImage {
    /// Makes an image of `size` bytes, all zero. Returns `None` if the size is 0, no multiple of
    /// 4096, or above [`MOST_BYTES`].
    pub fn new(size: u64) -> Option<Self> {
        if size == 0 || size > MOST_BYTES || !size.is_multiple_of(BLOCK as u64) {
            return None;
        }
        let tables = size.div_ceil((BLOCK * GROUP) as u64) as usize;
        Some(Self {
            size,
            tables: std::iter::repeat_with(|| None).take(tables).collect(),
            kept: 0,
        })
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that blocks take.
    pub fn kept_bytes(&self) -> u64 {
        self.kept * BLOCK as u64
    }

    /// Returns how many of `bytes` bytes from `offset` lie on the disk.
    pub fn within(&self, offset: u64, bytes: u64) -> u64 {
        bytes.min(self.size.saturating_sub(offset))
    }

    /// Fills `into` with the bytes from `offset`. Bytes beyond the end of the disk are zero.
    pub fn read(&self, mut offset: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let part = InBlock::first(offset, into.len());
            let (now, rest) = into.split_at_mut(part.end - part.begin);
            let table = self.tables.get(part.table).and_then(Option::as_ref);
            match table.and_then(|table| table[part.entry].as_ref()) {
                Some(block) => now.copy_from_slice(&block[part.begin..part.end]),
                None => now.fill(0),
            }
            offset += now.len() as u64;
            into = rest;
        }
    }

    /// Writes bytes from `offset`. Bytes beyond the end of the disk are left out.
    pub fn write(&mut self, mut offset: u64, from: &[u8]) {
        let inside = self.within(offset, from.len() as u64) as usize;
        let mut from = &from[..inside];
        while !from.is_empty() {
            let part = InBlock::first(offset, from.len());
            let (now, rest) = from.split_at(part.end - part.begin);
            self.write_block(&part, now);
            offset += now.len() as u64;
            from = rest;
        }
    }

    fn write_block(&mut self, part: &InBlock, bytes: &[u8]) {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        let table = &mut self.tables[part.table];
        if is_zero && table.is_none() {
            return;
        }
        let table = table.get_or_insert_with(|| Box::new([const { None }; GROUP]));
        let entry = &mut table[part.entry];
        if is_zero && (entry.is_none() || bytes.len() == BLOCK) {
            self.kept -= u64::from(entry.take().is_some());
            return;
        }
        let block = entry.get_or_insert_with(|| {
            self.kept += 1;
            Box::new([0; BLOCK])
        });
        block[part.begin..part.end].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An image holds what a plain buffer of bytes holds.
        #[test]
        fn image_agrees_with_a_buffer(writes in prop::collection::vec((0u64..20_000, 0usize..9000, 0u8..3), 1..20)) {
            let size = 5 * BLOCK;
            let mut image = DiskImage::new(size as u64).unwrap();
            let mut plain = vec![0; size];
            for (offset, bytes, value) in writes {
                let data = vec![value; bytes];
                image.write(offset, &data);
                let end = (offset as usize + bytes).min(size);
                if (offset as usize) < end {
                    plain[offset as usize..end].fill(value);
                }
                let mut read = vec![9; size];
                image.read(0, &mut read);
                prop_assert_eq!(&read, &plain);
                let used = plain.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0)).count();
                prop_assert!(image.kept_bytes() >= (used * BLOCK) as u64);
            }
            image.write(0, &vec![0; size]);
            prop_assert_eq!(image.kept_bytes(), 0);
        }
    }

    #[test]
    fn size_out_of_range_is_refused() {
        for size in [0, 4095, 4097, MOST_BYTES + 4096, u64::MAX] {
            assert!(DiskImage::new(size).is_none(), "{size}");
        }
    }

    #[test]
    fn request_beyond_the_end_is_cut() {
        let mut image = DiskImage::new(8192).unwrap();
        assert_eq!(image.within(8000, 4096), 192);
        assert_eq!(image.within(u64::MAX, u64::MAX), 0);
        image.write(8190, &[1; 10]);
        image.write(u64::MAX, &[1; 10]);
        let mut read = [9; 4];
        image.read(8190, &mut read);
        assert_eq!(read, [1, 1, 0, 0]);
    }
}
