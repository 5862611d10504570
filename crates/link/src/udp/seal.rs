//! The authentication tag of each datagram, made with a pre-shared key.
//!
//! The tag is BLAKE3 in its keyed mode, cut to 128 bits. It needs no nonce, which a
//! restarted node could not guarantee to be unique.

use super::header::{HEADER_LEN, TAG_LEN};

/// Context that derives this protocol's key from a pre-shared key.
const CONTEXT: &str = "toehold 2026 ethernet over udp, version 1, datagram tag";

/// Makes and checks tags.
#[derive(Clone)]
pub(super) struct Seal {
    key: [u8; 32],
}

impl core::fmt::Debug for Seal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub(super) fn new(pre_shared: &[u8; 32]) -> Seal {
        Seal {
            key: blake3::derive_key(CONTEXT, pre_shared),
        }
    }

    /// Writes the tag of a datagram, which has room for it behind its header.
    pub(super) fn close(&self, datagram: &mut [u8]) {
        let tag = self.tag(datagram);
        datagram[HEADER_LEN..HEADER_LEN + TAG_LEN].copy_from_slice(&tag);
    }

    /// Returns whether the tag is right, in constant time.
    pub(super) fn is_intact(&self, datagram: &[u8]) -> bool {
        let Some(found) = datagram.get(HEADER_LEN..HEADER_LEN + TAG_LEN) else {
            return false;
        };
        let widened = |tag: &[u8]| {
            let mut bytes = [0; 32];
            bytes[..TAG_LEN].copy_from_slice(tag);
            blake3::Hash::from_bytes(bytes)
        };
        // Hashes are compared in constant time.
        widened(found) == widened(&self.tag(datagram))
    }

    fn tag(&self, datagram: &[u8]) -> [u8; TAG_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&datagram[..HEADER_LEN]);
        hasher.update(&datagram[HEADER_LEN + TAG_LEN..]);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_LEN]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_covers_every_bit() {
        let seal = Seal::new(&[7; 32]);
        let mut datagram = vec![3; HEADER_LEN + TAG_LEN + 20];
        seal.close(&mut datagram);
        assert!(seal.is_intact(&datagram));
        assert!(!Seal::new(&[8; 32]).is_intact(&datagram));
        for bit in 0..datagram.len() * 8 {
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!seal.is_intact(&changed), "bit {bit}");
        }
        for len in 0..datagram.len() {
            assert!(!seal.is_intact(&datagram[..len]), "{len} bytes");
        }
    }
}
