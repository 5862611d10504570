//! A hash without a key, as an example of what hash tables must not have.

use std::hash::{BuildHasher, Hasher};

/// CRC-32C from a beginning that may be secret, spread over the bits that hash maps look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crc(u32);

/// Spreads the CRC, and can be undone.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Crc {
    pub(super) fn new(beginning: u32) -> Self {
        Self(beginning)
    }

    /// The CRC that a hash was made of.
    pub(super) fn unspread(hash: u64) -> u32 {
        // An odd number's inverse, each step doubling the bits that are right.
        let inverse = (0..6).fold(1_u64, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(SPREAD.wrapping_mul(inverse)))
        });
        hash.wrapping_mul(inverse) as u32
    }
}

impl BuildHasher for Crc {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

/// What a byte changes in the CRC.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

impl Hasher for Crc {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 >> 8) ^ TABLE[usize::from(self.0 as u8 ^ byte)];
        }
    }

    fn finish(&self) -> u64 {
        u64::from(self.0).wrapping_mul(SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_of_rfc_3720() {
        // Appendix B.4 there: 32 bytes of zeroes. Its CRC begins and ends inverted.
        let mut crc = Crc::new(!0);
        crc.write(&[0; 32]);
        assert_eq!((!crc.0).to_be_bytes(), [0x8a, 0x91, 0x36, 0xaa]);
        assert_eq!(Crc::unspread(crc.finish()), crc.0);
    }
}
