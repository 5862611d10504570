//! The channels of a region.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::{AtomicU32, compiler_fence};
use std::io::IoSliceMut;
use std::sync::Arc;

use super::lane::{Bounds, LANE_BLOCKS, Moved, Record};
use super::requests::{Left, Requests, WORDS};
use super::{Direction, LaneState, SharedBytes};
use crate::carve::{Carver, OutOfMemory, PIECE_ALIGN, piece_bytes};
use crate::futex::Waited;
use crate::lease::Side;
use crate::{Lease, NONE, Payload, Region};

/// Memory of one channel: its two lanes.
type Lanes = [Record<AtomicU32>; 2];

/// Most blocks that [`LaneLock::fill`] passes to its caller at once.
const PLACES: usize = 8;

/// Memory of a channel as plain bytes.
type LanesBytes = [u64; size_of::<Lanes>() / 8];
type RequestsBytes = [u64; size_of::<Requests>() / 8];

const _: () = assert!(align_of::<Lanes>() <= PIECE_ALIGN && align_of::<Requests>() <= PIECE_ALIGN);
const _: () = assert!(size_of::<Lanes>() == 768 && size_of::<Requests>() == 1024);

/// The channels of a node. All of its processes can use them at any time.
///
/// A handle is cheap to clone, and every clone, in every process, refers to the same channels. Only
/// the holder of the node's lease may call some of the methods. A program that breaks this rule, or
/// overwrites a channel, breaks only its own node's data.
///
/// ```
/// use toehold_shm::{ByteQueue, Carver, Channels, Direction, LaneState, Payload, Region};
///
/// let len = Payload::bytes_needed(8, 4096) + Channels::bytes_needed(4);
/// let mut carver = Carver::new(Region::private(len)?)?;
/// let mut payload = carver.payload(8, 4096)?;
/// let channels = carver.channels(4, &payload)?;
///
/// // The holder of the lease makes room for bytes of connection 77.
/// let mut queue = ByteQueue::EMPTY;
/// let room = queue.claim(&mut payload, 1000);
/// channels.begin(2, 77, [0, 0]);
/// let lane = channels.lane(2, Direction::Send).unwrap();
/// lane.set_block(0, queue.block_at(&payload, 0).unwrap());
/// lane.publish(room as u64, 0, LaneState::Open);
///
/// // A thread of process 5 fills some of it.
/// let mut lock = lane.lock(5, || true).unwrap();
/// assert_eq!(lock.write(77, b"hello").len, 5);
/// assert!(!lock.release());
///
/// // The lease's holder takes the bytes into its queue.
/// queue.extend(lane.done() as usize);
/// let mut bytes = [0; 9];
/// assert_eq!(queue.read(&mut payload, &mut bytes), 5);
/// assert_eq!(&bytes[..5], b"hello");
/// # queue.clear(&mut payload);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Channels {
    lanes: NonNull<Lanes>,
    len: u32,
    requests: NonNull<Requests>,
    bytes: SharedBytes,
    _region: Arc<Region>,
}

// SAFETY: the pointers lead to atomics only, in memory that stays mapped as long as the handle.
unsafe impl Send for Channels {}
// SAFETY: the pointers lead to atomics only, in memory that stays mapped as long as the handle.
unsafe impl Sync for Channels {}

impl Channels {
    /// Most channels that a region can have.
    pub const MOST: u32 = WORDS as u32 * 64;

    /// Bytes that `len` channels take from a region.
    pub fn bytes_needed(len: u32) -> usize {
        piece_bytes::<LanesBytes>(len as usize, PIECE_ALIGN)
            .saturating_add(piece_bytes::<RequestsBytes>(1, PIECE_ALIGN))
    }

    fn carve(carver: &mut Carver, len: u32, payload: &Payload) -> Result<Self, OutOfMemory> {
        assert!(len <= Self::MOST, "{len} channels are too many");
        let (lanes, _) = carver.take::<LanesBytes>(len as usize, PIECE_ALIGN)?;
        let (requests, _) = carver.take::<RequestsBytes>(1, PIECE_ALIGN)?;
        Ok(Self {
            lanes: lanes.cast(),
            len,
            requests: requests.cast(),
            bytes: payload.share(),
            _region: carver.mapping(),
        })
    }

