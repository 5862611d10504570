//! The program's own code, as it lies in memory.

use core::ffi::c_long;

use libc::{Elf64_Phdr, PF_R, PF_X, PT_LOAD, PT_NOTE, PT_PHDR};
use memchr::memmem;

/// The system call instruction.
const SYSCALL: &[u8] = &[0x0f, 0x05];

/// The instruction that sets EAX, which has the call's number, to the bytes that follow.
const SET_EAX: u8 = 0xb8;

/// Bytes before a call in which its number is set, at most.
const BEFORE: usize = 48;

/// Bytes before a call in which its number is set, at most, if the function does nothing but the
/// call.
const CLOSE: usize = 24;

/// Instructions that move to RAX, behind a byte for 64 bits and before one for the operands.
const FROM_REGISTER: u8 = 0x89;
const FROM_MEMORY: u8 = 0x8b;

/// The numbers of calls that connections are used with, and hardly anything but descriptors.
const OF_NETWORKS: [c_long; 21] = [
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_io_uring_setup,
];

/// The instruction that sets the number of `read`, 0, and how far before the call it is at most.
const CLEAR_EAX: &[u8] = &[0x31, 0xc0];
const CLOSEST: usize = 16;

/// The name of the linker that writes Go's notes.
const GO: &[u8] = b"Go\0\0";

const PAGE: usize = 1 << 12;

/// The part of the program itself that the system has loaded, without its libraries.
pub(super) struct Image {
    /// The first page behind it.
    pub(super) end: usize,
    pub(super) is_go: bool,
    code: Vec<&'static [u8]>,
}

impl Image {
    /// The image of the running program. The loader would know it, too, but not in a child that was
    /// forked while the loader was busy.
    pub(super) fn of_program() -> Option<Image> {
        // SAFETY: plain numbers; what they say is there as long as the program runs.
        let headers = unsafe {
            let headers = libc::getauxval(libc::AT_PHDR) as *const Elf64_Phdr;
            let count = libc::getauxval(libc::AT_PHNUM) as usize;
            (!headers.is_null()).then(|| core::slice::from_raw_parts(headers, count))
        }?;
        let own = headers.iter().find(|header| header.p_type == PT_PHDR)?;
        let base = headers.as_ptr().addr().wrapping_sub(own.p_vaddr as usize);
        // SAFETY: `headers` are the running program's, loaded at `base`. The system unmaps them
        // only when the program ends.
        Some(unsafe { Image::loaded(base, headers) })
    }

    /// Whether there is an instruction that makes system calls which may have to do with networks.
    pub(super) fn makes_calls(&self) -> bool {
        let is_call = |code: &[u8], at: usize| {
            let (before, after) = (&code[at.saturating_sub(BEFORE)..at], &code[at + SYSCALL.len()..]);
            !is_part(after) && (is_of_networks(before) || is_passed_on(before))
        };
        self.code
            .iter()
            .any(|code| memmem::find_iter(code, SYSCALL).any(|at| is_call(code, at)))
    }

    /// The number of bytes to look through.
    pub(super) fn code_len(&self) -> usize {
        self.code.iter().map(|code| code.len()).sum()
    }

    /// # Safety
    ///
    /// The headers are those of an image that is loaded at that address, and stays.
    unsafe fn loaded(base: usize, headers: &[Elf64_Phdr]) -> Image {
        let at = |header: &Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
        let loads = || headers.iter().filter(|header| header.p_type == PT_LOAD);
        // SAFETY: the header's segment is loaded and readable for as long as the image is, as the
        // caller guarantees.
        let bytes = |header: &Elf64_Phdr| unsafe {
            core::slice::from_raw_parts(at(header) as *const u8, header.p_filesz as usize)
        };
        let ends = loads().map(|header| at(header) + header.p_memsz as usize);
        let is_code = |header: &&Elf64_Phdr| header.p_flags & (PF_R | PF_X) == PF_R | PF_X;
        let is_loaded = |note: &&Elf64_Phdr| {
            let end = note.p_vaddr.saturating_add(note.p_filesz);
            let has = |load: &Elf64_Phdr| note.p_vaddr >= load.p_vaddr && end <= load.p_vaddr + load.p_filesz;
            note.p_type == PT_NOTE && loads().any(has)
        };
        let mut notes = headers.iter().filter(is_loaded);
        Image {
            end: ends.max().map_or(usize::MAX, |end| end.next_multiple_of(PAGE)),
            is_go: notes.any(|note| memmem::find(bytes(note), GO).is_some()),
            code: loads().filter(is_code).map(bytes).collect(),
        }
    }
}

