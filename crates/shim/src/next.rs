//! The functions behind the library's: those of the next library that has them, which is libc, or
//! another one that was preloaded too.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    FILE, addrinfo, aiocb, c_char, c_long, c_uint, c_ulong, epoll_event, fd_set, gid_t, hostent, id_t,
    idtype_t, iovec, loff_t, mmsghdr, mode_t, msghdr, nfds_t, off_t, pid_t, pollfd, rlimit64, rusage,
    sigevent, siginfo_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, uid_t,
};

/// The start routine of a thread.
pub(crate) type Begin = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The start function of a child of `clone(2)`.
pub(crate) type Start = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A function of libc, looked up when it is first called.
struct Next {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            function: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let function = self.function.load(Relaxed);
        if function.is_null() {
            return self.find();
        }
        function
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string literal, which lives as long as the library.
        let mut function = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if function.is_null() {
            function = missing as *mut c_void;
        }
        self.function.store(function, Relaxed);
        function
    }
}

/// Stands for a function that this system's libc does not have. Arguments that it does not
/// take do no harm in this calling convention.
extern "C" fn missing() -> c_long {
    // SAFETY: `__errno_location` returns this thread's own `errno`, which is valid until the thread
    // ends.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! next {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)+) => {
        $(
            /// The next function of that name.
            ///
            /// # Safety
            ///
            /// The arguments are as the function's manual page demands, until the call returns.
            #[inline]
            #[allow(clippy::too_many_arguments)]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                static NEXT: Next = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => Next::new(name),
                    Err(_) => panic!("a name has no zero inside"),
                };
                type Function = unsafe extern "C" fn($($kind),*) -> $result;
                // SAFETY: the function of that name has the type `Function`, as the manual says,
                // and is never unloaded.
                let function = unsafe { core::mem::transmute::<*mut c_void, Function>(NEXT.get()) };
                // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
                unsafe { function($($argument),*) }
            }
        )+
    };
}

next! {
    fn aio_read(request: *mut aiocb) -> c_int;
    fn aio_read64(request: *mut aiocb) -> c_int;
    fn aio_write(request: *mut aiocb) -> c_int;
    fn aio_write64(request: *mut aiocb) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut aiocb, number: c_int, event: *mut sigevent) -> c_int;
    fn lio_listio64(mode: c_int, list: *const *mut aiocb, number: c_int, event: *mut sigevent) -> c_int;

    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn getifaddrs(list: *mut *mut libc::ifaddrs) -> c_int;
    fn freeifaddrs(list: *mut libc::ifaddrs) -> ();
    fn bindresvport(fd: c_int, address: *mut libc::sockaddr_in) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: libc::c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: libc::c_uint, flags: c_int) -> c_int;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, len: size_t, flags: libc::c_uint) -> ssize_t;

    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, len: size_t) -> c_int;
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
    fn io_uring_get_probe() -> *mut c_void;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: libc::c_uint, last: libc::c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fn syscall(number: c_long, first: c_long, second: c_long, third: c_long, fourth: c_long, fifth: c_long, sixth: c_long) -> c_long;
    fn clone(begin: Start, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut pid_t, storage: *mut c_void, child: *mut pid_t) -> c_int;
    fn _exit(status: c_int) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        begin: Begin,
        argument: *mut c_void
    ) -> c_int;
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn sigblock(signals: c_int) -> c_int;
    fn sigsetmask(signals: c_int) -> c_int;
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn wait(status: *mut c_int) -> pid_t;
    fn waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t;
    fn wait4(process: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t;
    fn waitid(which: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn getaddrinfo(name: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int;
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawnp(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn gethostbyname2_r(name: *const c_char, family: c_int, entry: *mut hostent, buffer: *mut c_char, len: size_t, found: *mut *mut hostent, error: *mut c_int) -> c_int;
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int;
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int;
    fn fstat64(fd: c_int, to: *mut libc::stat64) -> c_int;
    fn stat(path: *const c_char, to: *mut libc::stat) -> c_int;
    fn stat64(path: *const c_char, to: *mut libc::stat64) -> c_int;
    fn fstatat(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
    fn fstatat64(at: c_int, path: *const c_char, to: *mut libc::stat64, flags: c_int) -> c_int;
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int;
    fn readlink(path: *const c_char, to: *mut c_char, len: size_t) -> ssize_t;
    fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, len: size_t) -> ssize_t;
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fclose(stream: *mut FILE) -> c_int;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    fn chroot(path: *const c_char) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setgroups(number: size_t, groups: *const gid_t) -> c_int;
    fn prlimit64(process: pid_t, resource: c_uint, new: *const rlimit64, old: *mut rlimit64) -> c_int;
    fn prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int;
}
