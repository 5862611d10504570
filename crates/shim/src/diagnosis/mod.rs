//! `sock_diag(7)`, by which `ss` lists sockets. A program of a node receives the node's
//! connections, and then the kernel's answers.
//!
//! The socket is the kernel's, and so are the questions. A question for all of TCP's sockets is read when it has been
//! sent. The answers about the node's wait here, and are received first.

mod messages;

use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{iovec, msghdr, sockaddr, sockaddr_nl, socklen_t, ssize_t};
use rustix::net::sockopt;

use self::messages::Question;
use crate::inside::{Inside, is_inside};
use crate::memory::{is_readable, is_writable};
use crate::{listing, start, table};

/// NETLINK_SOCK_DIAG.
const PROTOCOL: c_int = 4;

/// Bytes of a question that are looked at, at most.
const LONGEST: usize = 4 << 10;

/// Sockets with answers that wait, at most. Those of the oldest are forgotten.
const SOCKETS: usize = 64;

/// Answers that wait at a socket.
struct Waiting {
    number: c_int,
    /// Tells it from another socket of that number.
    cookie: u64,
    datagrams: VecDeque<Vec<u8>>,
}

static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// Whether any answers wait.
static ANY: AtomicBool = AtomicBool::new(false);

fn waiting() -> MutexGuard<'static, Vec<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at a message that was sent to an address, which may be a question to the kernel.
///
/// # Safety
///
/// The address is null or has `len` bytes; `parts` is null or points to so many parts, each of
/// which is readable.
#[inline]
pub(crate) unsafe fn sent(
    number: c_int,
    to: *const sockaddr,
    len: socklen_t,
    (parts, count): (*const iovec, usize),
) {
    let is_named = !to.is_null() && len as usize >= size_of::<sockaddr_nl>();
    // SAFETY: the kernel has read this memory in the program's call, which has not returned yet.
    if is_named && unsafe { (*to).sa_family } == libc::AF_NETLINK as u16 && start::is_wanted() && !is_inside()
    {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        unsafe { ask(number, parts, count) };
    }
}

/// # Safety
///
/// `parts` is null or points to `count` parts of the program's, each of which is readable until the
/// call returns.
#[cold]
unsafe fn ask(number: c_int, parts: *const iovec, count: usize) {
    let _inside = Inside::enter();
    let descriptor = table::borrow(&number);
    let protocol = sockopt::socket_protocol(descriptor).ok().flatten();
    let is_diagnosis = protocol.is_some_and(|protocol| protocol.as_raw().get() == PROTOCOL as u32);
    let Ok(cookie) = sockopt::socket_cookie(descriptor) else {
        return;
    };
    if !is_diagnosis || !is_readable(parts, count) {
        return;
    }
    // SAFETY: `parts` is not null, and `count` parts are readable, as checked above. The program
    // keeps them until its call returns.
    let parts = unsafe { core::slice::from_raw_parts(parts, count) };
    let mut bytes = Vec::new();
    for part in parts {
        let len = part.iov_len.min(LONGEST - bytes.len());
        if !is_readable(part.iov_base.cast::<u8>(), len) {
            return;
        }
        // SAFETY: `iov_base` was just checked to have `len` readable bytes. The program keeps them
        // until its call returns.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(part.iov_base.cast::<u8>(), len) });
    }
    let Some(question) = Question::parse(&bytes) else {
        return;
    };
    let sockets = listing::of_node(question.is_ipv6());
    let datagrams = question.answers(&sockets, port_of(number));
    let mut waiting = waiting();
    waiting.retain(|waiting| waiting.number != number);
    if !datagrams.is_empty() {
        if waiting.len() == SOCKETS {
            waiting.remove(0);
        }
        waiting.push(Waiting {
            number,
            cookie,
            datagrams,
        });
    }
    ANY.store(!waiting.is_empty(), Relaxed);
}

/// The address of a socket of netlink, by which the kernel answers it.
fn port_of(number: c_int) -> u32 {
    // SAFETY: all zeroes is a `sockaddr_nl`, which has integers alone.
    let mut name: sockaddr_nl = unsafe { core::mem::zeroed() };
    let mut len = size_of::<sockaddr_nl>() as socklen_t;
    // SAFETY: `name` is a local with room for `len` bytes, to which the kernel writes during this
    // call alone.
    let told = unsafe { crate::next::getsockname(number, (&raw mut name).cast(), &mut len) };
    if told == 0 { name.nl_pid } else { 0 }
}