/// Whether bytes that look like an instruction belong to another one's distance or constant. These are
/// numbers of four bytes, and most of them are small.
fn is_part(after: &[u8]) -> bool {
    matches!(after, [0, ..] | [_, 0 | 0xff, ..])
}

/// Whether a number of a call of networks is set.
fn is_of_networks(before: &[u8]) -> bool {
    let reads = memmem::find(last(before, CLOSEST), CLEAR_EAX).is_some();
    reads
        || before.windows(1 + size_of::<u32>()).any(|word| {
            let number = u32::from_le_bytes([word[1], word[2], word[3], word[4]]);
            word[0] == SET_EAX && OF_NETWORKS.contains(&number.into())
        })
}

fn last(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(most)..]
}

/// Whether a number is set that is known only when it is called: it comes from a register or from memory.
fn is_passed_on(before: &[u8]) -> bool {
    last(before, CLOSE).windows(3).any(|word| match *word {
        [0x48 | 0x49 | 0x4c, FROM_REGISTER, operands] => operands & 0b1100_0111 == 0b1100_0000,
        [0x48, FROM_MEMORY, operands] => operands & 0b11_1000 == 0 && operands & 0b1100_0000 != 0b1100_0000,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_what_was_loaded() {
        let image = Image::of_program().unwrap();
        let own = an_image_is_what_was_loaded as *const () as usize;
        let has_own = |code: &&[u8]| code.as_ptr_range().contains(&(own as *const u8));
        assert!(image.code.iter().any(has_own));
        assert!(image.end > own && image.end < next_library());
        assert!(!image.is_go);
    }

    /// The kernel's.
    fn next_library() -> usize {
        // SAFETY: the call takes numbers alone, and no pointer.
        unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) as usize }
    }

    fn with(code: &'static [u8]) -> Image {
        Image {
            end: 0,
            is_go: false,
            code: vec![&[0x90; 64], code],
        }
    }

    #[test]
    fn calls_of_networks_are_found() {
        let wait = with(&[0xb8, 0xe8, 0, 0, 0, 0x48, 0x89, 0xdf, 0x0f, 0x05, 0xc3]);
        assert!(wait.makes_calls());
        let read = with(&[0xba, 8, 0, 0, 0, 0x31, 0xc0, 0x4c, 0x89, 0xff, 0x0f, 0x05, 0xc3]);
        assert!(read.makes_calls());
        // mov rax, rdi; mov rdi, rsi; and the same without optimisation.
        for passes_on in [
            &[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0xc3][..],
            &[0x48, 0x8b, 0x45, 0xd8, 0x48, 0x8b, 0x7d, 0xd0, 0x0f, 0x05],
        ] {
            let wrapper = with(passes_on);
            assert!(wrapper.makes_calls());
        }
    }

    #[test]
    fn what_only_looks_like_them_is_not() {
        for other in [
            &[][..],
            &[0x0f],
            &[0x05, 0x0f],
            &[0x0f, 0x06, 0x05],
            // A call of another kind.
            &[0xb8, 0xba, 0, 0, 0, 0x0f, 0x05, 0xc3],
            // To go far, and to call what is not far before.
            &[0x48, 0x89, 0xc0, 0x0f, 0x84, 0x0f, 0x05, 0, 0, 0x41],
            &[0xb8, 0xe8, 0, 0, 0, 0xe8, 0xb6, 0x0f, 0x05, 0xd8, 0xff],
        ] {
            assert!(!with(other).makes_calls(), "{other:x?}");
        }
    }
}
