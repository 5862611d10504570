//! Other names that libc has for functions that are stood in for, which some programs and
//! libraries are linked to.

use core::ffi::{c_char, c_int, c_ulong, c_void};

use libc::{
    FILE, fd_set, mode_t, nfds_t, pid_t, pollfd, sighandler_t, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use super::{descriptors, open, poll, receive, send, setup, signal, spawn, stdio, wait};

macro_rules! aliases {
    ($($name:ident = $module:ident::$function:ident($($argument:ident: $kind:ty),*) -> $result:ty;)+) => {
        $(
            #[doc = concat!("`", stringify!($function), "`, by another name.")]
            ///
            /// # Safety
            ///
            /// The INTERCEPT contract of [`entry`](crate::entry).
            #[allow(non_snake_case)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
                unsafe { $module::$function($($argument),*) }
            }
        )+
    };
}

aliases! {
    __read = receive::read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    __write = send::write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    __send = send::send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    __connect = setup::connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int;
    __close = descriptors::close(fd: c_int) -> c_int;
    __dup2 = descriptors::dup2(from: c_int, to: c_int) -> c_int;
    __fcntl = descriptors::fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    __poll = poll::poll(fds: *mut pollfd, number: nfds_t, timeout: c_int) -> c_int;
    __select = poll::select(
        number: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int;
    __open = open::open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open64 = open::open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __wait = wait::wait(status: *mut c_int) -> pid_t;
    __waitpid = wait::waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    __sigaction = signal::sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    ssignal = signal::signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    _IO_fopen = open::fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = stdio::fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    _IO_fclose = stdio::fclose(stream: *mut FILE) -> c_int;
    _IO_popen = spawn::popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
}
