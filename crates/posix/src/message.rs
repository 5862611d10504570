//! Scattered buffers and control messages of `sendmsg` and `recvmsg`.

use crate::errno::{Errno, Outcome};
use crate::memory::is_outside;
use core::ffi::c_int;
use libc::{cmsghdr, iovec, msghdr};

/// Most parts of a scattered buffer (IOV_MAX).
const MOST_PARTS: usize = 1024;

/// Returns the parts of a scattered buffer.
///
/// # Safety
///
/// `parts` is null or points to `count` readable parts, which outlive `'a`.
pub unsafe fn parts<'a>(parts: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > MOST_PARTS {
        return Err(Errno::INVAL);
    }
    if is_outside(parts, count) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller guarantees that `parts` points to `count` readable parts
    // for `'a`. Null was handled above.
    Ok(unsafe { core::slice::from_raw_parts(parts, count) })
}

/// Checks control messages for TCP as Linux does: whether a program may send
/// them.
///
/// # Errors
///
/// `EINVAL` for a message that is shorter than its header or longer than the
/// control area, and for an unknown one of SOL_SOCKET.
///
/// # Safety
///
/// The message's control area is readable for its length.
pub unsafe fn check_control(message: &msghdr) -> Outcome<()> {
    const HEAD: usize = size_of::<cmsghdr>();
    let mut at = 0;
    while message.msg_controllen.saturating_sub(at) >= HEAD {
        // SAFETY: the caller guarantees a readable control area for this call, and
        // the check above leaves room for a header at this offset.
        let head = unsafe {
            message
                .msg_control
                .byte_add(at)
                .cast::<cmsghdr>()
                .read_unaligned()
        };
        if !(HEAD..=message.msg_controllen - at).contains(&head.cmsg_len) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees a readable control area for this call, and
        // the check above keeps the data within it.
        let data = unsafe {
            let data = message.msg_control.byte_add(at + HEAD).cast::<u8>();
            core::slice::from_raw_parts(data, head.cmsg_len - HEAD)
        };
        if head.cmsg_level == libc::SOL_SOCKET && !is_taken(head.cmsg_type, data) {
            return Err(Errno::INVAL);
        }
        at += head.cmsg_len.next_multiple_of(size_of::<usize>());
    }
    Ok(())
}

/// Returns whether SOL_SOCKET has a control message of this kind that takes
/// such data.
fn is_taken(kind: c_int, data: &[u8]) -> bool {
    /// SO_TIMESTAMPING_NEW.
    const TIMESTAMPING: c_int = 65;
    match kind {
        libc::SCM_RIGHTS | libc::SCM_CREDENTIALS => true,
        libc::SO_MARK | libc::SO_PRIORITY => data.len() == size_of::<c_int>(),
        // A node reports no sent data, so none of these flags may be set.
        libc::SO_TIMESTAMPING | TIMESTAMPING => data == [0; size_of::<c_int>()],
        _ => false,
    }
}

/// Copies the content of the parts into one buffer.
///
/// # Safety
///
/// Each part is readable for its length.
pub unsafe fn gather(parts: &[iovec]) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        if part.iov_base.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the caller guarantees that the part is readable for its
        // length, for this call.
        bytes.extend_from_slice(unsafe {
            core::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
        });
    }
    Ok(bytes)
}

/// Returns the total room of the parts in bytes.
pub fn room(parts: &[iovec]) -> Outcome<usize> {
    let null = parts
        .iter()
        .any(|part| part.iov_base.is_null() && part.iov_len > 0);
    if null {
        Err(Errno::FAULT)
    } else {
        Ok(parts.iter().map(|part| part.iov_len).sum())
    }
}

/// Distributes bytes over the parts, in order.
///
/// # Safety
///
/// Each part is writable for its length.
pub unsafe fn scatter(mut bytes: &[u8], parts: &[iovec]) {
    for part in parts {
        let (now, later) = bytes.split_at(bytes.len().min(part.iov_len));
        if !now.is_empty() {
            // SAFETY: the caller guarantees that the part is writable for its
            // length, for this call. No more than that is written.
            unsafe {
                part.iov_base
                    .cast::<u8>()
                    .copy_from_nonoverlapping(now.as_ptr(), now.len())
            };
        }
        bytes = later;
    }
}

/// A received control message.
pub struct Control {
    /// The level of the message.
    pub level: c_int,
    /// The type of the message.
    pub kind: c_int,
    /// The data of the message.
    pub data: Vec<u8>,
}