    /// One direction of a channel; `None` if there is no such channel.
    #[inline]
    pub fn lane(&self, channel: u32, direction: Direction) -> Option<Lane<'_>> {
        self.lanes(channel).map(|lanes| Lane {
            record: &lanes[direction as usize],
            bytes: &self.bytes,
        })
    }

    #[inline]
    fn lanes(&self, channel: u32) -> Option<&Lanes> {
        // SAFETY: the piece has `len` records, aligned, in the mapping that this handle keeps. They
        // consist of atomics, for which every bit pattern is valid.
        (channel < self.len).then(|| unsafe { self.lanes.add(channel as usize).as_ref() })
    }

    #[inline]
    fn requests(&self) -> &Requests {
        // SAFETY: the record lies aligned in the mapping that this handle keeps. It consists of
        // atomics, for which every bit pattern is valid.
        unsafe { self.requests.as_ref() }
    }

    /// Leaves a request of a channel for the holder of the lease.
    #[inline]
    pub fn leave_request(&self, channel: u32) -> Left {
        self.requests().leave(channel)
    }

    /// Whether there are requests. A hint.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests().are_there()
    }

    /// Takes all requests. The caller holds the lease.
    #[inline]
    pub fn take_requests(&self, serve: impl FnMut(u32)) {
        self.requests().take(serve);
    }

    /// Whether an attendant takes requests without being asked.
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.requests().are_attended()
    }

    /// Sets whether the stack wants back the memory of bytes that programs have read. The caller
    /// checks afterwards what they have read so far. It holds the lease.
    pub fn press(&self, wanted: bool) {
        self.requests().press(wanted);
    }

    /// Whether a thread that has read bytes, and waits for more, should leave a request.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.requests().are_pressed()
    }

    /// This thread attends from now on: it takes requests without being asked.
    pub fn attend(&self) {
        self.requests().attend();
    }

    /// Announces that the attendant will sleep until its bell rings. Returns `false` if it must not
    /// sleep. After the sleep it has to [attend](Channels::attend) again.
    #[must_use]
    pub fn doze(&self) -> bool {
        self.requests().doze()
    }

    /// Ends the attendance. The caller has to take the present requests afterwards, with the lease.
    /// Threads that sleep on a lane are woken.
    pub fn retire(&self) {
        self.requests().retire();
        self.rouse();
    }

    /// Sleeps without the lease until the program can continue on a lane, while there is an
    /// attendant. Ends early at a time in nanoseconds on the monotonic clock, at a signal, or
    /// spuriously.
    pub fn sleep(&self, lane: Lane<'_>, owner: u64, until_ns: Option<u64>) {
        let lane_of = (owner, self.bytes.shift());
        lane.record.sleep(lane_of, until_ns, || self.is_attended());
    }

    /// Marks the sleepers on a channel's lanes that can continue. The caller has published the
    /// lanes before. Returns whether any sleeper has to be [woken](Channels::wake).
    #[inline]
    pub fn mark(&self, channel: u32) -> bool {
        let Some([send, receive]) = self.lanes(channel) else {
            return false;
        };
        send.mark() | receive.mark()
    }

    /// Wakes the marked sleepers on a channel's lanes. This needs no lease; call it without one,
    /// since the sleepers may want the lease at once.
    #[cold]
    pub fn wake(&self, channel: u32) {
        for lane in self.lanes(channel).into_iter().flatten() {
            lane.wake();
        }
    }

    /// Makes all threads that sleep on a lane check the node's state.
    pub fn rouse(&self) {
        let lanes = (0..self.used()).filter_map(|channel| self.lanes(channel));
        for lane in lanes.flatten() {
            if lane.tell() {
                lane.wake();
            }
        }
    }

    /// Takes all locks from a dead process, and leaves a request of every channel, since the
    /// process may have died before it left one. The caller holds the lease.
    pub fn bury(&self, dead: u16) {
        for channel in 0..self.used() {
            for lane in self.lanes(channel).into_iter().flatten() {
                let side = Side {
                    futex: lane.lock(),
                    me: Lease::ENGINE.into(),
                };
                if side.seize(dead.into()) {
                    let _ = side.release();
                }
            }
            self.requests().leave(channel);
        }
    }

    /// Repairs the channels after a process died with the lease. Releases the locks that it had
    /// taken by [`Lane::enter`]. Leaves a request of every channel, since the process may have
    /// taken requests without serving them. The caller holds the lease.
    pub fn mend(&self) {
        for channel in 0..self.used() {
            for lane in self.lanes(channel).into_iter().flatten() {
                let side = Side {
                    futex: lane.lock(),
                    me: Lease::ENGINE.into(),
                };
                // A lock that another process holds stays locked.
                let _ = side.release();
            }
            self.requests().leave(channel);
        }
    }

    /// Assigns a channel to `owner`, with the program's positions on the two lanes. The caller
    /// holds the lease, and no living thread holds a lane's lock.
    pub fn begin(&self, channel: u32, owner: u64, [sent, read]: [u64; 2]) {
        if let Some([send, receive]) = self.lanes(channel) {
            self.requests().note_used(channel);
            // A killed process thereby leaves no channel in use that `used` does not cover.
            compiler_fence(Release);
            send.begin(owner, sent);
            receive.begin(owner, read);
        }
    }

    /// Ends the channel's assignment. The caller holds the lease.
    pub fn end(&self, channel: u32) {
        if let Some(lanes) = self.lanes(channel) {
            lanes.iter().for_each(Record::end);
        }
        if self.mark(channel) {
            self.wake(channel);
        }
    }

    fn used(&self) -> u32 {
        self.requests().used().min(self.len)
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// One direction of a channel.
#[derive(Debug, Clone, Copy)]
pub struct Lane<'a> {
    record: &'a Record<AtomicU32>,
    bytes: &'a SharedBytes,
}

