//! System calls that the program makes by instructions of its own: on this machine the kernel has
//! no way to dispatch them.

/// Whether calls are dispatched.
pub(crate) const fn is_on() -> bool {
    false
}

/// Whether the library has the signal for that.
pub(crate) const fn has_signal() -> bool {
    false
}

/// Does nothing before the program has its first socket.
pub(crate) const fn look() {}

/// Does nothing before the program has another thread.
pub(crate) const fn look_before_thread() {}

/// Does nothing for this thread: its calls are not dispatched.
pub(crate) const fn join() {}

/// Does nothing in a child.
pub(crate) const fn forked() {}

/// Does nothing before a filter of system calls.
pub(crate) const fn stop() {}

/// Leaves a set of signals to block as it is.
pub(crate) const fn still_open(_: core::ffi::c_int, _: *const libc::sigset_t) -> Option<libc::sigset_t> {
    None
}

/// Leaves a mask with a bit for each signal as it is.
pub(crate) const fn still_open_of(signals: core::ffi::c_int) -> core::ffi::c_int {
    signals
}
