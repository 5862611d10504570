//! TCP options: values, encoding, and parsing of a hostile list.

use super::Seq;
use super::fast_open::{self, FastOpen};
use crate::put;

/// Largest window shift that RFC 7323 §2.3 permits.
pub const MAX_WINDOW_SCALE: u8 = 14;

/// Room for options in a header, in bytes.
const MAX_LEN: usize = 40;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MSS: u8 = 2;
const KIND_WINDOW_SCALE: u8 = 3;
const KIND_SACK_PERMITTED: u8 = 4;
const KIND_SACK: u8 = 5;
const KIND_TIMESTAMPS: u8 = 8;

/// Timestamps with the padding that aligns them: the options of nearly every
/// segment of an established connection.
const ALIGNED_TIMESTAMPS: [u8; 4] = [KIND_NOP, KIND_NOP, KIND_TIMESTAMPS, 10];
pub(super) const ALIGNED_TIMESTAMPS_LEN: usize = 12;

/// The timestamps option (RFC 7323 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the last TSval that the sender received; meaningful with ACK
    /// only.
    pub echo: u32,
}

/// The blocks of a SACK option (RFC 2018 §3), in wire order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// Most blocks of an option.
    pub const MAX: usize = 4;
    /// No blocks.
    pub const EMPTY: Self = Self {
        blocks: [(Seq(0), Seq(0)); Self::MAX],
        len: 0,
    };

    /// Adds the block of the bytes from `left` up to, not including, `right`.
    /// Returns `false`, without effect, if there are [`SackBlocks::MAX`]
    /// blocks.
    #[inline]
    pub fn push(&mut self, left: Seq, right: Seq) -> bool {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = (left, right);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Number of blocks.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Length of the option in bytes, padding included.
    #[inline]
    #[must_use]
    pub const fn room(&self) -> usize {
        match self.len {
            0 => 0,
            len => 4 + 8 * len as usize,
        }
    }

    /// Returns whether there are no blocks.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The blocks as (left edge, right edge).
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        self.blocks.get(..self.len()).unwrap_or(&[])
    }

    /// Iterates over the blocks as (left edge, right edge).
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Seq, Seq)> + '_ {
        self.as_slice().iter().copied()
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The options of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Options {
    /// Maximum segment size in bytes (RFC 9293 §3.2), unchecked: a peer may
    /// send 0.
    pub mss: Option<u16>,
    /// Window shift (RFC 7323 §2.2), at most [`MAX_WINDOW_SCALE`].
    pub window_scale: Option<u8>,
    /// The sender can use SACK (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Blocks received out of order (RFC 2018 §3).
    pub sack: SackBlocks,
    /// Timestamps (RFC 7323 §3.2).
    pub timestamps: Option<Timestamps>,
    /// Fast Open (RFC 7413 §4.1.1), in a SYN.
    pub fast_open: Option<FastOpen>,
}

