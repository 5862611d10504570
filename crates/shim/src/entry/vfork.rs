//! `vfork` and `clone`: children that borrow their parent's memory, see [`borrower`].

use core::ffi::{c_int, c_void};

use libc::pid_t;

use crate::next::{self, Start};
use crate::{borrower, process, start};

/// Makes the child of a child of a child: `vfork(2)` with a memory of its own, as the standard
/// allows.
unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: `fork` takes no pointer. The child gets a memory of its own.
    unsafe { libc::fork() }
}

macro_rules! vfork {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// The child returns first, and what it calls next overwrites the return address on the stack. So that is
            /// in a register meanwhile, which the kernel keeps for the parent.
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name() -> pid_t {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "call {lend}",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "test al, al",
                    "jne 2f",
                    "jmp {fork}",
                    "2:",
                    "pop rdi",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_register rip, rdi",
                    "mov eax, {vfork}",
                    "syscall",
                    "push rdi",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_offset rip, -8",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "test rax, rax",
                    "jne 3f",
                    "call {borrow}",
                    "xor eax, eax",
                    "jmp 4f",
                    "3:",
                    "mov rdi, rax",
                    "call {reclaim}",
                    "4:",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "ret",
                    ".cfi_endproc",
                    lend = sym borrower::lend,
                    borrow = sym borrower::borrow,
                    reclaim = sym borrower::reclaim,
                    fork = sym fork,
                    vfork = const libc::SYS_vfork,
                )
            }

            $(#[doc = $doc])+
            ///
            /// The child returns first, and what it calls next overwrites what is on the stack. So the return address
            /// is in its register meanwhile, which the kernel keeps for the parent.
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name() -> pid_t {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "stp x29, x30, [sp, #-16]!",
                    ".cfi_def_cfa_offset 16",
                    ".cfi_offset 29, -16",
                    ".cfi_offset 30, -8",
                    "bl {lend}",
                    "ldp x29, x30, [sp], #16",
                    ".cfi_def_cfa_offset 0",
                    ".cfi_restore 29",
                    ".cfi_restore 30",
                    "tst w0, #0xff",
                    "b.ne 2f",
                    "b {fork}",
                    "2:",
                    "mov x0, #{flags}",
                    "mov x1, #0",
                    "mov x2, #0",
                    "mov x3, #0",
                    "mov x4, #0",
                    "mov x8, #{clone}",
                    "svc 0",
                    "stp x29, x30, [sp, #-16]!",
                    ".cfi_def_cfa_offset 16",
                    ".cfi_offset 29, -16",
                    ".cfi_offset 30, -8",
                    "cbnz x0, 3f",
                    "bl {borrow}",
                    "mov w0, #0",
                    "b 4f",
                    "3:",
                    "bl {reclaim}",
                    "4:",
                    "ldp x29, x30, [sp], #16",
                    ".cfi_def_cfa_offset 0",
                    ".cfi_restore 29",
                    ".cfi_restore 30",
                    "ret",
                    ".cfi_endproc",
                    lend = sym borrower::lend,
                    borrow = sym borrower::borrow,
                    reclaim = sym borrower::reclaim,
                    fork = sym fork,
                    flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                    clone = const libc::SYS_clone,
                )
            }
        )+
    };
}

vfork! {
    /// `vfork(2)`.
    vfork,
    /// `vfork(2)`, by another name.
    __vfork,
}

/// The start function and argument of a child of `clone(2)` with a memory of its own.
struct Beginning {
    begin: Start,
    argument: *mut c_void,
}

/// Begins the child, which is another process by now.
///
/// # Safety
///
/// `beginning` is a beginning, of which the child has a copy.
unsafe extern "C" fn begin_forked(beginning: *mut c_void) -> c_int {
    process::forked();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let Beginning { begin, argument } = unsafe { &*beginning.cast::<Beginning>() };
    // SAFETY: INTERCEPT contract: the program's arguments, valid for this call.
    unsafe { begin(*argument) }
}

/// `clone(2)`, as libc has it.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn clone(
    begin: Start,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    storage: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    /// With threads of one process, or numbers of one table, the child is not told from its parent.
    const ONE: c_int = libc::CLONE_THREAD | libc::CLONE_FILES;
    const BORROWS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let plainly =
        |begin, argument| unsafe { next::clone(begin, stack, flags, argument, parent, storage, child) };
    if flags & libc::CLONE_VM == 0 && start::is_wanted() {
        let mut beginning = Beginning { begin, argument };
        return process::fork_by_function(|| plainly(begin_forked, (&raw mut beginning).cast()));
    }
    let borrows = flags & (BORROWS | ONE | libc::CLONE_SETTLS) == BORROWS;
    if !borrows || !borrower::lend() {
        return plainly(begin, argument);
    }
    let made = plainly(begin, argument);
    let failed = match made {
        -1 => crate::answer::errno(),
        _ => 0,
    };
    let made = borrower::reclaim(made.into());
    if failed != 0 {
        crate::answer::set_errno(failed);
    }
    made
}
