//! A keyed hash of four-tuples, made of AES rounds. It takes a few nanoseconds on processors with
//! AES instructions.
//!
//! Tables whose keys an attacker can choose use this hash, and never show it to another process.
//! The message consists of two blocks and a short third one. Each of the two blocks passes through
//! four rounds under its own keys. Their sum and the third block pass through four more rounds:
//!
//! ```text
//! hash = R4(R4(first, k0…k4) ⊕ R4(second, k5…k8) ⊕ third, k9…k12)
//! ```
//!
//! Under independent round keys, four rounds map a difference of blocks to another one with at most
//! 2⁻¹¹³ probability (Keliher and Sui, 2007). The sum is therefore a universal hash, as in
//! authentication codes of Minematsu and Tsunoo (FSE 2006). Two messages collide in it by chance
//! only, even if an attacker without the keys has chosen them. The last rounds hide the sum's
//! structure from the hash's bits. Fewer rounds, as in common hash maps, would save two
//! nanoseconds, and would have no such bound.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Round keys. They must be independent of one another: take them from a keyed hash, not from the
/// key schedule of AES.
pub const AES_KEYS: usize = 13;

/// Bytes of a message: two blocks, and four bytes.
pub const AES_MESSAGE: usize = 36;

/// A block or a round key.
type Block = [u8; 16];

/// A message: its first block, its second block, and the remaining bytes.
type Message = [u8; AES_MESSAGE];

/// The keys of the hash.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AesHash {
    keys: [Block; AES_KEYS],
}

impl core::fmt::Debug for AesHash {
    /// Never shows the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("AesHash")
    }
}

impl AesHash {
    /// The hash with these keys.
    pub const fn new(keys: [[u8; 16]; AES_KEYS]) -> Self {
        Self { keys }
    }

    /// Whether the processor has AES instructions. Without them the hash takes a microsecond.
    #[inline]
    pub fn is_fast() -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let fast = std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("avx");
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let fast = false;
        fast
    }

    /// The hash of a message.
    #[inline]
    pub fn hash(&self, message: &[u8; AES_MESSAGE]) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if Self::is_fast() {
            // SAFETY: `is_fast` has found that the processor has the AES instructions. They touch
            // no memory but their arguments.
            return unsafe { instructions::hash(&self.keys, message) };
        }
        portable::hash(&self.keys, message)
    }

    /// Hashes as many messages as `hashes` has places.
    #[inline]
    pub fn hash_each(&self, messages: &[[u8; AES_MESSAGE]], hashes: &mut [u64]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if Self::is_fast() {
            // SAFETY: `is_fast` has found that the processor has the AES instructions. They touch
            // no memory but their arguments.
            return unsafe { instructions::hash_each(&self.keys, messages, hashes) };
        }
        for (message, hash) in messages.iter().zip(hashes) {
            *hash = portable::hash(&self.keys, message);
        }
    }
}

/// The hash by the processor's AES instructions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod instructions {
    use core::arch::x86_64::{
        __m128i, _mm_aesenc_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_setzero_si128,
        _mm_xor_si128,
    };

    use super::{AES_KEYS, Block, Message};

    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn load(bytes: &Block) -> __m128i {
        let number = u128::from_le_bytes(*bytes);
        _mm_set_epi64x((number >> 64) as i64, number as i64)
    }

    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn rounds<const FROM: usize, const TO: usize>(keys: &[Block; AES_KEYS], block: __m128i) -> __m128i {
        let mut block = block;
        for key in &keys[FROM..TO] {
            block = _mm_aesenc_si128(block, load(key));
        }
        block
    }

    #[target_feature(enable = "aes,avx")]
    pub(super) fn hash(keys: &[Block; AES_KEYS], message: &Message) -> u64 {
        let ([first, second], third) = super::parts(message);
        let first = _mm_xor_si128(load(first), load(&keys[0]));
        let second = _mm_xor_si128(load(second), load(&keys[5]));
        let first = rounds::<1, 5>(keys, first);
        let second = rounds::<6, 9>(keys, second);
        // The key of the second block's last round would only add one more key to the sum.
        let second = _mm_aesenc_si128(second, _mm_setzero_si128());
        let third = _mm_cvtsi32_si128(i32::from_le_bytes(third));
        let sum = _mm_xor_si128(_mm_xor_si128(first, second), third);
        _mm_cvtsi128_si64(rounds::<9, 13>(keys, sum)) as u64
    }

    /// Hashes one message after the other: the processor overlaps their rounds.
    #[target_feature(enable = "aes,avx")]
    pub(super) fn hash_each(keys: &[Block; AES_KEYS], messages: &[Message], hashes: &mut [u64]) {
        for (message, hash) in messages.iter().zip(hashes) {
            *hash = self::hash(keys, message);
        }
    }
}

