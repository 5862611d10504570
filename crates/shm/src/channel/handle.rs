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

/// Most blocks that [`LaneLock::fill`] hands out at once.
const PLACES: usize = 8;

/// Memory as the carver knows it.
type LanesBytes = [u64; size_of::<Lanes>() / 8];
type RequestsBytes = [u64; size_of::<Requests>() / 8];

const _: () = assert!(align_of::<Lanes>() <= PIECE_ALIGN && align_of::<Requests>() <= PIECE_ALIGN);
const _: () = assert!(size_of::<Lanes>() == 768 && size_of::<Requests>() == 1024);

/// The channels of a node, which all of its processes can use at any time.
///
/// A handle is cheap to clone, and every clone, in every process, is of the same
/// channels. Some methods are for the holder of the node's lease only; a program that
/// calls them all the same, or scribbles over a channel, breaks what its own node sends
/// and receives, and nothing else.
///
/// ```
/// use toehold_shm::{ByteQueue, Carver, Channels, Direction, LaneState, Payload, Region};
///
/// let len = Payload::bytes_needed(8, 4096) + Channels::bytes_needed(4);
/// let mut carver = Carver::new(Region::private(len)?)?;
/// let mut payload = carver.payload(8, 4096)?;
/// let channels = carver.channels(4, &payload)?;
///
/// // The holder of the lease makes room for bytes of the connection that is called 77.
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
/// // The holder takes it in.
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

// SAFETY: all that is reached through the pointers are atomics, in memory that stays
// mapped as long as the handle.
unsafe impl Send for Channels {}
// SAFETY: as above.
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
        // SAFETY: the piece has so many records, aligned, in the mapping this handle keeps;
        // they consist of atomics, of which every bit pattern is a value.
        (channel < self.len).then(|| unsafe { self.lanes.add(channel as usize).as_ref() })
    }

    #[inline]
    fn requests(&self) -> &Requests {
        // SAFETY: as in `lanes`.
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

    /// Takes all requests. With the lease.
    #[inline]
    pub fn take_requests(&self, serve: impl FnMut(u32)) {
        self.requests().take(serve);
    }

    /// Whether somebody takes requests who need not be asked to.
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.requests().are_attended()
    }

    /// Memory is wanted back that programs have read, or no longer. What they have read by now
    /// is to be looked at after this. With the lease.
    pub fn press(&self, wanted: bool) {
        self.requests().press(wanted);
    }

    /// Whether a thread that has read something, and waits for more, should leave a request.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.requests().are_pressed()
    }

    /// This thread takes requests from now on, of its own accord.
    pub fn attend(&self) {
        self.requests().attend();
    }

    /// The thread that does is about to sleep until it is rung. False: it should not.
    /// After it has slept it has to say that it [attends](Channels::attend).
    #[must_use]
    pub fn doze(&self) -> bool {
        self.requests().doze()
    }

    /// Nobody does any more. Those requests that are there, with the lease, have to be
    /// taken after this. Whoever sleeps on a lane is woken.
    pub fn retire(&self) {
        self.requests().retire();
        self.rouse();
    }

    /// Sleeps without the lease until the program can go on along a lane, as long as
    /// somebody attends. Ends early at a time in nanoseconds on the monotonic clock, if a
    /// signal comes, or for no reason.
    pub fn sleep(&self, lane: Lane<'_>, owner: u64, until_ns: Option<u64>) {
        let lane_of = (owner, self.bytes.shift());
        lane.record.sleep(lane_of, until_ns, || self.is_attended());
    }

    /// Tells whoever sleeps on a channel's lanes and can go on. After these were published.
    /// Whether anybody does, who has to be [woken](Channels::wake) then.
    #[inline]
    pub fn mark(&self, channel: u32) -> bool {
        let Some([send, receive]) = self.lanes(channel) else {
            return false;
        };
        send.mark() | receive.mark()
    }

    /// Wakes whoever sleeps on a channel's lanes, after they were told. This needs no lease, and
    /// is better done without: they may want it at once.
    #[cold]
    pub fn wake(&self, channel: u32) {
        for lane in self.lanes(channel).into_iter().flatten() {
            lane.wake();
        }
    }

    /// Tells whoever sleeps on any lane to look at what has become of the node.
    pub fn rouse(&self) {
        let lanes = (0..self.used()).filter_map(|channel| self.lanes(channel));
        for lane in lanes.flatten() {
            if lane.tell() {
                lane.wake();
            }
        }
    }

    /// Takes all locks from a process that is dead, and leaves a request of every channel:
    /// the process may have died before it did. With the lease.
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

    /// After a process died with the lease: takes the locks from it that it had by
    /// [`Lane::enter`], which are nobody's who lives, and leaves a request of every channel,
    /// since it may have taken some and not served them. With the lease.
    pub fn mend(&self) {
        for channel in 0..self.used() {
            for lane in self.lanes(channel).into_iter().flatten() {
                let side = Side {
                    futex: lane.lock(),
                    me: Lease::ENGINE.into(),
                };
                // A lock that is another's stays that.
                let _ = side.release();
            }
            self.requests().leave(channel);
        }
    }

    /// Makes a channel `owner`'s, whose program is as far on the lanes as these positions.
    /// With the lease, while no thread has the lock of a lane that is alive.
    pub fn begin(&self, channel: u32, owner: u64, [sent, read]: [u64; 2]) {
        if let Some([send, receive]) = self.lanes(channel) {
            self.requests().note_used(channel);
            // Whoever is killed leaves no channel that nobody knows to be in use.
            compiler_fence(Release);
            send.begin(owner, sent);
            receive.begin(owner, read);
        }
    }

    /// The channel is nobody's. With the lease.
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
    /// What a program may do that has this number for its connection.
    #[inline]
    pub fn bounds(&self, owner: u64) -> Bounds {
        self.record.bounds(owner, self.bytes.shift())
    }

    /// Waits for the lock, for a thread of that process; asks `goes_on` now and then.
    /// `None`: it said no.
    #[inline]
    pub fn lock(&self, process: u16, mut goes_on: impl FnMut() -> bool) -> Option<LaneLock<'a>> {
        let side = self.side(process);
        // A lock is never closed, unless somebody has scribbled over it.
        let locked = side.acquire(|waited| waited != Waited::TimedOut || goes_on());
        locked.is_ok_and(|locked| locked).then(|| self.locked(process))
    }

    /// Takes the lock for the holder of the lease, who does not wait and has it no longer
    /// than the lease. False: another one has it, and is told when it lets go, see
    /// [`LaneLock::release`].
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        self.side(Lease::ENGINE)
            .take_or_request()
            .is_ok_and(|taken| taken)
    }

    /// The end of what [`Lane::enter`] has begun. Whether somebody else with the lease
    /// would have liked to have the lock meanwhile.
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

    /// Asks to be told of a greater limit. To be called before a request is left.
    #[inline]
    pub fn want(&self) {
        self.record.want();
    }

    /// How far the program has come. With the lease, as all that follows.
    #[inline]
    pub fn done(&self) -> u64 {
        self.record.done()
    }

    /// Lets the program be as far as this. With the lane's lock.
    #[inline]
    pub fn advance(&self, position: u64) {
        self.record.advance(position);
    }

    /// Whether the program wants to be told of a greater limit; asked once.
    #[inline]
    pub fn take_wants(&self) -> bool {
        self.record.take_wants()
    }

    /// Says in which block a position lies.
    #[inline]
    pub fn set_block(&self, position: u64, block: u32) {
        self.record.set_block(position, self.bytes.shift(), block);
    }

    /// Lets the program go as far as `limit`, in blocks that were [set](Lane::set_block):
    /// from now on these bytes are the program's, and nobody has a reference to them. It
    /// leaves a request when it comes to `mark`.
    #[inline]
    pub fn publish(&self, limit: u64, mark: u64, state: LaneState) {
        self.record.publish(limit, mark, state);
    }

    /// Furthest limit for a program that is at a position.
    #[inline]
    pub fn furthest(&self, position: u64) -> u64 {
        let shift = self.bytes.shift();
        ((position >> shift) + LANE_BLOCKS as u64).wrapping_shl(shift)
    }
}