impl<'a> Lane<'a> {
    /// The bounds of a program whose connection has the number `owner`.
    #[inline]
    pub fn bounds(&self, owner: u64) -> Bounds {
        self.record.bounds(owner, self.bytes.shift())
    }

    /// Waits for the lock, for a thread of process `process`. Calls `goes_on` now and then; `None`
    /// if it returned false.
    #[inline]
    pub fn lock(&self, process: u16, mut goes_on: impl FnMut() -> bool) -> Option<LaneLock<'a>> {
        let side = self.side(process);
        // A lock is never closed, unless another process has overwritten it.
        let locked = side.acquire(|waited| waited != Waited::TimedOut || goes_on());
        locked.is_ok_and(|locked| locked).then(|| self.locked(process))
    }

    /// Tries the lock for the holder of the lease, which keeps it no longer than the lease. Returns
    /// `false` if another thread has it. Its release then leaves a request, see
    /// [`LaneLock::release`].
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        self.side(Lease::ENGINE)
            .take_or_request()
            .is_ok_and(|taken| taken)
    }

    /// Ends [`Lane::enter`]. Returns whether another holder of the lease wanted the lock meanwhile.
    #[inline]
    pub fn leave(&self) -> bool {
        self.side(Lease::ENGINE).release_heeding().unwrap_or(true)
    }

    fn side(&self, process: u16) -> Side<'a, AtomicU32> {
        Side {
            futex: self.record.lock(),
            me: process.into(),
        }
    }

    fn locked(&self, process: u16) -> LaneLock<'a> {
        LaneLock {
            lane: *self,
            process,
            _not_send: PhantomData,
        }
    }

    /// Asks to be told of a greater limit. Call this before leaving a request.
    #[inline]
    pub fn want(&self) {
        self.record.want();
    }

    /// The program's position. This and the following methods need the lease.
    #[inline]
    pub fn done(&self) -> u64 {
        self.record.done()
    }

    /// Sets the program's position. The caller holds the lane's lock.
    #[inline]
    pub fn advance(&self, position: u64) {
        self.record.advance(position);
    }

    /// Returns whether the program wants to be told of a greater limit, and clears the flag.
    #[inline]
    pub fn take_wants(&self) -> bool {
        self.record.take_wants()
    }

    /// Sets the block of a position.
    #[inline]
    pub fn set_block(&self, position: u64, block: u32) {
        self.record.set_block(position, self.bytes.shift(), block);
    }

    /// Lets the program use the bytes up to `limit`, in blocks that [`Lane::set_block`] has set.
    /// From now on these bytes belong to the program, and nothing else has a reference to them. The
    /// program leaves a request when it reaches `mark`.
    #[inline]
    pub fn publish(&self, limit: u64, mark: u64, state: LaneState) {
        self.record.publish(limit, mark, state);
    }

    /// The furthest limit for a program at a position.
    #[inline]
    pub fn furthest(&self, position: u64) -> u64 {
        let shift = self.bytes.shift();
        ((position >> shift) + LANE_BLOCKS as u64).wrapping_shl(shift)
    }
}

/// The exclusive right to copy along a lane. Its holder waits for nothing.
#[derive(Debug)]
pub struct LaneLock<'a> {
    lane: Lane<'a>,
    process: u16,
    _not_send: PhantomData<*const ()>,
}

