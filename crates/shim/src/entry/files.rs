//! `sendfile` and `splice`, between connections and the kernel's files.

use core::cell::RefCell;
use core::ffi::{c_int, c_short, c_uint, c_void};
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use libc::{loff_t, off_t, pollfd, size_t, ssize_t};
use rustix::fs::OFlags;
use toehold_posix::errno::{Errno, Outcome};
use toehold_shm::{Choice, Way, copy_past_caches};

use super::on_stream;
use crate::answer::{errno, outcome, set_errno};
use crate::socket::Stream;
use crate::{next, table, wait};

/// Most bytes that are copied at once. They make a super-frame, and stay in the core's own cache
/// until they are copied again.
const PIECE: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with room for `len` bytes, [`PIECE`] at most. The room is the thread's own, unless this is a
/// signal's handler that has interrupted a user of it.
fn with_buffer<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let len = len.min(PIECE);
    BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            work(&mut buffer[..len])
        }
        Err(_) => work(&mut vec![0; len]),
    })
}

/// `sendfile(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let sent = on_stream(out, |stream| {
        // SAFETY: INTERCEPT contract: `offset` is null, or points to a place that is valid until
        // this call returns.
        send_file(stream, from, unsafe { place(offset) }?, count)
    })
    .or_else(|| {
        if !table::has(from) || is_pipe(out) != Ok(true) {
            return None;
        }
        on_stream(from, |stream| {
            // SAFETY: INTERCEPT contract: `offset` is null, or points to a place that is valid
            // until this call returns.
            send_to_pipe(stream, out, unsafe { place(offset) }?, count)
        })
    });
    match sent {
        Some(sent) => {
            pipe(sent);
            sent
        }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::sendfile(out, from, offset, count) },
    }
}

/// `sendfile(2)` of programs with large files.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { sendfile(out, from, offset, count) }
}

/// # Safety
///
/// `offset` is null, or points to a value that no other code uses as long as the result is used.
unsafe fn place<'a>(offset: *mut off_t) -> Outcome<Option<&'a mut off_t>> {
    match offset.is_null() {
        true => Ok(None),
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        false => unsafe { super::wanted(offset) }.map(Some),
    }
}

fn pipe(sent: ssize_t) {
    if sent < 0 && errno() == libc::EPIPE {
        // SAFETY: `raise` takes no pointer. It sends this thread a signal, as the kernel's call
        // would.
        unsafe { libc::raise(libc::SIGPIPE) };
        set_errno(libc::EPIPE);
    }
}

/// Sends the file's bytes from a place on, or from the position of the program's descriptor, which
/// then moves as far as bytes were sent.
fn send_file(stream: &Stream, from: c_int, place: Option<&mut off_t>, count: size_t) -> Outcome<ssize_t> {
    let own = place.is_none();
    let mut here = match &place {
        Some(place) => **place,
        // SAFETY: the call takes numbers alone, and no pointer.
        None => match outcome(unsafe { libc::lseek(from, 0, libc::SEEK_CUR) } as ssize_t) {
            // It has no places that a program could count on.
            Err(Errno::SPIPE) => return Err(Errno::INVAL),
            here => here? as off_t,
        },
    };
    let (total, ended) = with_buffer(count, |buffer| send_from(stream, from, here, count, buffer));
    here += total as off_t;
    if own && total > 0 {
        // SAFETY: the call takes numbers alone, and no pointer.
        unsafe { libc::lseek(from, here, libc::SEEK_SET) };
    }
    if let Some(place) = place {
        *place = here;
    }
    match ended {
        Err(errno) if total == 0 => Err(errno),
        _ => Ok(total as ssize_t),
    }
}