/// Stores control messages in a message, as many as have room. As in the
/// kernel, the last one may be cut off.
///
/// # Safety
///
/// The message's control area is null or writable for its length.
pub unsafe fn put_controls(message: &mut msghdr, controls: &[Control]) {
    const HEAD: usize = size_of::<cmsghdr>();
    let room = match message.msg_control.is_null() {
        true => 0,
        false => message.msg_controllen,
    };
    let mut used = 0;
    for Control { level, kind, data } in controls {
        let left = room - used;
        if left < HEAD {
            message.msg_flags |= libc::MSG_CTRUNC;
            break;
        }
        let len = (HEAD + data.len()).min(left);
        if len < HEAD + data.len() {
            message.msg_flags |= libc::MSG_CTRUNC;
        }
        // SAFETY: `cmsghdr` consists of integers, for which zero is valid.
        let mut head = unsafe { core::mem::zeroed::<cmsghdr>() };
        (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (len as _, *level, *kind);
        // SAFETY: the caller guarantees a writable control area for this call. The
        // check above leaves room for a header and this part of the data.
        unsafe {
            let place = message.msg_control.byte_add(used);
            place.cast::<cmsghdr>().write_unaligned(head);
            place
                .byte_add(HEAD)
                .cast::<u8>()
                .copy_from_nonoverlapping(data.as_ptr(), len - HEAD);
        }
        used = (used + len.next_multiple_of(size_of::<usize>())).min(room);
    }
    message.msg_controllen = used as _;
}

/// Stores one control message as a message's only one, or none if there is no
/// room.
///
/// # Safety
///
/// The message's control area is null or writable for its length.
pub unsafe fn put_control(message: &mut msghdr, level: c_int, kind: c_int, data: &[u8]) {
    let data = data.to_vec();
    // SAFETY: the caller of `put_control` gives the guarantees of
    // `put_controls` for this call.
    unsafe { put_controls(message, &[Control { level, kind, data }]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_or_unknown_control_message_returns_einval() {
        let check = |heads: &[(usize, c_int, c_int)], room: usize| {
            let mut area = [0_usize; 16];
            let mut at = 0;
            for &(len, level, kind) in heads {
                // SAFETY: `cmsghdr` consists of integers, for which zero is
                // valid.
                let mut head = unsafe { core::mem::zeroed::<cmsghdr>() };
                (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (len, level, kind);
                // SAFETY: `area` outlives the write and has room for all
                // headers of the test.
                unsafe { area.as_mut_ptr().byte_add(at).cast::<cmsghdr>().write(head) };
                at += len.next_multiple_of(8);
            }
            // SAFETY: `msghdr` consists of integers and pointers, for which
            // zero and null are valid.
            let mut message = unsafe { core::mem::zeroed::<msghdr>() };
            (message.msg_control, message.msg_controllen) = (area.as_mut_ptr().cast(), room);
            // SAFETY: the message's control area is `area`, which outlives the
            // call and has the given length.
            unsafe { check_control(&message) }
        };
        let rights = (20, libc::SOL_SOCKET, libc::SCM_RIGHTS);
        assert_eq!(check(&[], 15), Ok(()), "no head");
        assert_eq!(check(&[rights, (20, libc::SOL_IP, 99)], 48), Ok(()));
        assert_eq!(
            check(&[rights, (20, libc::SOL_SOCKET, 99)], 48),
            Err(Errno::INVAL)
        );
        assert_eq!(check(&[(20, libc::SOL_SOCKET, libc::SO_MARK)], 24), Ok(()));
        let stamps = (20, libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
        assert_eq!(check(&[stamps], 24), Ok(()), "no flags");
        assert_eq!(
            check(&[(24, libc::SOL_SOCKET, libc::SO_MARK)], 24),
            Err(Errno::INVAL)
        );
        for len in [0, 15, 25] {
            assert_eq!(check(&[(len, libc::SOL_IP, 1)], 24), Err(Errno::INVAL), "{len}");
        }
    }

    #[test]
    fn scatter_fills_parts_in_order_and_skips_empty_ones() {
        let (mut first, mut second) = ([0_u8; 2], [0_u8; 3]);
        let part = |bytes: &mut [u8]| iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let nothing = iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        };
        let parts = [part(&mut first), nothing, part(&mut second)];
        assert_eq!(room(&parts), Ok(5));
        // SAFETY: the parts are the two arrays and an empty one, and the arrays
        // outlive the calls.
        let gathered = unsafe {
            scatter(b"abcd", &parts);
            gather(&parts)
        };
        assert_eq!(gathered, Ok(b"abcd\0".to_vec()));
        let wild = [iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 1,
        }];
        assert_eq!(room(&wild), Err(Errno::FAULT));
    }
}
