//! The actors of a message's path. Each one is a clock of its own.

use std::fmt;

/// An end of a round trip. End A sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathEnd {
    /// The end that begins each round trip, and whose program's clock is the reference.
    A,
    /// The end that answers.
    B,
}

impl PathEnd {
    /// The end at the other side of the path.
    pub fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The thread that runs a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActorKind {
    /// A thread of the program, in a call or between calls.
    Program,
    /// A thread of the engine process.
    Engine,
}

/// A thread with a clock that is treated as unrelated to every other actor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Actor {
    /// The end at which the actor runs.
    pub end: PathEnd,
    /// The kind of thread.
    pub kind: ActorKind,
}

impl Actor {
    /// All actors, by their index.
    pub const ALL: [Self; 4] = [
        Self::new(PathEnd::A, ActorKind::Program),
        Self::new(PathEnd::A, ActorKind::Engine),
        Self::new(PathEnd::B, ActorKind::Engine),
        Self::new(PathEnd::B, ActorKind::Program),
    ];

    /// The actor whose clock is the reference for times: the program at end A.
    pub const REFERENCE: Self = Self::ALL[0];

    /// The actor of a kind at an end.
    pub const fn new(end: PathEnd, kind: ActorKind) -> Self {
        Self { end, kind }
    }

    /// The actor's place in [`Actor::ALL`].
    pub const fn index(self) -> usize {
        match (self.end, self.kind) {
            (PathEnd::A, ActorKind::Program) => 0,
            (PathEnd::A, ActorKind::Engine) => 1,
            (PathEnd::B, ActorKind::Engine) => 2,
            (PathEnd::B, ActorKind::Program) => 3,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ActorKind::Program => "program",
            ActorKind::Engine => "engine",
        };
        let end = match self.end {
            PathEnd::A => "A",
            PathEnd::B => "B",
        };
        write!(out, "{kind} {end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_each_actor_is_its_place() {
        for (place, actor) in Actor::ALL.iter().enumerate() {
            assert_eq!(actor.index(), place);
        }
        assert_eq!(Actor::REFERENCE.to_string(), "program A");
    }
}