/// Takes an answer that waits, if one does. `take` copies it to its place, and returns how many of
/// its bytes it copied.
#[inline]
fn receive(number: c_int, flags: c_int, take: impl FnOnce(&[u8]) -> ssize_t) -> Option<ssize_t> {
    if !ANY.load(Relaxed) || is_inside() {
        return None;
    }
    let _inside = Inside::enter();
    let mut waiting = waiting();
    let at = waiting.iter().position(|waiting| waiting.number == number)?;
    if sockopt::socket_cookie(table::borrow(&number)) != Ok(waiting[at].cookie) {
        waiting.remove(at);
        return None;
    }
    let received = take(waiting[at].datagrams.front()?);
    if flags & libc::MSG_PEEK == 0 {
        waiting[at].datagrams.pop_front();
        if waiting[at].datagrams.is_empty() {
            waiting.remove(at);
            ANY.store(!waiting.is_empty(), Relaxed);
        }
    }
    Some(received)
}

/// Copies an answer into the program's parts; as many bytes as found room.
///
/// # Safety
///
/// The parts are the program's, and writable.
unsafe fn fill(parts: &[iovec], mut answer: &[u8]) -> usize {
    let len = answer.len();
    for part in parts {
        let (here, rest) = answer.split_at(part.iov_len.min(answer.len()));
        if !is_writable(part.iov_base.cast::<u8>(), here.len()) {
            break;
        }
        // SAFETY: `iov_base` was just checked to have room for these bytes. The program keeps it
        // until its call returns.
        unsafe {
            part.iov_base
                .cast::<u8>()
                .copy_from_nonoverlapping(here.as_ptr(), here.len());
        }
        answer = rest;
    }
    len - answer.len()
}

/// `recvmsg(2)` of an answer about the node's sockets. Returns `None` if the kernel's answers are
/// next.
///
/// # Safety
///
/// `message` is null or a message of the program's.
#[inline]
pub(crate) unsafe fn receive_message(number: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    receive(number, flags, |answer| {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let Some(message) = (unsafe { message.as_mut() }) else {
            return 0;
        };
        let parts = match is_readable(message.msg_iov, message.msg_iovlen) && message.msg_iovlen > 0 {
            // SAFETY: `msg_iov` was just checked to have so many readable parts. The program keeps
            // them until its call returns.
            true => unsafe { core::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) },
            false => &[],
        };
        // SAFETY: `parts` are those of the program's message, which `recvmsg` may write to until
        // the call returns.
        let filled = unsafe { fill(parts, answer) };
        // SAFETY: all zeroes is a `sockaddr_nl`, which has integers alone.
        let mut kernel: sockaddr_nl = unsafe { core::mem::zeroed() };
        kernel.nl_family = libc::AF_NETLINK as u16;
        let room = (message.msg_namelen as usize).min(size_of::<sockaddr_nl>());
        if !message.msg_name.is_null() && is_writable(message.msg_name.cast::<u8>(), room) {
            // SAFETY: `msg_name` was just checked to have room for these bytes. The program keeps
            // it until its call returns.
            unsafe {
                message
                    .msg_name
                    .cast::<u8>()
                    .copy_from_nonoverlapping((&raw const kernel).cast(), room);
            }
            message.msg_namelen = size_of::<sockaddr_nl>() as socklen_t;
        }
        message.msg_controllen = 0;
        message.msg_flags = if filled < answer.len() { libc::MSG_TRUNC } else { 0 };
        match flags & libc::MSG_TRUNC {
            0 => filled as ssize_t,
            _ => answer.len() as ssize_t,
        }
    })
}

/// `recv(2)` of an answer about the node's sockets. Returns `None` if the kernel's answers are
/// next.
///
/// # Safety
///
/// The buffer is the program's, and writable.
#[inline]
pub(crate) unsafe fn receive_bytes(
    number: c_int,
    (buffer, len): (*mut core::ffi::c_void, usize),
    flags: c_int,
) -> Option<ssize_t> {
    receive(number, flags, |answer| {
        let part = iovec {
            iov_base: buffer,
            iov_len: len,
        };
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let filled = unsafe { fill(&[part], answer) };
        match flags & libc::MSG_TRUNC {
            0 => filled as ssize_t,
            _ => answer.len() as ssize_t,
        }
    })
}
