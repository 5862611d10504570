//! `dlopen`: a library that a program loads later is on its node, too.
//!
//! A program that loads a library with RTLD_DEEPBIND, as PHP loads its extensions, wants it to find its own
//! functions before those of others. Such a library would find libc's functions before the ones that stand in
//! for them. So the flag is left out. The system looks for the library in places that depend on the caller.
//! So the call goes on with the caller's return address.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// A mask of the flags that are passed on.
static KEPT: AtomicU32 = AtomicU32::new(u32::MAX);

/// The next `dlopen`, once it is known.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Lets libraries find the functions that stand in for libc's, from now on.
pub(crate) fn bind_to_stand_ins() {
    KEPT.store(!libc::RTLD_DEEPBIND.cast_unsigned(), Relaxed);
}

extern "C" fn find() -> *mut c_void {
    // SAFETY: the name is a C string literal, which lives as long as the library.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    NEXT.store(next, Relaxed);
    next
}

/// `dlopen(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jne 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {find}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "2:",
        "and esi, [rip + {kept}]",
        "jmp rax",
        ".cfi_endproc",
        next = sym NEXT,
        find = sym find,
        kept = sym KEPT,
    )
}

/// `dlopen(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        "stp x0, x1, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        "str x30, [sp, #16]",
        ".cfi_offset x30, -16",
        "bl {find}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        ".cfi_restore x30",
        "ldp x0, x1, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        "2:",
        "adrp x17, {kept}",
        "ldr w17, [x17, :lo12:{kept}]",
        "and w1, w1, w17",
        "br x16",
        ".cfi_endproc",
        next = sym NEXT,
        find = sym find,
        kept = sym KEPT,
    )
}
