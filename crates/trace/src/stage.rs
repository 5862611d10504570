//! The stages of a message's time, as a typed list.
//!
//! A stage lasts from its own first edge to that of the next stage. The stages of messages are those
//! of SPLINTER.md §7; names are what reports print.

use std::fmt;

/// A part of a message's time: the work of one actor, or the way between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// The MPI library's part of sending: until the entry of the provider's call.
    MpiSend,
    /// The program's own time: from the return of its receive to the entry of its next send.
    Program,
    /// From the entry of a send to the beginning of its record or copy.
    CallSend,
    /// The copy of the program's bytes into payload memory or into a ring.
    CopyIn,
    /// Building an RMPP frame.
    RmppSend,
    /// Building segments, with the TCP state's change.
    TcpSend,
    /// The read of the program's bytes by the side that sends the frame.
    Fetch,
    /// Putting a built frame into the link.
    LinkSend,
    /// Storing the new position of a direct connection's ring.
    Publish,
    /// Unlock, fence, look at marks, and ring: what a direct sender does after publishing.
    Notify,
    /// The way from the program to the engine that sends for it. Deduced.
    HandWork,
    /// The way of a frame between two ends. Deduced.
    Wire,
    /// The way of a cache line between two ends of a direct connection. Deduced.
    Line,
    /// The way from the engine that received to the program. Deduced.
    HandRest,
    /// The way to a thread that slept: until it runs again. Deduced.
    Turn,
    /// Taking a frame off the link.
    LinkReceive,
    /// Checking an RMPP frame and its sequence.
    RmppReceive,
    /// Demultiplexing a segment and processing it.
    TcpReceive,
    /// Finding the receive that a message belongs to.
    Match,
    /// Copying bytes into the posted buffer.
    Place,
    /// Writing an entry of the events ring.
    Event,
    /// Building and sending an acknowledgement.
    Ack,
    /// Noticing a direct connection's new position, and taking its lock.
    Look,
    /// The copy of bytes from payload memory or a ring into the program's buffer.
    CopyOut,
    /// From the last byte placed, or the event seen, to the return of the call.
    CallReceive,
    /// The MPI library's part of receiving: after the return of the provider's call.
    MpiReceive,
}

impl Stage {
    /// The number of stages.
    pub const COUNT: usize = 26;

    /// All stages, by their index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MpiSend,
        Self::Program,
        Self::CallSend,
        Self::CopyIn,
        Self::RmppSend,
        Self::TcpSend,
        Self::Fetch,
        Self::LinkSend,
        Self::Publish,
        Self::Notify,
        Self::HandWork,
        Self::Wire,
        Self::Line,
        Self::HandRest,
        Self::Turn,
        Self::LinkReceive,
        Self::RmppReceive,
        Self::TcpReceive,
        Self::Match,
        Self::Place,
        Self::Event,
        Self::Ack,
        Self::Look,
        Self::CopyOut,
        Self::CallReceive,
        Self::MpiReceive,
    ];

    /// The stage's place in [`Stage::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns `true` for a way between two actors, whose time is deduced and never stamped.
    pub const fn is_hop(self) -> bool {
        matches!(
            self,
            Self::HandWork | Self::Wire | Self::Line | Self::HandRest | Self::Turn
        )
    }

    /// The name that reports print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MpiSend => "mpi.send",
            Self::Program => "program",
            Self::CallSend => "call.send",
            Self::CopyIn => "copy.in",
            Self::RmppSend => "rmpp.send",
            Self::TcpSend => "tcp.send",
            Self::Fetch => "fetch",
            Self::LinkSend => "link.send",
            Self::Publish => "publish",
            Self::Notify => "notify",
            Self::HandWork => "hand.work",
            Self::Wire => "wire",
            Self::Line => "line",
            Self::HandRest => "hand.rest",
            Self::Turn => "turn",
            Self::LinkReceive => "link.receive",
            Self::RmppReceive => "rmpp.receive",
            Self::TcpReceive => "tcp.receive",
            Self::Match => "match",
            Self::Place => "place",
            Self::Event => "event",
            Self::Ack => "ack",
            Self::Look => "look",
            Self::CopyOut => "copy.out",
            Self::CallReceive => "call.receive",
            Self::MpiReceive => "mpi.receive",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A set of stages, such as those that the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageSet(u32);

impl StageSet {
    /// The set without stages.
    pub const EMPTY: Self = Self(0);

    /// The set of some stages.
    pub fn of(stages: impl IntoIterator<Item = Stage>) -> Self {
        stages.into_iter().fold(Self::EMPTY, Self::with)
    }

    /// The set with a further stage.
    #[must_use]
    pub fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage.index())
    }

    /// The set without a stage.
    #[must_use]
    pub fn without(self, stage: Stage) -> Self {
        Self(self.0 & !(1 << stage.index()))
    }

    /// Returns `true` if the stage belongs to the set.
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage.index() != 0
    }

    /// The stages of the set, in the order of [`Stage::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Stage> {
        Stage::ALL.into_iter().filter(move |stage| self.contains(*stage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn index_of_each_stage_is_its_place_and_names_differ() {
        for (place, stage) in Stage::ALL.iter().enumerate() {
            assert_eq!(stage.index(), place);
        }
        let names: BTreeSet<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        assert_eq!(names.len(), Stage::COUNT);
    }

    #[test]
    fn set_holds_what_was_added_and_not_removed() {
        let set = StageSet::of([Stage::Match, Stage::Ack, Stage::MpiReceive]).without(Stage::Ack);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Stage::Match, Stage::MpiReceive]);
        assert!(!set.contains(Stage::Ack));
    }
}
