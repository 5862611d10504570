//! packetdrill's functions: from C's arguments to the node's calls and back.
//!
//! Nothing is decided here but what the form of the interface demands. Every
//! function relies on what its caller promises by calling it: `user` is the node
//! that [`table`] put into the interface and `free` has not taken back, and each
//! pointer is null or valid for the length that comes with it.

use crate::abi::{Interface, User};
use crate::errno::{Errno, Outcome};
use crate::node::{Node, Patience, State};
use crate::sockets::{Direction, patience_of};
use crate::{address, message, splice};
use core::ffi::{c_int, c_longlong, c_uint, c_ulong, c_void};
use core::time::Duration;
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
    timezone, useconds_t,
};

/// Control message that says how much is left to read.
const TCP_CM_INQ: c_int = 36;

/// The table for a node, which becomes the table's.
pub(crate) fn table(node: Box<Node>) -> Interface {
    Interface {
        userdata: Box::into_raw(node).cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice: splice_call,
    }
}

/// A result as C has it: −1 and `errno` for an error.
trait Answer {
    const FAILED: Self;
}

impl Answer for c_int {
    const FAILED: Self = -1;
}

impl Answer for ssize_t {
    const FAILED: Self = -1;
}

fn answer<T: Answer>(outcome: Outcome<T>) -> T {
    outcome.unwrap_or_else(|Errno(number)| {
        // SAFETY: the address is that of this thread's `errno`.
        unsafe { *libc::__errno_location() = number };
        T::FAILED
    })
}

fn count(outcome: Outcome<usize>) -> ssize_t {
    answer(outcome.map(|number| number as ssize_t))
}

fn done(outcome: Outcome<()>) -> c_int {
    answer(outcome.map(|()| 0))
}

/// The node behind `userdata`.
///
/// # Safety
///
/// `user` comes from [`table`] and has not been freed.
unsafe fn node<'a>(user: User) -> &'a Node {
    // SAFETY: the caller says that the node is alive; it is shared only.
    unsafe { &*user.cast::<Node>() }
}

/// Bytes a program passes.
///
/// # Safety
///
/// `bytes` is null or readable for `len` bytes.
unsafe fn input<'a>(bytes: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: the caller says that so many bytes are readable.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// Room a program passes.
///
/// # Safety
///
/// `bytes` is null or writable for `len` bytes that nothing else refers to.
unsafe fn output<'a>(bytes: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: the caller says that so many bytes are writable.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts_mut(bytes.cast(), len) }),
    }
}

unsafe extern "C" fn free(user: User) {
    // SAFETY: the node was boxed by `table`, and this is the last call.
    drop(unsafe { Box::from_raw(user.cast::<Node>()) });
}

unsafe extern "C" fn socket(user: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    answer(node.call(|state| state.socket(domain, kind, protocol)))
}

unsafe extern "C" fn bind(user: User, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, to) = unsafe { (node(user), address::read(to, len)) };
    done(to.and_then(|to| node.call(|state| state.bind(fd, to))))
}

unsafe extern "C" fn listen(user: User, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    done(node.call(|state| state.listen(fd, backlog)))
}

unsafe extern "C" fn accept(user: User, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Receive, 0);
    let outcome = node.call_waiting(patience, |state| state.accept(fd));
    answer(outcome.map(|(accepted, peer, domain)| {
        // SAFETY: as the module's doc says.
        unsafe { address::write(peer, domain, from, len) };
        accepted
    }))
}

unsafe extern "C" fn connect(user: User, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, to) = unsafe { (node(user), address::read(to, len)) };
    let begun = to.and_then(|to| node.call(|state| state.begin_connect(fd, to)));
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Send, 0);
    done(begun.and_then(|()| node.call_waiting(patience, |state| state.connected(fd))))
}

fn receive_into(node: &Node, fd: c_int, into: &mut [u8], flags: c_int) -> Outcome<usize> {
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Receive, flags);
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let mut filled = 0;
    let outcome = node.call_waiting(patience, |state| {
        let received = state.receive(fd, &mut into[filled..], flags)?;
        filled += received;
        if all && received > 0 && filled < into.len() {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    });
    if filled > 0 {
        Ok(filled)
    } else {
        outcome.map(|()| 0)
    }
}

