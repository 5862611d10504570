//! What a receive asks for, and what a message shows.

/// A sender, as matching tells senders apart. An endpoint uses the name of a flow, so a
/// restarted peer is another sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u64);

/// What a message shows to matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagEnvelope {
    /// The message's tag; without meaning if it has none.
    pub tag: u64,
    /// The sender.
    pub source: SourceId,
    /// Whether the message has a tag. Untagged receives take untagged messages only.
    pub is_tagged: bool,
}

/// What a receive asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that may differ.
    pub ignore: u64,
    /// The sender; `None` for any.
    pub source: Option<SourceId>,
    /// Whether the receive is for messages with a tag.
    pub is_tagged: bool,
}

impl Selector {
    /// Asks for one tag from any sender.
    #[must_use]
    pub const fn tagged(tag: u64) -> Self {
        Self {
            tag,
            ignore: 0,
            source: None,
            is_tagged: true,
        }
    }

    /// Asks for messages without a tag from any sender.
    #[must_use]
    pub const fn untagged() -> Self {
        Self {
            tag: 0,
            ignore: u64::MAX,
            source: None,
            is_tagged: false,
        }
    }

    /// Returns the selector with one sender.
    #[must_use]
    pub const fn from(self, source: SourceId) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// Returns the selector with other ignored bits.
    #[must_use]
    pub const fn ignoring(self, ignore: u64) -> Self {
        Self { ignore, ..self }
    }

    /// Returns `true` if a message with this envelope is what the receive asks for.
    #[must_use]
    pub fn takes(&self, envelope: &TagEnvelope) -> bool {
        let class = self.class();
        class.is_tagged == envelope.is_tagged
            && class.masked(self.tag) == class.masked(envelope.tag)
            && self.source.is_none_or(|source| source == envelope.source)
    }

    pub(super) fn class(&self) -> MaskClass {
        MaskClass {
            // All bits of an untagged message's tag are ignored.
            ignore: if self.is_tagged { self.ignore } else { u64::MAX },
            has_source: self.source.is_some(),
            is_tagged: self.is_tagged,
        }
    }
}

/// Receives that look at the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MaskClass {
    ignore: u64,
    has_source: bool,
    is_tagged: bool,
}

impl MaskClass {
    fn masked(self, tag: u64) -> u64 {
        tag & !self.ignore
    }

    /// The key under which a receive of this class is found.
    pub(super) fn key_of_selector(self, number: u8, selector: &Selector) -> MatchKey {
        MatchKey {
            tag: self.masked(selector.tag),
            source: selector.source.map_or(0, |source| source.0),
            class: number,
        }
    }

    /// The key of receives of this class that take a message; `None` if none can.
    pub(super) fn key_of_envelope(self, number: u8, envelope: &TagEnvelope) -> Option<MatchKey> {
        (self.is_tagged == envelope.is_tagged).then(|| MatchKey {
            tag: self.masked(envelope.tag),
            source: if self.has_source { envelope.source.0 } else { 0 },
            class: number,
        })
    }
}

/// A class with the bits that its receives look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatchKey {
    pub(super) tag: u64,
    pub(super) source: u64,
    pub(super) class: u8,
}
