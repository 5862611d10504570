//! The hash of four-tuples in the flow table.
//!
//! It uses rounds of AES ([`AesHash`]) where the processor has instructions for them, and
//! SipHash-1-3 elsewhere. In a burst, AES takes two nanoseconds a tuple and SipHash ten. The region
//! stores the choice with the keys, so that all processes that use a table agree.

use toehold_shm::{AES_KEYS, AES_MESSAGE, AesHash};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::keyed::Key;
use crate::sip::{BURST, Hashes};
use crate::tuple::FourTuple;

/// The bytes of a tuple in memory, as input of the hash.
type Message = [u8; AES_MESSAGE];
const _: () = assert!(size_of::<FourTuple>() == AES_MESSAGE);

/// [`FlowKey::hash_kind`] of SipHash, then of AES rounds.
const SIPHASH: u64 = 0;
const AES: u64 = 1;

/// The key of the hash of tuples.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct FlowKey {
    key: Key,
    hash_kind: u64,
    aes: AesHash,
}

impl core::fmt::Debug for FlowKey {
    /// Formats without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FlowKey")
    }
}

impl FlowKey {
    /// The fastest hash of this processor under this key.
    pub(crate) fn new(key: Key) -> Self {
        Self::of_kind(key, if AesHash::is_fast() { AES } else { SIPHASH })
    }

    fn of_kind(key: Key, hash_kind: u64) -> Self {
        let round_key = |index: usize| {
            let half = |half| key.bytes(&[b'a', b'e', b's', index as u8, half]).to_le_bytes();
            let [low, high] = [half(0), half(1)];
            core::array::from_fn(|at| if at < 8 { low[at] } else { high[at - 8] })
        };
        Self {
            key,
            hash_kind,
            aes: AesHash::new(core::array::from_fn::<_, AES_KEYS, _>(round_key)),
        }
    }

    /// The key that replaces this one after an attack.
    pub(crate) fn successor(&self) -> Self {
        Self::of_kind(self.key.successor(), self.hash_kind)
    }

    /// The hash of a tuple.
    #[inline]
    pub(crate) fn hash(&self, tuple: &FourTuple) -> u64 {
        if self.hash_kind == AES {
            self.aes.hash(zerocopy::transmute_ref!(tuple))
        } else {
            self.key.flow(tuple)
        }
    }

    /// The hashes of up to [`BURST`] tuples.
    #[inline]
    pub(crate) fn hashes(&self, tuples: &[FourTuple]) -> Hashes {
        if self.hash_kind != AES {
            return self.key.flows(tuples);
        }
        let mut hashes = Hashes::default();
        let messages: &[Message] = zerocopy::transmute_ref!(tuples);
        let count = messages.len().min(BURST);
        self.aes
            .hash_each(&messages[..count], &mut hashes.as_flattened_mut()[..count]);
        hashes
    }
}