impl Options {
    /// No options.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::EMPTY,
        timestamps: None,
        fast_open: None,
    };

    /// Reads the bytes between the fixed header and the data. The second value
    /// is true if anything was malformed.
    ///
    /// An option whose length is impossible for any kind ends the list. An
    /// option with the wrong length for its kind is skipped, as is an unknown
    /// one. Of repeated options the last one counts.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> (Self, bool) {
        match aligned_timestamps(bytes) {
            Some(timestamps) => (
                Self {
                    timestamps: Some(timestamps),
                    ..Self::NONE
                },
                false,
            ),
            None if bytes.is_empty() => (Self::NONE, false),
            None => Self::parse_list(bytes),
        }
    }

    fn parse_list(bytes: &[u8]) -> (Self, bool) {
        let mut options = Self::NONE;
        let mut malformed = false;
        let mut rest = bytes;
        while let [kind, tail @ ..] = rest {
            match *kind {
                //= RFC 9293 §3.2
                KIND_END => break,
                KIND_NOP => rest = tail,
                kind => match split_option(rest) {
                    Some((value, after)) => {
                        malformed |= !options.take(kind, value);
                        rest = after;
                    }
                    None => return (options, true),
                },
            }
        }
        (options, malformed)
    }

    /// Stores one option's value. Returns `false` if its length is wrong for
    /// its kind.
    fn take(&mut self, kind: u8, value: &[u8]) -> bool {
        match (kind, value) {
            (KIND_MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            //= RFC 7323 §2.3
            (KIND_WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (KIND_SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (KIND_TIMESTAMPS, value) => match value.try_into() {
                Ok(value) => self.timestamps = Some(timestamps_from(value)),
                Err(_) => return false,
            },
            (KIND_SACK, value) => return self.take_sack(value),
            (KIND_MSS | KIND_WINDOW_SCALE | KIND_SACK_PERMITTED, _) => return false,
            (fast_open::KIND | fast_open::KIND_EXPERIMENT, value) => {
                // `None` means an impossible length or another experiment.
                self.fast_open = FastOpen::parse(kind, value).or(self.fast_open);
            }
            //= RFC 9293 §3.1
            // Unknown options are skipped by their length.
            _ => {}
        }
        true
    }

    fn take_sack(&mut self, value: &[u8]) -> bool {
        let (blocks @ [_, ..], []) = value.as_chunks::<8>() else {
            return false;
        };
        self.sack = SackBlocks::EMPTY;
        for &[a, b, c, d, e, f, g, h] in blocks {
            let left = Seq(u32::from_be_bytes([a, b, c, d]));
            self.sack.push(left, Seq(u32::from_be_bytes([e, f, g, h])));
        }
        true
    }

    /// Drops the options that are meaningful in a SYN only.
    pub(super) fn without_syn_options(mut self) -> Self {
        //= RFC 7323 §2.2
        self.window_scale = None;
        //= RFC 9293 §3.2
        self.mss = None;
        //= RFC 2018 §2
        self.sack_permitted = false;
        //= RFC 7413 §4.1.1 (the option belongs into segments with SYN)
        self.fast_open = None;
        self
    }

    /// Length of the options in a header: a multiple of 4 bytes, at most 40.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let fixed = self.len_without_sack();
        match self.sack_that_fit(fixed) {
            0 => fixed,
            count => fixed + 4 + 8 * count,
        }
    }

    /// Returns whether there are no options.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn len_without_sack(&self) -> usize {
        let timestamps = if self.timestamps.is_some() {
            ALIGNED_TIMESTAMPS_LEN
        } else {
            0
        };
        // SACK-permitted replaces the padding before timestamps.
        let permitted = if self.sack_permitted && self.timestamps.is_none() {
            4
        } else {
            0
        };
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let fast_open = self.fast_open.map_or(0, |option| option.len());
        mss + permitted + timestamps + scale + fast_open
    }

    /// Returns how many SACK blocks fit beside `fixed` bytes of other options.
    #[inline]
    fn sack_that_fit(&self, fixed: usize) -> usize {
        self.sack.len().min(MAX_LEN.saturating_sub(4 + fixed) / 8)
    }

    /// Returns the timestamps if they are the only option.
    #[inline]
    pub(super) fn only_timestamps(&self) -> Option<Timestamps> {
        let others = self.mss.is_some()
            | self.window_scale.is_some()
            | self.sack_permitted
            | !self.sack.is_empty()
            | self.fast_open.is_some();
        if others { None } else { self.timestamps }
    }

    /// Writes the options, aligned, and returns their length. SACK blocks
    /// without room are left out, the last ones first.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than [`Options::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut at = 0;
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&mut buffer[at..], [KIND_MSS, 4, high, low]);
            at += 4;
        }
        match (self.sack_permitted, self.timestamps) {
            (permitted, Some(timestamps)) => {
                let mut bytes = aligned_timestamps_bytes(timestamps);
                if permitted {
                    bytes[..2].copy_from_slice(&[KIND_SACK_PERMITTED, 2]);
                }
                put(&mut buffer[at..], bytes);
                at += ALIGNED_TIMESTAMPS_LEN;
            }
            (true, None) => {
                put(&mut buffer[at..], [KIND_NOP, KIND_NOP, KIND_SACK_PERMITTED, 2]);
                at += 4;
            }
            (false, None) => {}
        }
        if let Some(shift) = self.window_scale {
            put(
                &mut buffer[at..],
                [KIND_NOP, KIND_WINDOW_SCALE, 3, shift.min(MAX_WINDOW_SCALE)],
            );
            at += 4;
        }
        if let Some(option) = self.fast_open {
            at += option.emit(&mut buffer[at..]);
        }
        at + self.emit_sack(&mut buffer[at..], at)
    }

    /// Writes the SACK option behind `fixed` bytes of other options.
    fn emit_sack(&self, buffer: &mut [u8], fixed: usize) -> usize {
        //= RFC 2018 §4
        let count = self.sack_that_fit(fixed);
        if count == 0 {
            return 0;
        }
        let len = 2 + 8 * count;
        put(buffer, [KIND_NOP, KIND_NOP, KIND_SACK, len as u8]);
        for (place, (left, right)) in buffer[4..2 + len].chunks_exact_mut(8).zip(self.sack.iter()) {
            place[..4].copy_from_slice(&left.0.to_be_bytes());
            place[4..].copy_from_slice(&right.0.to_be_bytes());
        }
        2 + len
    }
}

/// Splits a list behind its first option, which is neither END nor NOP. Returns
/// the option's value and the rest, or `None` if its length is impossible.
#[inline]
fn split_option(list: &[u8]) -> Option<(&[u8], &[u8])> {
    //= RFC 9293 §3.1
    // The length counts the kind and length bytes, so 0 and 1 are invalid.
    let len = usize::from(*list.get(1)?);
    let value = list.get(2..len)?;
    Some((value, list.get(len..)?))
}

/// Reads a list of aligned timestamps only. Returns `None` for any other list.
#[inline]
fn aligned_timestamps(bytes: &[u8]) -> Option<Timestamps> {
    let bytes: &[u8; ALIGNED_TIMESTAMPS_LEN] = bytes.try_into().ok()?;
    let (lead, value) = bytes.split_first_chunk::<4>()?;
    if *lead != ALIGNED_TIMESTAMPS {
        return None;
    }
    Some(timestamps_from(value.first_chunk()?))
}

#[inline]
fn timestamps_from(&[a, b, c, d, e, f, g, h]: &[u8; 8]) -> Timestamps {
    Timestamps {
        value: u32::from_be_bytes([a, b, c, d]),
        echo: u32::from_be_bytes([e, f, g, h]),
    }
}

/// Returns the bytes of aligned timestamps.
#[inline]
pub(super) fn aligned_timestamps_bytes(timestamps: Timestamps) -> [u8; ALIGNED_TIMESTAMPS_LEN] {
    let mut bytes = [0; ALIGNED_TIMESTAMPS_LEN];
    bytes[..4].copy_from_slice(&ALIGNED_TIMESTAMPS);
    bytes[4..8].copy_from_slice(&timestamps.value.to_be_bytes());
    bytes[8..].copy_from_slice(&timestamps.echo.to_be_bytes());
    bytes
}