/// Two blocks, and the remaining bytes.
#[inline]
fn parts(message: &Message) -> ([&Block; 2], [u8; 4]) {
    let (blocks, rest) = message.as_chunks();
    let rest = [rest[0], rest[1], rest[2], rest[3]];
    ([&blocks[0], &blocks[1]], rest)
}

/// The hash for processors without AES instructions, and for tests.
mod portable {
    use super::{AES_KEYS, Block, Message};

    pub(super) fn hash(keys: &[Block; AES_KEYS], message: &Message) -> u64 {
        let ([first, second], third) = super::parts(message);
        let none = [0; 16];
        let mut block = xor(*first, &keys[0]);
        for key in &keys[1..5] {
            block = round(&block, key);
        }
        let mut sum = block;
        block = xor(*second, &keys[5]);
        for key in keys[6..9].iter().chain([&none]) {
            block = round(&block, key);
        }
        sum = xor(sum, &block);
        for (byte, other) in sum.iter_mut().zip(third) {
            *byte ^= other;
        }
        for key in &keys[9..] {
            sum = round(&sum, key);
        }
        u128::from_le_bytes(sum) as u64
    }

    fn xor(mut block: Block, with: &Block) -> Block {
        for (byte, other) in block.iter_mut().zip(with) {
            *byte ^= other;
        }
        block
    }

    /// SubBytes, ShiftRows, MixColumns and AddRoundKey (FIPS 197 §5.1), on columns in memory order.
    pub(super) fn round(block: &Block, key: &Block) -> Block {
        let shifted: Block = core::array::from_fn(|at| substituted(block[(at + 4 * (at % 4)) % 16]));
        let mixed: Block = core::array::from_fn(|at| {
            let column = &shifted[at / 4 * 4..][..4];
            let [a, b, c, d] = core::array::from_fn(|row| column[(at + row) % 4]);
            doubled(a) ^ doubled(b) ^ b ^ c ^ d
        });
        xor(mixed, key)
    }

    /// Doubles an element of AES's field.
    fn doubled(byte: u8) -> u8 {
        (byte << 1) ^ ((byte >> 7) * 0x1b)
    }

    fn product(a: u8, b: u8) -> u8 {
        let (mut sum, mut a) = (0, a);
        for bit in 0..8 {
            sum ^= (b >> bit & 1) * a;
            a = doubled(a);
        }
        sum
    }

    /// AES's S-box: the inverse in its field, and an affine map.
    fn substituted(byte: u8) -> u8 {
        // The inverse is the 254th power.
        let (mut inverse, mut square) = (1, byte);
        for _ in 0..7 {
            square = product(square, square);
            inverse = product(inverse, square);
        }
        let turned = |by| inverse.rotate_left(by);
        inverse ^ turned(1) ^ turned(2) ^ turned(3) ^ turned(4) ^ 0x63
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered<const N: usize>(from: u8) -> [u8; N] {
        core::array::from_fn(|at| (at as u8).wrapping_mul(7).wrapping_add(from))
    }

    fn hasher() -> AesHash {
        AesHash::new(core::array::from_fn(|at| numbered((at as u8).wrapping_mul(31))))
    }

    /// FIPS 197, appendix B: the first round of its example.
    #[test]
    fn round_matches_fips_197() {
        let block = u128::to_be_bytes(0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808);
        let key = u128::to_be_bytes(0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605);
        let expected = u128::to_be_bytes(0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049);
        assert_eq!(portable::round(&block, &key), expected);
    }

    #[test]
    fn instructions_and_portable_code_agree() {
        let messages: Vec<[u8; AES_MESSAGE]> = (0..40).map(numbered).collect();
        let hasher = hasher();
        let mut hashes = [0; 40];
        hasher.hash_each(&messages, &mut hashes);
        for (message, hash) in messages.iter().zip(hashes) {
            assert_eq!(hasher.hash(message), hash);
            assert_eq!(portable::hash(&hasher.keys, message), hash);
        }
    }

    /// Each bit changes about half of the bits of the hash.
    #[test]
    fn every_bit_of_message_and_key_changes_hash() {
        let (hasher, message) = (hasher(), numbered(1));
        let hash = hasher.hash(&message);
        let mut changed = 0;
        for bit in 0..AES_MESSAGE * 8 {
            let mut other = message;
            other[bit / 8] ^= 1 << (bit % 8);
            let differ = (hasher.hash(&other) ^ hash).count_ones();
            assert!((8..56).contains(&differ), "bit {bit}: {differ}");
            changed += differ;
        }
        let mean = f64::from(changed) / (AES_MESSAGE * 8) as f64;
        assert!((31.0..33.0).contains(&mean), "{mean}");
        // The hash leaves out half of the last block, and with it half of the last two keys' bits.
        for bit in 0..(AES_KEYS - 2) * 128 {
            let mut other = hasher;
            other.keys[bit / 128][bit / 8 % 16] ^= 1 << (bit % 8);
            assert_ne!(other.hash(&message), hash, "bit {bit} of the keys");
        }
    }
}