unsafe extern "C" fn read(user: User, fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: as the module's doc says.
    unsafe { recv(user, fd, into, len, 0) }
}

unsafe extern "C" fn readv(user: User, fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    let outcome = (|| {
        let number = usize::try_from(number).map_err(|_| Errno::INVAL)?;
        // SAFETY: as the module's doc says.
        let (node, parts) = unsafe { (node(user), message::parts(parts, number)?) };
        let mut bytes = vec![0; message::room(parts)?];
        let received = receive_into(node, fd, &mut bytes, 0)?;
        // SAFETY: as the module's doc says.
        unsafe { message::scatter(&bytes[..received], parts) };
        Ok(received)
    })();
    count(outcome)
}

unsafe extern "C" fn recv(user: User, fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the module's doc says.
    let (node, into) = unsafe { (node(user), output(into, len)) };
    count(into.and_then(|into| receive_into(node, fd, into, flags)))
}

unsafe extern "C" fn recvfrom(
    user: User,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    _from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the module's doc says. A stream does not say whom it is from.
    unsafe {
        let received = recv(user, fd, into, len, flags);
        if received >= 0 && !from_len.is_null() {
            from_len.write(0);
        }
        received
    }
}

unsafe extern "C" fn recvmsg(user: User, fd: c_int, into: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the module's doc says.
    let (node, Some(into)) = (unsafe { (node(user), into.as_mut()) }) else {
        return count(Err(Errno::FAULT));
    };
    // SAFETY: as the module's doc says.
    count(unsafe { receive_message(node, fd, into, flags) })
}

/// # Safety
///
/// The message's parts and areas are valid for their lengths.
unsafe fn receive_message(node: &Node, fd: c_int, into: &mut msghdr, flags: c_int) -> Outcome<usize> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: as this function's own.
        return unsafe { receive_report(node, fd, into) };
    }
    // SAFETY: as this function's own.
    let parts = unsafe { message::parts(into.msg_iov, into.msg_iovlen) }?;
    let mut bytes = vec![0; message::room(parts)?];
    let received = receive_into(node, fd, &mut bytes, flags)?;
    into.msg_flags = 0;
    into.msg_namelen = 0;
    let unread = node.call(|state| state.unread(fd))?;
    // SAFETY: as this function's own.
    unsafe {
        message::scatter(&bytes[..received], parts);
        match unread {
            Some(unread) => message::put_control(into, libc::IPPROTO_TCP, TCP_CM_INQ, &unread.to_ne_bytes()),
            None => into.msg_controllen = 0,
        }
    }
    Ok(received)
}

/// # Safety
///
/// The message's control area is valid for its length.
unsafe fn receive_report(node: &Node, fd: c_int, into: &mut msghdr) -> Outcome<usize> {
    let (report, domain) = node.call(|state| {
        state.update_completions(fd)?;
        let socket = state.descriptors.socket(fd)?;
        let report = socket.completions.take().ok_or(Errno::AGAIN)?;
        Ok((report, socket.domain))
    })?;
    into.msg_flags = libc::MSG_ERRQUEUE;
    into.msg_namelen = 0;
    let (level, kind) = match domain {
        libc::AF_INET => (libc::SOL_IP, libc::IP_RECVERR),
        _ => (libc::SOL_IPV6, libc::IPV6_RECVERR),
    };
    // SAFETY: as this function's own.
    unsafe { message::put_control(into, level, kind, &message::extended_error(report, domain)) };
    Ok(0)
}

