//! `getifaddrs`: the node's addresses are those of an interface of the program's, as they are where the kernel takes part
//! in the node (`--tap`). Servers that listen at each interface's address are reached there then.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::{ifaddrs, sockaddr, sockaddr_storage, socklen_t};
use toehold_node::kernel::DEFAULT_DEVICE;
use toehold_posix::address;

use crate::inside::{Inside, is_inside};
use crate::{next, node, start};

/// The interface's name. By its address the library knows its own entries in a list.
static NAME: [u8; 16] = name();

const fn name() -> [u8; 16] {
    let (mut name, from) = ([0; 16], DEFAULT_DEVICE.as_bytes());
    let mut at = 0;
    while at < from.len() {
        name[at] = from[at];
        at += 1;
    }
    name
}

const FLAGS: c_uint =
    (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_BROADCAST | libc::IFF_MULTICAST) as c_uint;

/// One address of the interface, with all that an entry points to.
#[repr(C)]
struct Entry {
    /// The first field, so that a pointer to it points to all.
    head: ifaddrs,
    address: sockaddr_storage,
    mask: sockaddr_storage,
    broadcast: sockaddr_storage,
}

fn write(ip: IpAddr, to: &mut sockaddr_storage) -> *mut sockaddr {
    let family = if ip.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let to = (&raw mut *to).cast::<sockaddr>();
    // SAFETY: `to` points to a local with room for an address of either family, which `len` says.
    unsafe { address::write(SocketAddr::new(ip, 0), family, to, &mut len) };
    to
}

/// An entry before others; `None` if there is no memory.
fn entry(ip: IpAddr, mask: IpAddr, broadcast: Option<Ipv4Addr>, after: *mut ifaddrs) -> Option<*mut ifaddrs> {
    // SAFETY: all zeroes are an entry that points to nothing; the library alone has it.
    let entry = unsafe { libc::calloc(1, size_of::<Entry>()).cast::<Entry>().as_mut() }?;
    entry.head.ifa_next = after;
    entry.head.ifa_name = NAME.as_ptr().cast_mut().cast::<c_char>();
    entry.head.ifa_flags = FLAGS;
    entry.head.ifa_addr = write(ip, &mut entry.address);
    entry.head.ifa_netmask = write(mask, &mut entry.mask);
    if let Some(broadcast) = broadcast {
        entry.head.ifa_ifu = write(broadcast.into(), &mut entry.broadcast);
    }
    Some((&raw mut *entry).cast())
}

/// A list of the node's addresses, unless the kernel has them as well.
fn own() -> *mut ifaddrs {
    let Some((ipv4, ipv6)) = node::beside_kernel() else {
        return null_mut();
    };
    let none = null_mut();
    let last = entry(ipv6.addr().into(), ipv6.netmask().into(), None, none).unwrap_or(none);
    let first = entry(
        ipv4.addr().into(),
        ipv4.netmask().into(),
        Some(ipv4.broadcast()),
        last,
    );
    first.unwrap_or(last)
}

fn is_own(entry: &ifaddrs) -> bool {
    entry.ifa_name.cast_const().cast() == NAME.as_ptr()
}

/// `getifaddrs(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let done = unsafe { next::getifaddrs(list) };
    if done != 0 || is_inside() || !start::is_wanted() {
        return done;
    }
    let _inside = Inside::enter();
    let mut last = list;
    // SAFETY: libc has written a list, which is the program's to free; each entry is there until then.
    while let Some(entry) = unsafe { (*last).as_mut() } {
        last = &raw mut entry.ifa_next;
    }
    // SAFETY: `last` points to the null at the end of libc's list, which only this thread has until
    // the call returns.
    unsafe { last.write(own()) };
    0
}

/// `freeifaddrs(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn freeifaddrs(list: *mut ifaddrs) {
    let (mut head, mut last) = (list, null_mut::<ifaddrs>());
    let mut at = list;
    // SAFETY: `at` is null or an entry of the list that is not freed yet. INTERCEPT contract: the
    // program uses the list no more.
    while let Some(entry) = unsafe { at.as_ref() } {
        let after = entry.ifa_next;
        if is_own(entry) {
            // SAFETY: the library has made it, and what points to it goes on behind it.
            unsafe {
                match last.as_mut() {
                    Some(last) => last.ifa_next = after,
                    None => head = after,
                }
                libc::free(at.cast::<c_void>());
            }
        } else {
            last = at;
        }
        at = after;
    }
    // SAFETY: `head` is libc's own list again, without the library's entries. INTERCEPT contract:
    // the program uses it no more.
    unsafe { next::freeifaddrs(head) }
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn own_entries_are_freed_wherever_they_are() {
        let (ip, mask) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(255, 255, 0, 0));
        let broadcast = Ipv4Addr::new(10, 77, 255, 255);
        let made = |after| entry(ip.into(), mask.into(), Some(broadcast), after).unwrap();
        let list = made(made(null_mut()));
        // SAFETY: `list` has just been made by `entry`, and is freed only at the end of this test.
        let head = unsafe { &*list };
        assert!(is_own(head));
        // SAFETY: the name is a C string of the list's, which lives until it is freed below.
        let name = unsafe { CStr::from_ptr(head.ifa_name) };
        assert_eq!(name.to_str(), Ok(DEFAULT_DEVICE));
        // SAFETY: `ifa_addr` points to an IPv4 address of the entry, which is freed only at the end
        // of this test.
        let at = unsafe { head.ifa_addr.cast::<libc::sockaddr_in>().read() };
        assert_eq!(u32::from_be(at.sin_addr.s_addr), u32::from(ip));
        // SAFETY: `list` comes from `getifaddrs` above, and this test is its only user.
        unsafe { freeifaddrs(list) };
        let mut all = null_mut();
        // SAFETY: libc's list, before which there is one of the library's, and behind its first one another.
        unsafe {
            assert_eq!(next::getifaddrs(&mut all), 0);
            if let Some(first) = all.as_mut() {
                first.ifa_next = made(first.ifa_next);
            }
            freeifaddrs(made(all));
        }
    }
}