/// The right to go along a lane. Nobody waits for anything who has it.
#[derive(Debug)]
pub struct LaneLock<'a> {
    lane: Lane<'a>,
    process: u16,
    _not_send: PhantomData<*const ()>,
}

impl LaneLock<'_> {
    /// Fills the lane with as many bytes as it has room for.
    #[inline]
    pub fn write(&mut self, owner: u64, bytes: &[u8]) -> Moved {
        let shared = self.lane.bytes;
        self.go(owner, bytes.len(), true, |block, within, done, len| {
            // SAFETY: the bytes are within the bounds of the lane, whose lock this is, and
            // so nobody's but this thread's.
            unsafe { shared.write(block, within, &bytes[done..done + len]) }
        })
    }

    /// Fills the lane with all of the bytes, or with none if it has no room for them.
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

    /// Has the lane filled by other means than a copy: with as many of `len` bytes as it has room
    /// for, in 8 blocks at most. `fill` says how many bytes it has written, from the first on.
    ///
    /// # Errors
    ///
    /// What `fill` says; then nothing was written.
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
            // A lane that somebody has scribbled over may name a block twice.
            if used == PLACES || blocks[..used].contains(&block) {
                return false;
            }
            let Some(mut place) = shared.place(block, within, len) else {
                return false;
            };
            // SAFETY: as in `write`; the places are of different blocks, and not used after this call.
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

    /// Takes as many bytes as there are, or looks at them only.
    #[inline]
    pub fn read(&mut self, owner: u64, into: &mut [u8], peek: bool) -> Moved {
        let shared = self.lane.bytes;
        self.go(owner, into.len(), !peek, |block, within, done, len| {
            // SAFETY: as in `write`.
            unsafe { shared.read(block, within, &mut into[done..done + len]) }
        })
    }

    /// Calls `copy(block, offset in it, bytes before, bytes)` for each of the runs that
    /// make up `len` bytes, as many as there are.
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
                    // Not for this process, which may not map the block: it is with the lease.
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

    /// Lets go of the lock. True: somebody with the lease would have liked to have it, and
    /// is to be told by a request.
    #[inline]
    #[must_use]
    pub fn release(self) -> bool {
        let asked = self.lane.side(self.process).release_heeding();
        core::mem::forget(self);
        // It was taken from a process that was thought to be dead: then let others see.
        asked.unwrap_or(true)
    }
}

impl Drop for LaneLock<'_> {
    /// A thread that panics with it; nobody learns who asked for it.
    fn drop(&mut self) {
        let _ = self.lane.side(self.process).release();
    }
}

impl Carver {
    /// `len` channels, [`Channels::MOST`] at most, with bytes in that payload memory.
    ///
    /// # Panics
    ///
    /// If there are more.
    pub fn channels(&mut self, len: u32, payload: &Payload) -> Result<Channels, OutOfMemory> {
        Channels::carve(self, len, payload)
    }
}
