//! Functions with any number of arguments. Rust can only call such functions. So they begin in assembly,
//! which puts the arguments where C's `va_list` says that they are.

use core::ffi::c_char;

/// C's `va_list` of this architecture.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
pub(super) struct Arguments {
    /// How much of `saved` has been taken of integers and pointers, and of floating-point numbers.
    taken: u32,
    _taken_floats: u32,
    /// The arguments that the caller has put on the stack.
    stacked: *const *const c_char,
    saved: *const u8,
}

#[cfg(target_arch = "x86_64")]
impl Arguments {
    /// The next argument, which is a pointer.
    ///
    /// # Safety
    ///
    /// The list has one more argument, and it is a pointer.
    pub(super) unsafe fn next(&mut self) -> *const c_char {
        const REGISTERS: u32 = 6 * 8;
        if self.taken < REGISTERS {
            // SAFETY: `saved` has six registers as long as the variadic call lasts, and fewer than
            // six were taken.
            let next = unsafe { self.saved.add(self.taken as usize).cast::<*const c_char>().read() };
            self.taken += 8;
            return next;
        }
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        unsafe {
            let next = self.stacked.read();
            self.stacked = self.stacked.add(1);
            next
        }
    }
}

/// C's `va_list` of this architecture.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
pub(super) struct Arguments {
    /// The arguments that the caller has put on the stack.
    stacked: *const *const c_char,
    saved_end: *const u8,
    _saved_floats_end: *const u8,
    /// The place of the next argument from the end of those that are saved, below zero.
    left: i32,
    _left_floats: i32,
}

#[cfg(target_arch = "aarch64")]
impl Arguments {
    /// The next argument, which is a pointer.
    ///
    /// # Safety
    ///
    /// The list has one more argument, and it is a pointer.
    pub(super) unsafe fn next(&mut self) -> *const c_char {
        if self.left < 0 {
            // SAFETY: `left` is the place of the next saved argument before `saved_end`, which
            // lasts as long as the variadic call.
            let next = unsafe {
                self.saved_end
                    .offset(self.left as isize)
                    .cast::<*const c_char>()
                    .read()
            };
            self.left += 8;
            return next;
        }
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        unsafe {
            let next = self.stacked.read();
            self.stacked = self.stacked.add(1);
            next
        }
    }
}

/// A function that passes the arguments that have names, and a pointer to all others, to another one.
/// `$named`: how many have names, and the register after theirs.
macro_rules! variadic {
    ($(#[doc = $doc:literal])+ fn $name:ident($named:literal, $register:literal) => $function:ident;) => {
        $(#[doc = $doc])+
        ///
        /// # Safety
        ///
        /// The INTERCEPT contract of [`entry`](crate::entry).
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                // How many of these there are, the caller says.
                "test al, al",
                "je 2f",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                "2:",
                concat!("mov dword ptr [rsp + 176], 8 * ", $named),
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $register, ", [rsp + 176]"),
                "call {function}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }

        $(#[doc = $doc])+
        ///
        /// # Safety
        ///
        /// The INTERCEPT contract of [`entry`](crate::entry).
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-240]!",
                ".cfi_def_cfa_offset 240",
                ".cfi_offset 29, -240",
                ".cfi_offset 30, -232",
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                "add x9, sp, #240",
                "add x10, sp, #112",
                "stp x9, x10, [sp, #16]",
                "str x9, [sp, #32]",
                concat!("mov w9, #(8 * (", $named, " - 8))"),
                "mov w10, #-128",
                "stp w9, w10, [sp, #40]",
                concat!("add x", $named, ", sp, #16"),
                "bl {function}",
                "ldp x29, x30, [sp], #240",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    };
}

pub(super) use variadic;
