//! The program's own code, as it lies in memory.

use core::ffi::{c_int, c_long, c_void};
use core::mem::size_of;

use libc::{Elf64_Phdr, PF_R, PF_X, PT_LOAD, PT_NOTE, dl_phdr_info, size_t};
use memchr::memmem;

/// The instruction.
const SYSCALL: &[u8] = &[0x0f, 0x05];

/// The one that sets what the kernel takes for the call's number, to what follows.
const SET_EAX: u8 = 0xb8;

/// So many bytes before a call its number is set, at most.
const BEFORE: usize = 48;

/// The numbers of calls that networks are used with.
const OF_NETWORKS: [c_long; 7] = [
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// Who has written the notes of Go's linker.
const GO: &[u8] = b"Go\0\0";

const PAGE: usize = 1 << 12;

/// What the system has loaded of the program itself, without its libraries.
pub(super) struct Image {
    /// The first page that is not its own.
    pub(super) end: usize,
    pub(super) is_go: bool,
    code: Vec<&'static [u8]>,
}

impl Image {
    /// The running program's.
    pub(super) fn of_program() -> Option<Image> {
        let mut image = None;
        // SAFETY: it calls with what it says, and the place for the image is there.
        unsafe { libc::dl_iterate_phdr(Some(take_first), (&raw mut image).cast()) };
        image
    }

    /// Whether there is an instruction that makes system calls, or what looks like one: constants
    /// may. Whoever has the latter alone pays for it, and notices nothing.
    pub(super) fn makes_calls(&self) -> bool {
        self.code.iter().any(|code| memmem::find(code, SYSCALL).is_some())
    }

    /// Whether some of these calls surely have to do with networks: their number is set right before.
    pub(super) fn makes_calls_of_networks(&self) -> bool {
        let is_set = |before: &[u8]| {
            let set = before
                .windows(1 + size_of::<u32>())
                .filter(|word| word[0] == SET_EAX);
            let numbers = set.map(|word| u32::from_le_bytes([word[1], word[2], word[3], word[4]]));
            numbers
                .into_iter()
                .any(|number| OF_NETWORKS.contains(&number.into()))
        };
        let makes = |code: &&[u8]| {
            let mut calls = memmem::find_iter(code, SYSCALL);
            calls.any(|at| is_set(&code[at.saturating_sub(BEFORE)..at]))
        };
        self.code.iter().any(makes)
    }

    /// # Safety
    ///
    /// The headers are those of something that is loaded at that address, and stays.
    unsafe fn loaded(base: usize, headers: &[Elf64_Phdr]) -> Image {
        let at = |header: &Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
        let loads = || headers.iter().filter(|header| header.p_type == PT_LOAD);
        // SAFETY: the caller says that it is there.
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

/// The first one is the program.
unsafe extern "C" fn take_first(info: *mut dl_phdr_info, size: size_t, place: *mut c_void) -> c_int {
    debug_assert!(size >= size_of::<dl_phdr_info>());
    // SAFETY: the system says what it has loaded, and the place is an image's.
    unsafe {
        let info = &*info;
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        *place.cast() = Some(Image::loaded(info.dlpi_addr as usize, headers));
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_what_was_loaded() {
        let image = Image::of_program().unwrap();
        let own = an_image_is_what_was_loaded as *const () as usize;
        let has_own = |code: &&[u8]| code.as_ptr_range().contains(&(own as *const u8));
        assert!(image.code.iter().any(|code| has_own(&code)));
        assert!(image.end > own && image.end < next_library());
        assert!(!image.is_go);
    }

    /// The kernel's.
    fn next_library() -> usize {
        // SAFETY: a plain number.
        unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) as usize }
    }

    #[test]
    fn an_instruction_is_found_wherever_it_stands() {
        let with = |code: &'static [u8]| Image {
            end: 0,
            is_go: false,
            code: vec![&[0x90; 64], code],
        };
        assert!(with(&[0x0f, 0x05]).makes_calls());
        assert!(with(&[0xb8, 0xe8, 0, 0, 0, 0x0f, 0x05, 0xc3]).makes_calls());
        assert!(with(&[0xb8, 0xe8, 0, 0, 0, 0x0f, 0x05, 0xc3]).makes_calls_of_networks());
        for others in [
            &[0x0f, 0x05][..],
            &[0xb8, 0xba, 0, 0, 0, 0x0f, 0x05],
            &[0xe8, 0, 0, 0, 0x0f, 0x05],
        ] {
            assert!(with(others).makes_calls() && !with(others).makes_calls_of_networks());
        }
        for none in [&[][..], &[0x0f], &[0x05, 0x0f], &[0x0f, 0x06, 0x05]] {
            assert!(!with(none).makes_calls());
        }
    }
}