/// Sends bytes of a file. Returns how many were sent, and the reason why no more were.
fn send_from(
    stream: &Stream,
    from: c_int,
    here: off_t,
    count: size_t,
    buffer: &mut [u8],
) -> (usize, Outcome<()>) {
    let mut total = 0;
    let mut in_place = true;
    while total < count {
        if in_place {
            match stream.send_in_place(count - total, |places| {
                read_cached(from, here + total as off_t, places, buffer)
            }) {
                Ok(Some(0)) => break,
                Ok(Some(sent)) => {
                    total += sent;
                    continue;
                }
                Ok(None) => {}
                Err(_) => in_place = false,
            }
        }
        let mut room = buffer.len().min(count - total);
        if stream.is_nonblocking() {
            // What finds no room is not read. At least a byte, so that it is waited for.
            room = room.min(stream.inner.send_room().unwrap_or(room).max(1));
        }
        // SAFETY: `room` is at most the length of `buffer`, which is borrowed mutably for this
        // call.
        let read = unsafe {
            libc::pread(
                from,
                buffer.as_mut_ptr().cast::<c_void>(),
                room,
                here + total as off_t,
            )
        };
        let read = match outcome(read) {
            Ok(0) => break,
            Ok(read) => read as usize,
            Err(errno) => return (total, Err(errno)),
        };
        let is_more = read == room && total + read < count && goes_on(from, here + (total + read) as off_t);
        let more = if is_more { libc::MSG_MORE } else { 0 };
        match stream.send(&[IoSlice::new(&buffer[..read])], more) {
            Ok(sent) => {
                total += sent as usize;
                if (sent as usize) < read {
                    break;
                }
            }
            Err(errno) => return (total, Err(errno)),
        }
    }
    (total, Ok(()))
}

/// Whether a file has a byte at a place. If not, what comes before it is the last, and is not to wait for more.
fn goes_on(from: c_int, here: off_t) -> bool {
    let mut byte = 0_u8;
    // SAFETY: `byte` is a local, to which the kernel writes during this call alone.
    unsafe { libc::pread(from, (&raw mut byte).cast(), 1, here) == 1 }
}

