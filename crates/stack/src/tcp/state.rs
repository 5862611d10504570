//! The scalars of one stack's TCP: heads of lists, counts, and seeds.

use toehold_shm::{ByteQueue, NONE};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::delayed_ack::DelayedAcks;
use crate::time::Instant;

/// The scalar state of one stack's TCP.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct TcpState {
    pub(super) ready_head: u32,
    pub(super) ready_tail: u32,
    pub(super) event_head: u32,
    pub(super) event_tail: u32,
    /// First of the closed blocks whose bytes the peer may still read.
    pub(super) deferred_head: u32,
    pub(super) next_generation: u32,
    pub(super) next_port: u32,
    /// Challenge acknowledgements still allowed in the present second.
    pub(super) challenge_budget: u32,
    pub(super) challenge_second: u64,
    /// When a SYN cookie was last sent, to tell answers from unexpected segments.
    pub(super) cookie_sent_at: Instant,
    pub(super) random: u64,
    pub(super) reply_head: u32,
    pub(super) reply_tail: u32,
    /// First and last of the connections whose program waits for payload memory,
    /// see `memory`.
    pub(super) memory_waiters: u32,
    pub(super) memory_waiters_tail: u32,
    /// The first waiting connection that the free memory does not help, and the memory that was
    /// free when it was tried.
    pub(super) memory_first_passed: u32,
    pub(super) memory_too_little: u32,
    /// Ranges left when data ahead of gaps were last dropped.
    pub(super) ranges_left: u32,
    unused: u32,
    /// The block that is being changed, see `mend`.
    pub(super) suspect: u64,
    /// Up to which number new data were last about to be sent; the upper bits name the connection,
    /// see `mend`.
    pub(super) sending: u64,
    pub(super) delayed_acks: DelayedAcks,
    /// Waiting segments of this stack to itself, with the totals queued and handled.
    pub(super) loopback: ByteQueue,
    pub(super) loopback_sent: u64,
    pub(super) loopback_taken: u64,
}

/// A closed connection whose memory is not free yet.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct DeferredFree {
    pub(super) fence: u64,
    pub(super) connection: u32,
    pub(super) next: u32,
}

impl TcpState {
    /// The state of a stack without connections.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ready_head: NONE,
            ready_tail: NONE,
            event_head: NONE,
            event_tail: NONE,
            deferred_head: NONE,
            next_generation: 1,
            next_port: 0,
            challenge_budget: 0,
            challenge_second: u64::MAX,
            cookie_sent_at: Instant::NEVER,
            random: seed | 1,
            reply_head: 0,
            reply_tail: 0,
            memory_waiters: 0,
            memory_waiters_tail: 0,
            memory_first_passed: 0,
            memory_too_little: 0,
            ranges_left: 0,
            unused: 0,
            suspect: 0,
            sending: 0,
            delayed_acks: DelayedAcks::default(),
            loopback: ByteQueue::EMPTY,
            loopback_sent: 0,
            loopback_taken: 0,
        }
    }

    /// A number for the next connection or listener, by which stale ids are recognized.
    pub(super) fn next_generation(&mut self) -> u32 {
        self.next_generation = self.next_generation.wrapping_add(1).max(1);
        self.next_generation
    }

    /// A pseudo-random number that needs no secrecy (xorshift64*).
    pub(super) fn random(&mut self) -> u64 {
        let state = &mut self.random;
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Checks the whole list of connections that wait for memory again, whatever memory is free: a
    /// connection on it has ended.
    pub(super) fn look_through_memory_waiters(&mut self) {
        (self.memory_first_passed, self.memory_too_little) = (0, 0);
    }
}
