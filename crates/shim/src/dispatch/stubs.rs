//! Calls that have to be made where they stand. Some make threads, give back the stack that a signal came on,
//! or change the state that a signal's handler returns to. The others do not concern the library.
//!
//! Such a call is made by an instruction that is not dispatched, with every register as the program has set
//! it. The program then goes on where it would have. The kernel destroys one register, which would be needed
//! for the way back. So there is one such instruction for each of the program's.

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Instructions of the program that have a stub, at most.
const MOST: usize = 1024;

/// Bytes of a stub.
const SIZE: usize = 16;

/// The address at which each stub goes on, which is behind the program's instruction.
static BACK: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

unsafe extern "C" {
    fn toehold_stubs();
}

/// Where to make the call that goes on at `back`; `None` if there are no more.
pub(super) fn of(back: usize) -> Option<usize> {
    // Spread over all of them by where the call is, in no order.
    let first = (back >> 1) % MOST;
    let found = (0..MOST).map(|step| (first + step) % MOST).find(|&at| {
        let taken = BACK[at].compare_exchange(0, back, Relaxed, Relaxed);
        taken.is_ok_and(|_| true) || taken == Err(back)
    });
    found.map(|at| toehold_stubs as *const () as usize + at * SIZE)
}

/// Where to make a call that does not go on.
pub(super) fn last() -> usize {
    toehold_stubs as *const () as usize
}

global_asm!(
    ".pushsection .text.toehold_stubs, \"ax\", @progbits",
    ".balign {size}",
    ".hidden toehold_stubs",
    ".globl toehold_stubs",
    ".type toehold_stubs, @function",
    "toehold_stubs:",
    ".set .Lnumber, 0",
    ".rept {most}",
    ".balign {size}",
    "syscall",
    "mov rcx, [rip + {back} + 8 * .Lnumber]",
    "jmp rcx",
    ".set .Lnumber, .Lnumber + 1",
    ".endr",
    ".size toehold_stubs, . - toehold_stubs",
    ".popsection",
    size = const SIZE,
    most = const MOST,
    back = sym BACK,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_goes_on_where_it_was_made() {
        let stubs: Vec<usize> = (1..=MOST).map(|back| of(back << 4).unwrap()).collect();
        for (number, &stub) in stubs.iter().enumerate() {
            let back = (number + 1) << 4;
            assert_eq!(of(back), Some(stub), "it is found again");
            let at = (stub - toehold_stubs as *const () as usize) / SIZE;
            assert_eq!(BACK[at].load(Relaxed), back);
            // SAFETY: `stub` points to `SIZE` bytes of this program's own code, which is readable
            // and never unloaded.
            let code = unsafe { core::slice::from_raw_parts(stub as *const u8, SIZE) };
            // syscall; mov rcx, [rip + ...]; jmp rcx
            assert_eq!(
                (&code[..5], &code[9..11]),
                (&[0x0f, 0x05, 0x48, 0x8b, 0x0d][..], &[0xff, 0xe1][..])
            );
            let distance = i32::from_ne_bytes(code[5..9].try_into().unwrap());
            let read = (stub + 9).wrapping_add_signed(distance as isize);
            assert_eq!(read, &raw const BACK[at] as usize);
        }
        assert_eq!(of(usize::MAX), None, "all are taken");
    }
}