/// Reads the part of a file that the kernel has in its memory. While a connection waits for it, all users of
/// the connection wait. So nothing is waited for that is on a disk, or comes over a network.
///
/// The kernel writes through the caches. If the peer's core is far, each store waits for its line
/// there. Then the bytes go to this core's own cache first, and from there past all caches.
fn read_cached(
    from: c_int,
    here: off_t,
    places: &mut [IoSliceMut<'_>],
    buffer: &mut [u8],
) -> io::Result<usize> {
    static CHOICE: Choice = Choice::new();
    let len = places.iter().map(|place| place.len()).sum();
    let attempt = CHOICE.begin(len);
    let read = match attempt.way() {
        Way::Cached => read_now(from, here, places),
        Way::Streamed => read_and_stream(from, here, places, buffer),
    }?;
    CHOICE.end(attempt, read);
    Ok(read)
}

fn read_and_stream(
    from: c_int,
    here: off_t,
    places: &mut [IoSliceMut<'_>],
    buffer: &mut [u8],
) -> io::Result<usize> {
    let wanted: usize = places.iter().map(|place| place.len()).sum();
    let (mut total, mut held) = (0, 0..0);
    for place in places {
        let mut place = &mut place[..];
        while !place.is_empty() {
            if held.is_empty() {
                let room = buffer.len().min(wanted - total);
                held = match read_now(
                    from,
                    here + total as off_t,
                    &mut [IoSliceMut::new(&mut buffer[..room])],
                ) {
                    Ok(0) => return Ok(total),
                    Ok(read) => 0..read,
                    Err(_) if total > 0 => return Ok(total),
                    Err(error) => return Err(error),
                };
            }
            let (piece, rest) = place.split_at_mut(place.len().min(held.len()));
            copy_past_caches(&buffer[held.start..held.start + piece.len()], piece);
            held.start += piece.len();
            total += piece.len();
            place = rest;
        }
    }
    Ok(total)
}

fn read_now(from: c_int, here: off_t, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    // SAFETY: `IoSliceMut` is an `iovec` of a place that may be written.
    let read = unsafe {
        next::preadv2(
            from,
            places.as_mut_ptr().cast::<libc::iovec>(),
            places.len() as c_int,
            here,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// `splice(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let offsets = (!from_offset.is_null(), !to_offset.is_null());
    let moved = on_stream(to, |stream| {
        match are_spliced((from, OFlags::RDONLY), offsets, len, flags)? {
            true => splice_in(stream, from, to, len, flags),
            false => Ok(0),
        }
    })
    .or_else(|| {
        on_stream(from, |stream| {
            match are_spliced((to, OFlags::WRONLY), (offsets.1, offsets.0), len, flags)? {
                true => splice_out(stream, to, len, flags),
                false => Ok(0),
            }
        })
    });
    match moved {
        Some(moved) => {
            pipe(moved);
            moved
        }
        // SAFETY: INTERCEPT contract: the program's arguments, passed on unchanged for this call.
        None => unsafe { next::splice(from, from_offset, to, to_offset, len, flags) },
    }
}

/// Whether there is anything to be moved between a pipe, which is for reading or writing, and a
/// connection, of which neither has places. As the kernel, in the order of what may be wrong.
fn are_spliced(
    (pipe, access): (c_int, OFlags),
    (of_pipe, of_connection): (bool, bool),
    len: size_t,
    flags: c_uint,
) -> Outcome<bool> {
    const KNOWN: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    if len == 0 {
        return Ok(false);
    }
    if flags & !KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let is_pipe = is_pipe(pipe)?;
    if is_pipe && of_pipe {
        return Err(Errno::SPIPE);
    }
    check_access(pipe, access)?;
    match is_pipe && !of_connection {
        true => Ok(true),
        false => Err(Errno::INVAL),
    }
}

fn is_pipe(number: c_int) -> Outcome<bool> {
    let stat = rustix::fs::fstat(table::borrow(&number)).map_err(|errno| Errno(errno.raw_os_error()))?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo)
}

/// Whether a descriptor is for reading, or for writing.
fn check_access(number: c_int, access: OFlags) -> Outcome<()> {
    let flags = rustix::fs::fcntl_getfl(table::borrow(&number));
    let has = flags.is_ok_and(|flags| [access, OFlags::RDWR].contains(&(flags & OFlags::ACCMODE)));
    if has { Ok(()) } else { Err(Errno::BADF) }
}

/// Moves bytes from a pipe into a connection. What is taken out of the pipe has found room before.
fn splice_in(stream: &Stream, from: c_int, to: c_int, len: size_t, flags: c_uint) -> Outcome<ssize_t> {
    let at_once = flags & libc::SPLICE_F_NONBLOCK != 0 || is_nonblocking(from);
    let state = await_state(from, libc::POLLIN, at_once)?;
    if state & libc::POLLIN == 0 {
        // No process writes to the pipe any more, or none has done so yet.
        return if state == 0 { Err(Errno::AGAIN) } else { Ok(0) };
    }
    // A connection that has ended says so before anything is taken out of the pipe.
    match stream.send(&[], 0) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(errno) => return Err(errno),
    }
    let mut room = stream.inner.send_room().map_err(Errno::from)?;
    if room == 0 && stream.is_nonblocking() {
        return Err(Errno::AGAIN);
    }
    if room == 0 {
        wait_for(to, libc::POLLOUT, wait::poll)?;
        // If there still is none, sending says why.
        stream.send(&[], 0)?;
        room = stream.inner.send_room().map_err(Errno::from)?.max(1);
    }
    let mut buffer = vec![0_u8; len.min(PIECE).min(room)];
    // SAFETY: `buffer` is a local vector of that length, to which only the kernel writes during
    // this call.
    let read = outcome(unsafe { next::read(from, buffer.as_mut_ptr().cast(), buffer.len()) })? as usize;
    let more = match flags & libc::SPLICE_F_MORE {
        0 => 0,
        _ => libc::MSG_MORE,
    };
    let mut rest = &buffer[..read];
    while !rest.is_empty() {
        match stream.send(&[IoSlice::new(rest)], more) {
            Ok(sent) => rest = &rest[sent as usize..],
            // Another thread has taken the room. What was taken out of the pipe is not lost.
            Err(Errno::AGAIN | Errno::INTR) => {
                let _ = wait_for(to, libc::POLLOUT, wait::poll);
            }
            Err(errno) if rest.len() == read => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(read as ssize_t)
}

/// `sendfile(2)` from a connection, which goes into a pipe only.
fn send_to_pipe(stream: &Stream, to: c_int, place: Option<&mut off_t>, count: size_t) -> Outcome<ssize_t> {
    if place.is_some() {
        return Err(Errno::SPIPE);
    }
    if count.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    check_access(to, OFlags::WRONLY)?;
    match count {
        0 => Ok(0),
        _ => splice_out(stream, to, count, 0),
    }
}

/// Moves bytes from a connection into a pipe. What the pipe has no room for stays in the
/// connection.
fn splice_out(stream: &Stream, to: c_int, len: size_t, flags: c_uint) -> Outcome<ssize_t> {
    let at_once = flags & libc::SPLICE_F_NONBLOCK != 0 || is_nonblocking(to);
    match await_state(to, libc::POLLOUT, at_once)? {
        0 => return Err(Errno::AGAIN),
        // No process reads the pipe any more.
        state if state & libc::POLLERR != 0 => return Err(Errno::PIPE),
        _ => {}
    }
    let mut buffer = vec![0_u8; len.min(PIECE)];
    // The flag is about the pipe.
    let seen = stream.receive(&mut [IoSliceMut::new(&mut buffer)], libc::MSG_PEEK)? as usize;
    if seen == 0 {
        return Ok(0);
    }
    let written = loop {
        match fill(to, &buffer[..seen]) {
            Err(Errno::AGAIN) if !at_once => wait_for(to, libc::POLLOUT, polled)?,
            written => break written?,
        }
    };
    stream.receive(
        &mut [IoSliceMut::new(&mut buffer[..written as usize])],
        libc::MSG_DONTWAIT,
    )?;
    Ok(written)
}

/// Writes as many bytes as a pipe has room for, without waiting for more.
fn fill(pipe: c_int, bytes: &[u8]) -> Outcome<ssize_t> {
    let part = IoSlice::new(bytes);
    // SAFETY: `IoSlice` is an `iovec`, and there is one.
    let written = unsafe { next::pwritev2(pipe, (&raw const part).cast(), 1, -1, libc::RWF_NOWAIT) };
    match outcome(written) {
        // Not a pipe, or before Linux 6.5: so many bytes find room in one that says that it has some.
        Err(Errno::OPNOTSUPP) if is_writable(pipe) => {
            let bytes = &bytes[..bytes.len().min(libc::PIPE_BUF)];
            // SAFETY: `bytes` is a slice of that length, borrowed for this call.
            outcome(unsafe { next::write(pipe, bytes.as_ptr().cast(), bytes.len()) })
        }
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
        written => written,
    }
}

fn is_nonblocking(number: c_int) -> bool {
    let flags = rustix::fs::fcntl_getfl(table::borrow(&number));
    flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

fn is_writable(number: c_int) -> bool {
    await_state(number, libc::POLLOUT, true).is_ok_and(|state| state != 0)
}

/// The readiness of a descriptor of the kernel's, at once or after waiting for it.
fn await_state(number: c_int, events: c_short, at_once: bool) -> Outcome<c_short> {
    let mut state = [pollfd {
        fd: number,
        events,
        revents: 0,
    }];
    polled(&mut state, at_once.then_some(Duration::ZERO))?;
    Ok(state[0].revents)
}

/// Waits until a descriptor is ready, or a signal comes.
fn wait_for<T>(
    number: c_int,
    events: c_short,
    poll: fn(&mut [pollfd], Option<Duration>) -> Outcome<T>,
) -> Outcome<()> {
    let mut state = [pollfd {
        fd: number,
        events,
        revents: 0,
    }];
    poll(&mut state, None).map(drop)
}

/// Polls the kernel's descriptors: at once, or without an end.
fn polled(fds: &mut [pollfd], timeout: Option<Duration>) -> Outcome<c_int> {
    let timeout = if timeout.is_some() { 0 } else { -1 };
    // SAFETY: `fds` is a slice of that length, borrowed mutably for this call.
    outcome(unsafe { next::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) } as ssize_t)
        .map(|ready| ready as c_int)
}
