//! The unwinder, loaded by the first panic.
//!
//! libgcc_s is for panics only, and most programs have it from nowhere else. Loading it takes a fifth of the
//! time in which a small program starts and ends. So these functions stand in for its own inside this
//! library, hidden from all others, and go on there. An unwinder of this library's own would not do.
//! Cancelled threads unwind the stack with libgcc_s, whose state only it understands.

use core::arch::global_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The functions that Rust's library calls, in the order of the entries below.
const NAMES: [&CStr; 12] = [
    c"_Unwind_Backtrace",
    c"_Unwind_DeleteException",
    c"_Unwind_GetDataRelBase",
    c"_Unwind_GetIP",
    c"_Unwind_GetIPInfo",
    c"_Unwind_GetLanguageSpecificData",
    c"_Unwind_GetRegionStart",
    c"_Unwind_GetTextRelBase",
    c"_Unwind_RaiseException",
    c"_Unwind_Resume",
    c"_Unwind_SetGR",
    c"_Unwind_SetIP",
];

/// The addresses that were found of them.
static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

extern "C" fn find(number: usize) -> *mut c_void {
    // SAFETY: both names are C string literals. The library stays loaded, so the function found
    // does, too.
    let found = unsafe {
        let library = libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW);
        match library.is_null() {
            true => library,
            false => libc::dlsym(library, NAMES[number].as_ptr()),
        }
    };
    if found.is_null() {
        // There is no unwinder.
        std::process::abort();
    }
    FOUND[number].store(found, Relaxed);
    found
}

// Each goes on with all that it was called with, and as if it had never been there: libgcc_s looks at its
// callers.
global_asm!(
    ".macro unwind_with name, number",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    "mov rax, [rip + {found} + 8 * \\number]",
    "test rax, rax",
    "jne 2f",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov edi, \\number",
    "call {find}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "2:",
    "jmp rax",
    ".size \\name, . - \\name",
    ".endm",
    ".pushsection .text.unwind_with, \"ax\", @progbits",
    "unwind_with _Unwind_Backtrace, 0",
    "unwind_with _Unwind_DeleteException, 1",
    "unwind_with _Unwind_GetDataRelBase, 2",
    "unwind_with _Unwind_GetIP, 3",
    "unwind_with _Unwind_GetIPInfo, 4",
    "unwind_with _Unwind_GetLanguageSpecificData, 5",
    "unwind_with _Unwind_GetRegionStart, 6",
    "unwind_with _Unwind_GetTextRelBase, 7",
    "unwind_with _Unwind_RaiseException, 8",
    "unwind_with _Unwind_Resume, 9",
    "unwind_with _Unwind_SetGR, 10",
    "unwind_with _Unwind_SetIP, 11",
    ".popsection",
    found = sym FOUND,
    find = sym find,
);
