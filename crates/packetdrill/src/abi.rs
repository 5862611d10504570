//! packetdrill's table of functions: names, order and types are the interface.

use core::ffi::{c_char, c_int, c_longlong, c_ulong, c_void};
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
    timezone, useconds_t,
};

/// `userdata` of every call: what this library put into the table.
pub(crate) type User = *mut c_void;

/// The table that packetdrill passes to be filled.
///
/// Calls return what the system call of their name returns, with −1 and `errno`
/// for errors. The first argument of each is `userdata`.
#[repr(C)]
#[expect(missing_docs, reason = "each is the system call of its name")]
pub struct Interface {
    pub userdata: User,
    /// Frees `userdata`.
    pub free: unsafe extern "C" fn(User),
    pub socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    pub readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    pub writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        User,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    /// Declared with `...` there. A function that takes its last argument always is called the same
    /// way on x86-64 and AArch64 Linux. The argument is an integer in the next register, which is
    /// whatever it was if the caller passed none.
    pub fcntl: unsafe extern "C" fn(User, c_int, c_int, usize) -> c_int,
    /// Declared with `...`, see [`Interface::fcntl`].
    pub ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(User, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    /// Puts one IP packet into the stack: 0 or −1.
    pub netdev_send: unsafe extern "C" fn(User, *const c_void, size_t) -> c_int,
    /// Takes the next IP packet out of the stack: buffer, its size in and the
    /// packet's out, microseconds when it was sent. 0, or −1 to be asked again.
    pub netdev_receive: unsafe extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(User, useconds_t) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut timezone) -> c_int,
    pub epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(User, c_int, *mut loff_t, c_int, *mut loff_t, size_t, u32) -> ssize_t,
}

const _: unsafe extern "C" fn(*const c_char, *mut Interface) = crate::packetdrill_interface_init;
/// Userdata, and 32 functions.
const _: () = assert!(size_of::<Interface>() == 33 * size_of::<usize>());
