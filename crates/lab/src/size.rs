//! Sizes of messages in text form: `64`, `1K`, `1M`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes of a message, 1 to [`Size::MAX`]. Written `64B`, `1K` (1024), `1M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(usize);

impl Size {
    /// The largest message: 16 MiB. Both sides keep a buffer of a message's size.
    pub const MAX: Self = Self(16 << 20);

    /// A size of `bytes`; `None` if it is 0 or above [`Size::MAX`].
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes == 0 || bytes > Self::MAX.0 {
            None
        } else {
            Some(Self(bytes))
        }
    }

    /// Bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }
}

/// The text is not a valid size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a message size: write 1 to 16M, such as 64, 64B, 1K or 1M (K = 1024 bytes)")]
pub struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper.strip_suffix('B').unwrap_or(&upper);
        let (digits, unit) = match plain.strip_suffix(['K', 'M']) {
            Some(digits) if plain.ends_with('K') => (digits, 1 << 10),
            Some(digits) => (digits, 1 << 20),
            None => (plain, 1),
        };
        let bytes = digits
            .parse::<usize>()
            .ok()
            .and_then(|count| count.checked_mul(unit));
        bytes
            .and_then(Self::new)
            .ok_or_else(|| SizeError(text.to_owned()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}K", bytes >> 10),
            bytes => write!(f, "{bytes}B"),
        }
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_round_trips() {
        for (text, bytes, written) in [
            ("1", 1, "1B"),
            ("64b", 64, "64B"),
            ("1500", 1500, "1500B"),
            ("1024", 1024, "1K"),
            ("64k", 65536, "64K"),
            (" 1M", 1 << 20, "1M"),
            ("16MB", 16 << 20, "16M"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, written));
        }
        for text in [
            "",
            "0",
            "-1",
            "17M",
            "1G",
            "K",
            "1.5K",
            "99999999999999999999",
            "99999999999999999M",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
