//! The end of a direct connection, as a holder stands for it.

use toehold_shm::direct::{CONNECTIONS, ConnectionId};

/// One end of a direct connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectEnd {
    /// The node's own number of the bank, and of its side there.
    pub slot: u16,
    /// Number of the connection in the bank.
    pub number: u16,
    /// Tells the connection from earlier ones of the number.
    pub generation: u32,
}

impl DirectEnd {
    /// The connection in its bank.
    pub fn connection(self) -> ConnectionId {
        ConnectionId {
            number: self.number,
            generation: self.generation,
        }
    }
}

const SET: u64 = 1 << 63;
/// The flag of an end whose bytes the engine carries to and from the holder's descriptor.
const RELAYED: u64 = 1 << 62;
const NUMBER: u32 = 32;
const SLOT: u32 = 44;

impl DirectEnd {
    /// The end as a word, never 0.
    pub(crate) fn word(self) -> u64 {
        let DirectEnd {
            slot,
            number,
            generation,
        } = self;
        SET | u64::from(slot) << SLOT | u64::from(number) << NUMBER | u64::from(generation)
    }

    /// The end that a word stands for; `None` if it stands for none.
    pub(crate) fn from_word(word: u64) -> Option<DirectEnd> {
        (word & SET != 0).then_some(DirectEnd {
            slot: (word >> SLOT) as u16 & 0x3fff,
            number: (word >> NUMBER) as u16 % CONNECTIONS as u16,
            generation: word as u32,
        })
    }

    /// The word of an end whose bytes the engine carries; 0 of none.
    pub(crate) fn relayed_word(word: u64) -> u64 {
        match word & SET {
            0 => 0,
            _ => word | RELAYED,
        }
    }

    /// Whether the engine carries the bytes of the end that a word stands for.
    pub(crate) fn is_relayed(word: u64) -> bool {
        word & (SET | RELAYED) == SET | RELAYED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::SLOTS;

    #[test]
    fn end_survives_its_word() {
        for end in [
            DirectEnd {
                slot: 0,
                number: 0,
                generation: 1,
            },
            DirectEnd {
                slot: SLOTS as u16,
                number: CONNECTIONS as u16 - 1,
                generation: u32::MAX,
            },
        ] {
            let (word, relayed) = (end.word(), DirectEnd::relayed_word(end.word()));
            assert!(
                [word, relayed]
                    .iter()
                    .all(|word| DirectEnd::from_word(*word) == Some(end))
            );
            assert_eq!([word, relayed].map(DirectEnd::is_relayed), [false, true]);
        }
        assert_eq!(DirectEnd::from_word(0), None);
        assert!(DirectEnd::relayed_word(0) == 0 && !DirectEnd::is_relayed(0));
        assert_eq!(DirectEnd::from_word(u64::MAX >> 1), None);
    }
}
