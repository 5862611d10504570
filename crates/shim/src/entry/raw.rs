//! `syscall(2)`: programs that call the kernel by numbers are served like others.

use core::ffi::{c_int, c_long};

use toehold_posix::errno::Errno;

use super::{
    accept, aio, control, descriptors, epoll, exec, files, identity, limits, modes, names, open, options,
    poll, privilege, receive, rings, send, setup, wait,
};
use crate::answer::answer;
use crate::inside::is_inside;
use crate::memory::is_readable;
use crate::{next, process, start};

/// Operations of `seccomp(2)`.
const SET_MODE_STRICT: c_long = libc::SECCOMP_SET_MODE_STRICT as c_long;
const SET_MODE_FILTER: c_long = libc::SECCOMP_SET_MODE_FILTER as c_long;

/// Whether `clone(2)` with these flags and stack makes another process that goes on where this
/// one is.
fn is_fork(flags: c_long, stack: c_long) -> bool {
    flags & c_long::from(libc::CLONE_VM) == 0 && stack == 0
}

/// Whether `clone3(2)` with these arguments makes another process that goes on where this one is.
///
/// # Safety
///
/// `arguments` is null, or points to the arguments of the call.
unsafe fn is_fork_of(arguments: *const u64) -> bool {
    // Flags, three words for numbers, the signal, the stack.
    const UP_TO_STACK: usize = 6;
    if !is_readable(arguments, UP_TO_STACK) {
        return false;
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let (flags, stack) = unsafe { (arguments.read(), arguments.add(UP_TO_STACK - 1).read()) };
    is_fork(flags as c_long, stack as c_long)
}

/// Has libc's function looked for by now: a child of `clone` that has no storage to look for it calls it
/// (Chromium's sandbox).
pub(crate) fn prepare() {
    // SAFETY: `getpid` takes no argument and changes nothing.
    unsafe { next::syscall(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) };
}

/// `syscall(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the arguments of the system call of that
/// number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let served = match number == libc::SYS_futex || is_inside() || !start::is_wanted() {
        true => None,
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        false => unsafe { serve(number, [a, b, c, d, e, f]) },
    };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    served.unwrap_or_else(|| unsafe { next::syscall(number, a, b, c, d, e, f) })
}

/// Whether a call passes a set of signals of a size that the kernel does not know, and says so first.
fn is_mask_of_another_size(number: c_long, [d, e, f]: [c_long; 3]) -> bool {
    /// Bytes of the kernel's sets of signals.
    const SIZE: c_long = 8;
    let (mask, size) = match number {
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => (e, f),
        libc::SYS_ppoll => (d, e),
        _ => return false,
    };
    mask != 0 && size != SIZE
}