fn send_from(node: &Node, fd: c_int, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    let patience = |state: &mut State| patience_of(&mut state.descriptors, fd, Direction::Send, flags);
    let mut sent = 0;
    let outcome = node.call_waiting(patience, |state| {
        sent += state.send(fd, &bytes[sent..], flags)?;
        if sent < bytes.len() {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    });
    if sent > 0 && flags & libc::MSG_ZEROCOPY != 0 {
        node.call(|state| {
            let wanted = state.descriptors.socket(fd)?.completions.wanted;
            if wanted {
                state.sent_zerocopy(fd, sent)
            } else {
                Ok(())
            }
        })?;
    }
    if sent > 0 { Ok(sent) } else { outcome.map(|()| 0) }
}

unsafe extern "C" fn write(user: User, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as the module's doc says.
    unsafe { send(user, fd, from, len, 0) }
}

unsafe extern "C" fn writev(user: User, fd: c_int, parts: *const iovec, number: c_int) -> ssize_t {
    let outcome = (|| {
        let number = usize::try_from(number).map_err(|_| Errno::INVAL)?;
        // SAFETY: as the module's doc says.
        let (node, bytes) = unsafe { (node(user), message::gather(message::parts(parts, number)?)?) };
        send_from(node, fd, &bytes, 0)
    })();
    count(outcome)
}

unsafe extern "C" fn send(user: User, fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the module's doc says.
    let (node, from) = unsafe { (node(user), input(from, len)) };
    count(from.and_then(|from| send_from(node, fd, from, flags)))
}

unsafe extern "C" fn sendto(
    user: User,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    _to: *const sockaddr,
    _to_len: socklen_t,
) -> ssize_t {
    // SAFETY: as the module's doc says. A stream goes where it is connected to.
    unsafe { send(user, fd, from, len, flags) }
}

unsafe extern "C" fn sendmsg(user: User, fd: c_int, from: *const msghdr, flags: c_int) -> ssize_t {
    let outcome = (|| {
        // SAFETY: as the module's doc says.
        let (node, from) = unsafe { (node(user), from.as_ref().ok_or(Errno::FAULT)?) };
        // SAFETY: as the module's doc says.
        let bytes = unsafe { message::gather(message::parts(from.msg_iov, from.msg_iovlen)?)? };
        send_from(node, fd, &bytes, flags)
    })();
    count(outcome)
}

unsafe extern "C" fn fcntl(user: User, fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    answer(node.call(|state| state.fcntl(fd, command, argument)))
}

unsafe extern "C" fn ioctl(user: User, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    let outcome = node.call(|state| state.ioctl(fd, request));
    answer(outcome.map(|number| {
        // SAFETY: these requests take the address of an int.
        unsafe { value.write(number) };
        0
    }))
}

unsafe extern "C" fn close(user: User, fd: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    done(node.call(|state| state.close(fd)))
}

unsafe extern "C" fn shutdown(user: User, fd: c_int, how: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    done(node.call(|state| state.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let outcome = (|| {
        // SAFETY: as the module's doc says.
        let (node, len) = unsafe { (node(user), len.as_mut().ok_or(Errno::FAULT)?) };
        let bytes = node.call(|state| state.option(fd, level, name))?;
        // SAFETY: as the module's doc says.
        let room = unsafe { output(value, *len as usize) }?;
        let used = bytes.len().min(room.len());
        room[..used].copy_from_slice(&bytes[..used]);
        *len = used as socklen_t;
        Ok(())
    })();
    done(outcome)
}

unsafe extern "C" fn setsockopt(
    user: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, value) = unsafe { (node(user), input(value, len as usize)) };
    done(value.and_then(|value| node.call(|state| state.set_option(fd, level, name, value))))
}

unsafe extern "C" fn poll(user: User, fds: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, fds) = unsafe {
        let fds: &mut [pollfd] = if number == 0 {
            &mut []
        } else {
            core::slice::from_raw_parts_mut(fds, number as usize)
        };
        (node(user), fds)
    };
    let outcome = node.call_waiting(
        |_| Ok(milliseconds(timeout)),
        |state| {
            let mut ready = 0;
            for entry in fds.iter_mut() {
                let always = libc::POLLERR | libc::POLLHUP;
                entry.revents = match state.poll_bits(entry.fd) {
                    _ if entry.fd < 0 => 0,
                    Ok(bits) => bits & (entry.events | always),
                    Err(_) => libc::POLLNVAL,
                };
                ready += c_int::from(entry.revents != 0);
            }
            if ready == 0 { Err(Errno::AGAIN) } else { Ok(ready) }
        },
    );
    answer(none_if_over(outcome))
}

/// A poll that ends with its time has found nothing, which is no error.
fn none_if_over(outcome: Outcome<c_int>) -> Outcome<c_int> {
    if outcome == Err(Errno::AGAIN) {
        Ok(0)
    } else {
        outcome
    }
}

fn milliseconds(timeout: c_int) -> Patience {
    match u64::try_from(timeout) {
        Ok(0) => Patience::None,
        Ok(timeout) => Patience::For(Duration::from_millis(timeout)),
        Err(_) => Patience::Endless,
    }
}

unsafe extern "C" fn netdev_send(user: User, packet: *const c_void, len: size_t) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, packet) = unsafe { (node(user), input(packet, len)) };
    done(packet.map(|packet| node.inject(packet)))
}

