//! Socket addresses between C's form and Rust's.

use crate::errno::{Errno, Outcome};
use crate::memory::is_outside;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use libc::{AF_INET, AF_INET6, AF_UNSPEC, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// An address that a program passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// An IP address and port.
    Inet(SocketAddr),
    /// `AF_UNSPEC`: no address, which dissolves an association.
    Unspecified,
}

/// Fewest bytes of an IPv6 address with its port: the scope may be missing (RFC
/// 2133).
pub const SHORTEST_IPV6: usize = 24;

/// Reads an address.
///
/// # Safety
///
/// `address` is null or points to `len` readable bytes.
pub unsafe fn read(address: *const sockaddr, len: socklen_t) -> Outcome<Passed> {
    let len = len as usize;
    if len > size_of::<libc::sockaddr_storage>() {
        return Err(Errno::INVAL);
    }
    if len > 0 && is_outside(address.cast::<u8>(), len) {
        return Err(Errno::FAULT);
    }
    if len < size_of::<libc::sa_family_t>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees `len` readable bytes at `address` for this
    // call, and `len` covers the family.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        AF_UNSPEC => Ok(Passed::Unspecified),
        AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: the caller guarantees `len` readable bytes at `address` for
            // this call, and `len` covers a `sockaddr_in`.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Passed::Inet(SocketAddr::new(
                ip.into(),
                u16::from_be(v4.sin_port),
            )))
        }
        AF_INET6 if len >= SHORTEST_IPV6 => {
            // SAFETY: the caller guarantees `len` readable bytes at `address` for
            // this call, and `len` is at least `SHORTEST_IPV6`.
            let v6 = unsafe { address.cast::<[u8; SHORTEST_IPV6]>().read_unaligned() };
            let (mut port, mut ip) = ([0; 2], [0; 16]);
            port.copy_from_slice(&v6[2..4]);
            ip.copy_from_slice(&v6[8..24]);
            let ip = Ipv6Addr::from(ip);
            Ok(Passed::Inet(SocketAddr::new(ip.into(), u16::from_be_bytes(port))))
        }
        AF_INET | AF_INET6 => Err(Errno::INVAL),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes an address in the form of the socket's domain, cut off at the caller's
/// room. Writes nothing if the caller passed null.
///
/// # Safety
///
/// `address` and `len` are null, or `len` is readable and writable and
/// `address` writable for as many bytes as it says.
pub unsafe fn write(from: SocketAddr, domain: i32, address: *mut sockaddr, len: *mut socklen_t) {
    let (bytes, used) = encode(from, domain);
    // SAFETY: the caller of `write` gives the guarantees of `write_bytes` for
    // `address` and `len` for this call.
    unsafe { write_bytes(&bytes[..used], address, len) };
}

/// Returns an address in the form of the socket's domain.
pub fn bytes(from: SocketAddr, domain: i32) -> Vec<u8> {
    let (bytes, used) = encode(from, domain);
    bytes[..used].to_vec()
}

/// Writes an address that is in C's form already, as [`write()`] does.
///
/// # Safety
///
/// `address` and `len` are null, or `len` is readable and writable and `address` writable for as
/// many bytes as it says.
pub unsafe fn write_bytes(from: &[u8], address: *mut sockaddr, len: *mut socklen_t) {
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that `len` is valid and that `*len` bytes at
    // `address` are writable for this call. At most that many are written.
    unsafe {
        let room = len.read() as usize;
        address
            .cast::<u8>()
            .copy_from_nonoverlapping(from.as_ptr(), room.min(from.len()));
        len.write(from.len() as socklen_t);
    }
}

/// Returns the bytes of a `sockaddr_in` or `sockaddr_in6` and their number.
fn encode(from: SocketAddr, domain: i32) -> ([u8; 28], usize) {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    match from.ip() {
        IpAddr::V4(ip) if domain == AF_INET => {
            bytes[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
            (bytes, 16)
        }
        ip => {
            // A socket of the IPv6 domain names IPv4 peers by their mapped addresses.
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes[..2].copy_from_slice(&(AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
            (bytes, 28)
        }
    }
}

const _: () = assert!(size_of::<sockaddr_in>() == 16 && size_of::<sockaddr_in6>() == 28);

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str, domain: i32) -> Passed {
        let address: SocketAddr = text.parse().expect("an address");
        let mut buffer = [0_u8; 28];
        let mut len: socklen_t = 28;
        // SAFETY: `buffer` outlives the call and has the room that `len` says.
        unsafe { write(address, domain, buffer.as_mut_ptr().cast(), &mut len) };
        // SAFETY: `buffer` outlives the call, and `write` filled `len` bytes of
        // it.
        unsafe { read(buffer.as_ptr().cast(), len) }.expect("readable")
    }

    #[test]
    fn addresses_round_trip() {
        assert_eq!(
            round_trip("10.0.0.1:80", AF_INET),
            Passed::Inet("10.0.0.1:80".parse().expect("v4"))
        );
        assert_eq!(
            round_trip("[fd00::1]:80", AF_INET6),
            Passed::Inet("[fd00::1]:80".parse().expect("v6"))
        );
        let mapped = Passed::Inet("[::ffff:10.0.0.1]:80".parse().expect("mapped"));
        assert_eq!(round_trip("10.0.0.1:80", AF_INET6), mapped);
    }

    #[test]
    fn address_in_form_of_c_is_copied() {
        let from: [u8; 28] = core::array::from_fn(|index| index as u8);
        for room in [0, 10, 28, 40] {
            let (mut buffer, mut len) = ([0xff; 40], room as socklen_t);
            // SAFETY: `buffer` outlives the call and has the room that `len`
            // says.
            unsafe { write_bytes(&from, buffer.as_mut_ptr().cast(), &mut len) };
            let used = room.min(28);
            assert_eq!((&buffer[..used], len), (&from[..used], 28));
            assert!(buffer[used..].iter().all(|byte| *byte == 0xff));
        }
    }

    #[test]
    fn short_and_foreign_addresses_return_error() {
        let unix = (libc::AF_UNIX as u16).to_ne_bytes();
        let inet = (AF_INET as u16).to_ne_bytes();
        // SAFETY: `read` accepts null, and two bytes of the array are readable.
        unsafe {
            assert_eq!(read(unix.as_ptr().cast(), 2), Err(Errno(libc::EAFNOSUPPORT)));
            assert_eq!(read(inet.as_ptr().cast(), 2), Err(Errno::INVAL));
            assert_eq!(read(core::ptr::null(), 16), Err(Errno::FAULT));
            assert_eq!(read([0_u8; 2].as_ptr().cast(), 2), Ok(Passed::Unspecified));
            let mut without_scope = [0_u8; SHORTEST_IPV6];
            without_scope[..2].copy_from_slice(&(AF_INET6 as u16).to_ne_bytes());
            let anywhere = Passed::Inet("[::]:0".parse().expect("v6"));
            assert_eq!(read(without_scope.as_ptr().cast(), 24), Ok(anywhere));
            assert_eq!(read(without_scope.as_ptr().cast(), 23), Err(Errno::INVAL));
        }
    }
}
