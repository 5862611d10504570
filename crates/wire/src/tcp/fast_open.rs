//! The Fast Open option (RFC 7413 §4.1.1): a request for a cookie, or a cookie.

/// Kind of the option.
pub(super) const KIND: u8 = 34;
/// Kind shared by experiments (RFC 6994), which Fast Open used first.
pub(super) const KIND_EXPERIMENT: u8 = 254;
/// Fast Open's number among the experiments.
const EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// A Fast Open option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FastOpen {
    cookie: [u8; Self::MAX_LEN],
    len: u8,
    experimental: bool,
}

impl FastOpen {
    /// Length of the longest cookie in bytes.
    pub const MAX_LEN: usize = 16;
    /// Length of the shortest cookie in bytes.
    pub const MIN_LEN: usize = 4;

    /// Creates an option with a cookie. An empty cookie asks the peer for one.
    /// `experimental` selects the form from before kind 34 was assigned, which
    /// peers answer in the same form. Returns `None` if the cookie's length is odd
    /// or not 4 to 16 bytes.
    #[must_use]
    pub fn new(cookie: &[u8], experimental: bool) -> Option<Self> {
        //= RFC 7413 §4.1.1 (the length is 2, or 6 to 18 and even)
        let fits = (Self::MIN_LEN..=Self::MAX_LEN).contains(&cookie.len()) && cookie.len().is_multiple_of(2);
        if !fits && !cookie.is_empty() {
            return None;
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..cookie.len()].copy_from_slice(cookie);
        Some(Self {
            cookie: bytes,
            len: cookie.len() as u8,
            experimental,
        })
    }

    /// The cookie; empty in a request.
    #[must_use]
    pub fn cookie(&self) -> &[u8] {
        self.cookie.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Returns whether the option has the experiment's form.
    #[must_use]
    pub fn is_experimental(&self) -> bool {
        self.experimental
    }

    /// Reads the value of an option of kind 34 or 254. Returns `None` if it is not
    /// a Fast Open option.
    pub(super) fn parse(kind: u8, value: &[u8]) -> Option<Self> {
        match kind {
            KIND => Self::new(value, false),
            _ => Self::new(value.strip_prefix(&EXPERIMENT)?, true),
        }
    }

    /// Length of the option in bytes, padded to a multiple of four.
    pub(super) fn len(&self) -> usize {
        self.unpadded().next_multiple_of(4)
    }

    fn unpadded(&self) -> usize {
        2 + usize::from(self.len) + if self.experimental { EXPERIMENT.len() } else { 0 }
    }

    /// Writes the option and its padding.
    pub(super) fn emit(&self, buffer: &mut [u8]) -> usize {
        let (rest, padding) = buffer[..self.len()].split_at_mut(self.unpadded());
        padding.fill(1);
        rest[0] = if self.experimental { KIND_EXPERIMENT } else { KIND };
        rest[1] = self.unpadded() as u8;
        let mut at = 2;
        if self.experimental {
            rest[at..at + 2].copy_from_slice(&EXPERIMENT);
            at += 2;
        }
        rest[at..at + self.cookie().len()].copy_from_slice(self.cookie());
        self.len()
    }
}