unsafe extern "C" fn netdev_receive(
    user: User,
    into: *mut c_void,
    len: *mut size_t,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, into) = unsafe { (node(user), output(into, *len)) };
    let Ok(into) = into else {
        return done(Err(Errno::FAULT));
    };
    // No packet at all is an empty one: packetdrill would ask again for ever if
    // it were an error, but nothing can come any more.
    let (packet, sent_at) = node.sniff().unwrap_or_else(|| {
        eprintln!("toehold: a packet is expected, but the stack has nothing to send and no timer that might");
        (Vec::new(), node.time_us())
    });
    let used = packet.len().min(into.len());
    into[..used].copy_from_slice(&packet[..used]);
    // SAFETY: as the module's doc says.
    unsafe {
        len.write(used);
        time_us.write(sent_at as c_longlong);
    }
    0
}

unsafe extern "C" fn usleep(user: User, micros: useconds_t) -> c_int {
    // SAFETY: as the module's doc says.
    unsafe { node(user) }.pass(Duration::from_micros(micros.into()));
    0
}

unsafe extern "C" fn gettimeofday(user: User, time: *mut timeval, _zone: *mut timezone) -> c_int {
    // SAFETY: as the module's doc says.
    let (node, time) = unsafe { (node(user), time.as_mut()) };
    let Some(time) = time else {
        return done(Err(Errno::FAULT));
    };
    let now = node.time_us();
    time.tv_sec = (now / 1_000_000) as libc::time_t;
    time.tv_usec = (now % 1_000_000) as libc::suseconds_t;
    0
}

unsafe extern "C" fn epoll_create(user: User, size: c_int) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    if size <= 0 {
        return done(Err(Errno::INVAL));
    }
    answer(node.call(State::epoll_create))
}

unsafe extern "C" fn epoll_ctl(
    user: User,
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: as the module's doc says. Removal needs no event.
    let (node, event) = unsafe {
        let event = if event.is_null() {
            None
        } else {
            Some(event.read_unaligned())
        };
        (node(user), event)
    };
    if event.is_none() && operation != libc::EPOLL_CTL_DEL {
        return done(Err(Errno::FAULT));
    }
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    done(node.call(|state| {
        if !state.descriptors.contains(fd) {
            return Err(Errno::BADF);
        }
        state.descriptors.epoll(set)?.control(operation, fd, events, data)
    }))
}

unsafe extern "C" fn epoll_wait(
    user: User,
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0) else {
        return done(Err(Errno::INVAL));
    };
    let outcome = node.call_waiting(
        |_| Ok(milliseconds(timeout)),
        |state| state.epoll_ready(set, most),
    );
    let outcome = outcome.map(|ready| {
        for (place, ready) in ready.iter().enumerate() {
            let event = epoll_event {
                events: ready.events,
                u64: ready.data,
            };
            // SAFETY: there is room for `most` events, and no more are ready.
            unsafe { events.add(place).write_unaligned(event) };
        }
        ready.len() as c_int
    });
    answer(none_if_over(outcome))
}

unsafe extern "C" fn pipe(_user: User, ends: *mut c_int) -> c_int {
    done(splice::pipe().map(|pair| {
        // SAFETY: there is room for two descriptors.
        unsafe { ends.cast::<[c_int; 2]>().write(pair) };
    }))
}

unsafe extern "C" fn splice_call(
    user: User,
    from: c_int,
    _from_offset: *mut loff_t,
    to: c_int,
    _to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: as the module's doc says.
    let node = unsafe { node(user) };
    let dont_wait = flags & libc::SPLICE_F_NONBLOCK != 0;
    let patience = |state: &mut State| {
        let socket = if state.descriptors.contains(from) {
            from
        } else {
            to
        };
        let flags = if dont_wait { libc::MSG_DONTWAIT } else { 0 };
        patience_of(&mut state.descriptors, socket, Direction::Receive, flags)
    };
    count(node.call_waiting(patience, |state| state.splice(from, to, len)))
}
