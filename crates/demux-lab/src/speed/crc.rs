//! A hash without a key, as an example of a hash that tables must not use.

use std::hash::{BuildHasher, Hasher};

/// CRC-32C with a possibly secret initial value, spread over the bits that hash
/// maps use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crc(u32);

/// Odd multiplier that spreads the CRC. The product can be inverted.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Crc {
    pub(super) fn new(beginning: u32) -> Self {
        Self(beginning)
    }

    /// Returns the CRC from which a hash was made.
    pub(super) fn unspread(hash: u64) -> u32 {
        // Inverts an odd number: each step doubles the number of right bits.
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

/// CRC of each byte.
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
    fn crc_matches_rfc_3720() {
        // Appendix B.4: 32 bytes of zeroes, with a CRC inverted at both ends.
        let mut crc = Crc::new(!0);
        crc.write(&[0; 32]);
        assert_eq!((!crc.0).to_be_bytes(), [0x8a, 0x91, 0x36, 0xaa]);
        assert_eq!(Crc::unspread(crc.finish()), crc.0);
    }
}
