//! Byte streams in which every byte follows from a seed and its offset. The
//! receiver can check a stream without keeping a copy.

/// An endless stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
}

/// A received byte that differs from the sent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the stream is {found:#04x} instead of {expected:#04x}")]
pub struct Corrupted {
    /// The byte's offset from the stream's beginning.
    pub offset: u64,
    /// The sent byte.
    pub expected: u8,
    /// The received byte.
    pub found: u8,
}

impl Stream {
    /// Creates the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns eight bytes of the stream by the index of their word.
    fn word(self, index: u64) -> [u8; 8] {
        let mut x = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)).to_le_bytes()
    }

    /// Returns one byte.
    pub fn byte(self, offset: u64) -> u8 {
        self.word(offset / 8)[(offset % 8) as usize]
    }

    /// Fills `buffer` with the bytes from `offset` on.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let skip = (offset % 8) as usize;
        let head = buffer.len().min((8 - skip) % 8);
        let (first, rest) = buffer.split_at_mut(head);
        first.copy_from_slice(&self.word(offset / 8)[skip..][..head]);
        let start = offset.div_ceil(8);
        for (index, chunk) in rest.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&self.word(start + index as u64)[..chunk.len()]);
        }
    }

    /// Compares bytes received at `offset` with the stream.
    ///
    /// # Errors
    ///
    /// The first byte that differs.
    pub fn check(self, offset: u64, bytes: &[u8]) -> Result<(), Corrupted> {
        let mut expected = [0; 256];
        for (index, chunk) in bytes.chunks(expected.len()).enumerate() {
            let start = offset + (index * expected.len()) as u64;
            let expected = &mut expected[..chunk.len()];
            self.fill(start, expected);
            if expected != chunk {
                return Err(first_difference(start, expected, chunk));
            }
        }
        Ok(())
    }
}

fn first_difference(start: u64, expected: &[u8], found: &[u8]) -> Corrupted {
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
    Corrupted {
        offset: start + at as u64,
        expected: expected[at],
        found: found[at],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_pieces_equal_whole_stream() {
        let stream = Stream::new(7);
        let mut whole = [0; 1000];
        stream.fill(3, &mut whole);
        for (start, len) in [(0, 1), (1, 7), (5, 20), (13, 400), (999, 1), (8, 0)] {
            let mut piece = vec![0; len];
            stream.fill(3 + start as u64, &mut piece);
            assert_eq!(piece, &whole[start..start + len]);
            assert!(
                piece
                    .first()
                    .is_none_or(|&byte| byte == stream.byte(3 + start as u64))
            );
        }
        assert_eq!(stream.check(3, &whole), Ok(()));
    }

    #[test]
    fn check_finds_wrong_byte() {
        let stream = Stream::new(7);
        let mut bytes = [0; 600];
        stream.fill(100, &mut bytes);
        bytes[501] ^= 0x10;
        let expected = stream.byte(601);
        let found = expected ^ 0x10;
        assert_eq!(
            stream.check(100, &bytes),
            Err(Corrupted {
                offset: 601,
                expected,
                found
            })
        );
    }
}
