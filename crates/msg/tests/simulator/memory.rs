//! The memory of a simulated program.

use std::collections::HashMap;
use toehold_msg::endpoint::{ProgramBuffer, ProgramMemory};

/// Buffers by address. An access outside of a buffer fails the test.
#[derive(Debug, Default)]
pub struct TestMemory {
    buffers: HashMap<u64, Vec<u8>>,
    next: u64,
    /// Addresses that can be neither read nor written.
    pub broken: Vec<u64>,
}

impl TestMemory {
    /// A buffer with this content.
    pub fn buffer(&mut self, content: Vec<u8>) -> ProgramBuffer {
        self.next += 1;
        let len = content.len() as u64;
        self.buffers.insert(self.next, content);
        ProgramBuffer {
            address: self.next,
            len,
        }
    }

    /// Takes a buffer's content away. A later access fails the test.
    pub fn take(&mut self, buffer: ProgramBuffer) -> Vec<u8> {
        self.buffers.remove(&buffer.address).expect("a buffer")
    }

    fn range(buffer: ProgramBuffer, offset: u64, len: usize) -> std::ops::Range<usize> {
        let end = offset.checked_add(len as u64).expect("no overflow");
        assert!(
            end <= buffer.len,
            "bytes {offset}..{end} of {} are accessed",
            buffer.len
        );
        offset as usize..end as usize
    }
}

impl ProgramMemory for TestMemory {
    fn fetch(&mut self, buffer: ProgramBuffer, offset: u64, into: &mut [u8]) -> bool {
        let range = Self::range(buffer, offset, into.len());
        let content = self
            .buffers
            .get(&buffer.address)
            .expect("a send's buffer is read after its end");
        into.copy_from_slice(&content[range]);
        !self.broken.contains(&buffer.address)
    }

    fn place(&mut self, buffer: ProgramBuffer, offset: u64, bytes: &[u8]) -> bool {
        let range = Self::range(buffer, offset, bytes.len());
        let content = self.buffers.get_mut(&buffer.address);
        let content = content.expect("a receive's buffer is written after its end");
        content[range].copy_from_slice(bytes);
        !self.broken.contains(&buffer.address)
    }
}