impl LaneLock<'_> {
    /// Fills the lane with as many bytes as fit.
    #[inline]
    pub fn write(&mut self, owner: u64, bytes: &[u8]) -> Moved {
        let shared = self.lane.bytes;
        self.go(owner, bytes.len(), true, |block, within, done, len| {
            // SAFETY: the bytes lie within the bounds of the lane whose lock this is. Therefore
            // only this thread accesses them.
            unsafe { shared.write(block, within, &bytes[done..done + len]) }
        })
    }

    /// Fills the lane with all of the bytes, or with none if they do not fit.
    #[inline]
    pub fn write_whole(&mut self, owner: u64, bytes: &[u8]) -> Moved {
        let bounds = self.lane.bounds(owner);
        match bounds.len < bytes.len() {
            true => Moved {
                len: 0,
                left: bounds.len,
                state: bounds.state,
                due: false,
            },
            false => self.write(owner, bytes),
        }
    }

    /// Lets `fill` write to the lane directly: as many of `len` bytes as fit, in at most 8 blocks.
    /// `fill` returns the number of bytes that it has written, from the first on.
    ///
    /// # Errors
    ///
    /// The error of `fill`; then nothing was written.
    pub fn fill<E>(
        &mut self,
        owner: u64,
        len: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Moved, E> {
        let Lane {
            record,
            bytes: shared,
        } = self.lane;
        let mut places: [IoSliceMut<'_>; PLACES] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut blocks = [NONE; PLACES];
        let mut used = 0;
        let found = self.go(owner, len, false, |block, within, _, len| {
            // A lane that another process has overwritten may name a block twice.
            if used == PLACES || blocks[..used].contains(&block) {
                return false;
            }
            let Some(mut place) = shared.place(block, within, len) else {
                return false;
            };
            // SAFETY: the bytes lie within the bounds of the lane whose lock this is, so only this
            // thread accesses them. The places are in different blocks, and unused after this call.
            places[used] = IoSliceMut::new(unsafe { place.as_mut() });
            blocks[used] = block;
            used += 1;
            true
        });
        let filled = match found.len {
            0 => 0,
            most => fill(&mut places[..used])?.min(most),
        };
        let position = record.done().wrapping_add(filled as u64);
        if filled > 0 {
            record.advance(position);
        }
        Ok(Moved {
            len: filled,
            left: found.left + found.len - filled,
            due: filled > 0 && record.is_due(position),
            ..found
        })
    }

    /// Reads as many bytes as there are, or peeks at them.
    #[inline]
    pub fn read(&mut self, owner: u64, into: &mut [u8], peek: bool) -> Moved {
        let shared = self.lane.bytes;
        self.go(owner, into.len(), !peek, |block, within, done, len| {
            // SAFETY: the bytes lie within the bounds of the lane whose lock this is. Therefore
            // only this thread accesses them.
            unsafe { shared.read(block, within, &mut into[done..done + len]) }
        })
    }

    /// Calls `copy(block, offset in it, bytes before, bytes)` for each run of `len` bytes, as far
    /// as there are bytes.
    #[inline]
    fn go(
        &mut self,
        owner: u64,
        len: usize,
        advance: bool,
        mut copy: impl FnMut(u32, usize, usize, usize) -> bool,
    ) -> Moved {
        let (record, shift) = (self.lane.record, self.lane.bytes.shift());
        let bounds = record.bounds(owner, shift);
        let mut state = bounds.state;
        let special = matches!(state, LaneState::Special | LaneState::Closed);
        let len = if special { 0 } else { len.min(bounds.len) };
        let mut done = 0;
        while done < len {
            let position = bounds.done.wrapping_add(done as u64);
            let within = position as usize & ((1 << shift) - 1);
            let run = ((1 << shift) - within).min(len - done);
            if !copy(record.block(position, shift), within, done, run) {
                if done == 0 {
                    // This process may not map the block; a call with the lease can.
                    state = LaneState::Special;
                }
                break;
            }
            done += run;
        }
        let position = bounds.done.wrapping_add(done as u64);
        if advance && done > 0 {
            record.advance(position);
        }
        Moved {
            len: done,
            left: bounds.len - done,
            state,
            due: advance && done > 0 && record.is_due(position),
        }
    }

    /// Releases the lock. Returns `true` if a holder of the lease wanted it, and has to be told by
    /// a request.
    #[inline]
    #[must_use]
    pub fn release(self) -> bool {
        let asked = self.lane.side(self.process).release_heeding();
        core::mem::forget(self);
        // The lock was taken from this process as from a dead one: leave a request.
        asked.unwrap_or(true)
    }
}

impl Drop for LaneLock<'_> {
    /// Runs if a thread panics with the lock: no thread learns whether a holder of the lease asked
    /// for it.
    fn drop(&mut self) {
        let _ = self.lane.side(self.process).release();
    }
}

impl Carver {
    /// `len` channels, at most [`Channels::MOST`], with their bytes in `payload`.
    ///
    /// # Panics
    ///
    /// If there are more.
    pub fn channels(&mut self, len: u32, payload: &Payload) -> Result<Channels, OutOfMemory> {
        Channels::carve(self, len, payload)
    }
}