/// Does what a system call does of which the library knows. As libc's function, it returns a
/// number, or -1 and `errno`. Returns `None` if the call is the kernel's.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry), for the arguments of the system call of that
/// number.
pub(crate) unsafe fn serve(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    if number == libc::SYS_io_uring_setup && rings::is_refused() {
        return Some(answer::<c_int>(Err(Errno(libc::ENOSYS))).into());
    }
    if is_mask_of_another_size(number, [d, e, f]) {
        return None;
    }
    let fd = a as c_int;
    // SAFETY: as the program passed it; each function takes what its system call takes.
    let served = unsafe {
        match number {
            libc::SYS_read => receive::read(fd, b as _, c as _) as c_long,
            libc::SYS_readv => receive::readv(fd, b as _, c as _) as c_long,
            libc::SYS_recvfrom => receive::recvfrom(fd, b as _, c as _, d as _, e as _, f as _) as c_long,
            libc::SYS_recvmsg => receive::recvmsg(fd, b as _, c as _) as c_long,
            libc::SYS_recvmmsg => receive::recvmmsg(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_write => send::write(fd, b as _, c as _) as c_long,
            libc::SYS_writev => send::writev(fd, b as _, c as _) as c_long,
            libc::SYS_sendto => send::sendto(fd, b as _, c as _, d as _, e as _, f as _) as c_long,
            libc::SYS_sendmsg => send::sendmsg(fd, b as _, c as _) as c_long,
            libc::SYS_sendmmsg => send::sendmmsg(fd, b as _, c as _, d as _).into(),
            libc::SYS_sendfile => files::sendfile(fd, b as _, c as _, d as _) as c_long,
            libc::SYS_splice => files::splice(fd, b as _, c as _, d as _, e as _, f as _) as c_long,
            libc::SYS_socket => setup::socket(fd, b as _, c as _).into(),
            libc::SYS_bind => setup::bind(fd, b as _, c as _).into(),
            libc::SYS_listen => setup::listen(fd, b as _).into(),
            libc::SYS_accept4 => accept::accept4(fd, b as _, c as _, d as _).into(),
            libc::SYS_connect => setup::connect(fd, b as _, c as _).into(),
            libc::SYS_shutdown => setup::shutdown(fd, b as _).into(),
            libc::SYS_getsockname => names::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => names::getpeername(fd, b as _, c as _).into(),
            libc::SYS_getsockopt => options::getsockopt(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_setsockopt => options::setsockopt(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as _, b as _, c as _).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as _, c as _).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as _, c as _).into(),
            libc::SYS_openat => open::openat(fd, b as _, c as _, d as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open(a as _, b as _, c as _).into(),
            libc::SYS_fstat => identity::fstat(fd, b as _).into(),
            libc::SYS_newfstatat => identity::fstatat(fd, b as _, c as _, d as _).into(),
            libc::SYS_statx => identity::statx(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_readlinkat => identity::readlinkat(fd, b as _, c as _, d as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_readlink => identity::readlink(a as _, b as _, c as _) as c_long,
            libc::SYS_fgetxattr => identity::fgetxattr(fd, b as _, c as _, d as _) as c_long,
            libc::SYS_getxattr => identity::getxattr(a as _, b as _, c as _, d as _) as c_long,
            libc::SYS_fchmod => modes::fchmod(fd, b as _).into(),
            libc::SYS_fchown => modes::fchown(fd, b as _, c as _).into(),
            libc::SYS_flock => modes::flock(fd, b as _).into(),
            libc::SYS_ioctl => control::ioctl(fd, b as _, c as _).into(),
            // The system call says how much of the time is left, which libc's function does not.
            libc::SYS_ppoll => poll::ppoll_by_number(a as _, b as _, c as _, d as _)?.into(),
            libc::SYS_pselect6 => poll::pselect6(fd, [b as _, c as _, d as _], e as _, f as _)?.into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => epoll::epoll_ctl(fd, b as _, c as _, d as _).into(),
            libc::SYS_epoll_pwait => epoll::epoll_pwait(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_epoll_pwait2 => epoll::epoll_pwait2(fd, b as _, c as _, d as _, e as _).into(),
            // The fifth argument is what of the offset the fourth has no room for.
            libc::SYS_preadv2 => receive::preadv2(fd, b as _, c as _, d as _, f as _) as c_long,
            libc::SYS_pwritev2 => send::pwritev2(fd, b as _, c as _, d as _, f as _) as c_long,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_accept => accept::accept(fd, b as _, c as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => poll::poll(a as _, b as _, c as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => poll::select(fd, b as _, c as _, d as _, e as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => epoll::epoll_create(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => epoll::epoll_wait(fd, b as _, c as _, d as _).into(),
            // Another process's descriptor may be a connection's.
            libc::SYS_pidfd_getfd => descriptors::pidfd_getfd(fd, b as _, c as _).into(),
            libc::SYS_wait4 => wait::wait4(fd, b as _, c as _, d as _).into(),
            // The fifth argument, the child's use of the machine, libc's function does not have.
            libc::SYS_waitid => {
                wait::waited_for(c as _, |info| next::syscall(number, a, b, info as _, d, e, f))
            }
            libc::SYS_prlimit64 => limits::prlimit64(a as _, b as _, c as _, d as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_setrlimit => limits::setrlimit(a as _, b as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_getrlimit => limits::getrlimit(a as _, b as _).into(),
            libc::SYS_clone if is_fork(a, b) => {
                process::fork_by_number(|| next::syscall(number, a, b, c, d, e, f))
            }
            libc::SYS_clone3 if is_fork_of(a as _) => {
                process::fork_by_number(|| next::syscall(number, a, b, c, d, e, f))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => process::fork_by_number(|| next::syscall(number, a, b, c, d, e, f)),
            libc::SYS_exit_group => {
                crate::node::leave();
                return None;
            }
            libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_chroot
            | libc::SYS_setns => {
                privilege::prepare();
                return None;
            }
            libc::SYS_unshare => {
                privilege::before_unshare(fd);
                return None;
            }
            libc::SYS_seccomp => {
                let sets =
                    [SET_MODE_STRICT, SET_MODE_FILTER].contains(&a) && (a == SET_MODE_STRICT || c != 0);
                if sets {
                    privilege::before_filter();
                }
                return None;
            }
            libc::SYS_prctl => {
                privilege::before_prctl(fd, b as _, c as _);
                return None;
            }
            libc::SYS_io_submit => {
                aio::before_submit(b, c as _);
                return None;
            }
            libc::SYS_execveat => exec::execveat(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_execve => exec::execve(a as _, b as _, c as _).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rt_sigaction => crate::dispatch::install_by_number(fd, b as _, c as _, d as _)?.into(),
            _ => return None,
        }
    };
    Some(served)
}
