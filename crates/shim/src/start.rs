//! The library's beginning, in a program that has begun already: other libraries' beginnings
//! may have called it before.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toehold_node::interrupts::Hook;
use toehold_node::run::{KEEPER, keeper_of};

use crate::entry::{bind_to_stand_ins, hear_of_rings, prepare_syscall, remember, take_standard};
use crate::inside::{Inside, be_silent_in_panics};
use crate::{inherited, node, process, sleep, stderr, table, usage};

static WANTED: AtomicBool = AtomicBool::new(false);
static RENOUNCED: AtomicBool = AtomicBool::new(false);

/// Whether there is a node for this program's connections.
#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Relaxed)
}

/// Leaves everything new to the kernel, from now on.
pub(crate) fn renounce() {
    RENOUNCED.store(true, Relaxed);
    WANTED.store(false, Relaxed);
}

/// Whether this process is left with its own system calls.
#[inline]
pub(crate) fn has_renounced() -> bool {
    RENOUNCED.load(Relaxed)
}

/// Takes the descriptor that keeps the node, which is not the program's to close.
fn own_keeper() {
    let variable = std::env::var(KEEPER).unwrap_or_default();
    if let Some((number, is_keeper)) = keeper_of(&variable)
        && is_keeper(table::borrow(&number))
    {
        table::own(number);
        node::set_keeper(number);
    }
}

extern "C" fn begin() {
    let inside = Inside::enter();
    if !node::is_named() {
        return;
    }
    be_silent_in_panics();
    process::watch();
    toehold_node::interrupts::set_hook(Hook {
        is_pending: sleep::is_to_end,
        sleep: sleep::sleep,
    });
    stderr::remember();
    WANTED.store(true, Relaxed);
    bind_to_stand_ins();
    own_keeper();
    remember();
    prepare_syscall();
    hear_of_rings();
    usage::find();
    inherited::find();
    drop(inside);
    (0..3).for_each(take_standard);
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(test)]
const _: extern "C" fn() = begin;
