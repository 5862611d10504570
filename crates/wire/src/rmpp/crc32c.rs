//! CRC32C, the checksum of packets on links that do not protect frames (RFC 3720 §12.1).

/// The Castagnoli polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes that one step takes.
const STEP: usize = 8;

/// For each place in a step and each byte there: its share of the remainder.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = rest >> 1 ^ (POLYNOMIAL & (rest & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut place = 1;
    while place < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[place - 1][byte];
            tables[place][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Returns the CRC32C of `bytes` that follow bytes with the CRC32C `before`. A sum begins
/// with 0.
///
/// ```
/// use toehold_wire::rmpp::crc32c;
/// assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
/// assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut rest = !before;
    let (steps, tail) = bytes.as_chunks::<STEP>();
    for step in steps {
        let word = u64::from_le_bytes(*step) ^ u64::from(rest);
        rest = (0..STEP).fold(0, |sum, place| {
            sum ^ TABLES[STEP - 1 - place][(word >> (8 * place) & 0xff) as usize]
        });
    }
    for byte in tail {
        rest = rest >> 8 ^ TABLES[0][usize::from(rest as u8 ^ byte)];
    }
    !rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit.
    fn slow(bytes: &[u8]) -> u32 {
        let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                (sum >> 1) ^ ((sum & 1) * POLYNOMIAL)
            })
        });
        !sum
    }

    #[test]
    fn vectors_of_rfc_3720_are_reproduced() {
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
    }

    proptest! {
        #[test]
        fn sum_in_two_calls_equals_definition(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in 0usize..100) {
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(crc32c(crc32c(0, first), second), slow(&bytes));
        }
    }
}
