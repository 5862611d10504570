//! A process that is stopped while one of its threads holds a lease.
//!
//! A signal can stop a process at any instruction, and other processes would wait for the lease
//! until it continues. The engine therefore runs the one thread by `ptrace(2)` until it has
//! released the lease. The other threads stay stopped, the parent notices nothing, and a SIGCONT or
//! SIGKILL during that time has its effect. This does not work for a process under a debugger.

#[cfg(all(test, not(miri)))]
pub(super) use self::system::run_all;
#[cfg(not(miri))]
pub(super) use self::system::{release, stop_here};

/// Identifies this thread within its process.
#[inline]
pub(super) fn thread_pointer() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let pointer: usize;
        // SAFETY: the first word of a thread's storage is its own address (System V ABI, x86-64). The
        // library enters no lease on a thread that has no such storage.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let pointer: usize;
        // SAFETY: every thread may read this register at any time, and the instruction touches no
        // memory.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    0
}

#[cfg(miri)]
pub(super) fn stop_here() {}

#[cfg(not(miri))]
mod system {
    use core::ffi::{c_int, c_uint, c_void};
    use core::time::Duration;
    use std::fs;
    use std::sync::{Mutex, PoisonError};
    use std::time::Instant;

    use libc::pid_t;
    use rustix::io::Errno;

    /// How long the thread may take to release the lease, and the kernel to stop a thread. A
    /// release takes microseconds, unless other threads keep the thread from a processor.
    const LONGEST: Duration = Duration::from_millis(50);

    /// Time between two checks of a running thread.
    const LOOK: Duration = Duration::from_micros(20);

    /// Most threads that are searched for the one with the lease.
    const MOST_THREADS: usize = 4096;

    /// Stops this process, in this thread: the engine that runs this thread removes the signal.
    pub(in super::super) fn stop_here() {
        // SAFETY: the arguments are plain numbers. The signal stops the process and changes none of
        // its memory.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGSTOP) };
    }

    /// See [`Lease::release_stopped`](super::super::Lease::release_stopped). `ask` tells the holder
    /// to stop after the release; it does nothing for other processes. `is_held` returns whether
    /// the process still holds the lease.
    pub(in super::super) fn release(
        pid: u32,
        thread: u32,
        ask: impl Fn() -> bool,
        is_held: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        /// Lets one thread at a time attach to others, which have one tracer at most.
        static ALONE: Mutex<()> = Mutex::new(());
        let process = pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        match run_thread(process, thread, &ask, &is_held) {
            Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NXIO) => run_all(process, &ask, &is_held),
            done => done,
        }
    }

    /// A thread that this thread has attached to. Dropping it detaches.
    struct Tracee {
        thread: pid_t,
        /// Whether the tracee is stopped, as it has to be before the detachment.
        waits: bool,
    }

    /// The state of a tracee.
    enum Found {
        /// The tracee runs.
        Running,
        /// The tracee has stopped, for a signal that it has not taken yet, or for none.
        At(c_int),
        Ended,
    }

    impl Tracee {
        /// Attaches to a stopped thread, and waits until the kernel reports that.
        fn seize(thread: pid_t) -> Result<Tracee, Errno> {
            request(libc::PTRACE_SEIZE, thread, 0)?;
            let mut tracee = Tracee { thread, waits: false };
            request(libc::PTRACE_INTERRUPT, thread, 0)?;
            match tracee.wait(|| true)? {
                Found::At(_) => Ok(tracee),
                Found::Running => Err(Errno::TIMEDOUT),
                Found::Ended => Err(Errno::SRCH),
            }
        }

        fn look(&mut self) -> Found {
            let mut status = 0;
            // SAFETY: the kernel writes the status to a local variable of its type, which outlives
            // the call.
            match unsafe { libc::waitpid(self.thread, &raw mut status, libc::WNOHANG | libc::__WALL) } {
                0 => Found::Running,
                found if found == self.thread && libc::WIFSTOPPED(status) => {
                    self.waits = true;
                    let is_event = status >> 16 != 0;
                    Found::At(if is_event { 0 } else { libc::WSTOPSIG(status) })
                }
                _ => Found::Ended,
            }
        }

        /// Waits for a limited time until it stops or ends, while `goes_on` returns true.
        fn wait(&mut self, goes_on: impl Fn() -> bool) -> Result<Found, Errno> {
            let until = Instant::now() + LONGEST;
            loop {
                match self.look() {
                    Found::Running if goes_on() && Instant::now() < until => std::thread::sleep(LOOK),
                    found => return Ok(found),
                }
            }
        }

        /// Lets it run, with a signal that it was about to take.
        fn run(&mut self, signal: c_int) -> Result<(), Errno> {
            self.waits = false;
            request(libc::PTRACE_CONT, self.thread, signal)
        }

        /// The half of its thread pointer that the lease stores.
        fn thread_pointer(&self) -> Result<u32, Errno> {
            #[cfg(target_arch = "x86_64")]
            {
                const NT_PRSTATUS: c_int = 1;
                // SAFETY: the structure consists of plain numbers, for which zeroes are valid.
                let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
                self.registers(NT_PRSTATUS, (&raw mut registers).cast(), size_of_val(&registers))?;
                Ok(registers.fs_base as u32)
            }
            #[cfg(target_arch = "aarch64")]
            {
                const NT_ARM_TLS: c_int = 0x401;
                let mut register = 0_u64;
                self.registers(NT_ARM_TLS, (&raw mut register).cast(), size_of_val(&register))?;
                Ok(register as u32)
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            Err(Errno::NOSYS)
        }

        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        fn registers(&self, set: c_int, place: *mut c_void, len: usize) -> Result<(), Errno> {
            let mut part = libc::iovec {
                iov_base: place,
                iov_len: len,
            };
            // SAFETY: the kernel writes at most `len` bytes to the caller's buffer, which outlives
            // the call.
            let done = unsafe {
                libc::ptrace(
                    libc::PTRACE_GETREGSET as c_uint,
                    self.thread,
                    set as usize as *mut c_void,
                    (&raw mut part).cast::<c_void>(),
                )
            };
            if done < 0 { Err(last_error()) } else { Ok(()) }
        }
    }

    impl Drop for Tracee {
        /// The kernel stops the thread again if its process is still stopped.
        fn drop(&mut self) {
            if !self.waits {
                let interrupted = request(libc::PTRACE_INTERRUPT, self.thread, 0);
                if interrupted.is_err() || !matches!(self.wait(|| true), Ok(Found::At(_))) {
                    // The thread has ended, or sleeps where no signal reaches it. The kernel
                    // detaches it when this thread ends.
                    return;
                }
            }
            let _ = request(libc::PTRACE_DETACH, self.thread, 0);
        }
    }

    fn last_error() -> Errno {
        Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
    }

    fn request(request: c_uint, thread: pid_t, number: c_int) -> Result<(), Errno> {
        // SAFETY: these requests take numbers, and touch no memory of this process.
        let done = unsafe {
            libc::ptrace(
                request,
                thread,
                core::ptr::null_mut::<c_void>(),
                number as usize as *mut c_void,
            )
        };
        if done < 0 { Err(last_error()) } else { Ok(()) }
    }

    /// The threads of a process.
    fn threads(process: pid_t) -> Result<Vec<pid_t>, Errno> {
        let listed = fs::read_dir(format!("/proc/{process}/task")).map_err(|_| Errno::SRCH)?;
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        Ok(listed.flatten().take(MOST_THREADS).filter_map(number).collect())
    }

    /// Runs the thread with the lease until it has released it.
    fn run_thread(
        process: pid_t,
        thread: u32,
        ask: &impl Fn() -> bool,
        is_held: &impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let mut found = None;
        for number in threads(process)? {
            let tracee = match Tracee::seize(number) {
                Err(Errno::SRCH) => continue,
                seized => seized?,
            };
            if tracee.thread_pointer()? == thread {
                found = Some(tracee);
                break;
            }
        }
        // The thread may have taken the lease and not recorded itself yet.
        let mut holder = found.ok_or(Errno::NXIO)?;
        if !ask() {
            return Ok(());
        }
        let mut signal = 0;
        loop {
            holder.run(signal)?;
            match holder.wait(|| true)? {
                Found::At(libc::SIGSTOP) | Found::Ended => return Ok(()),
                // Other signals are meant for the thread itself.
                Found::At(other) => signal = other,
                // A running thread without the lease was continued meanwhile.
                Found::Running if !is_held() => return Ok(()),
                Found::Running => return Err(Errno::TIMEDOUT),
            }
        }
    }

    /// Runs the whole process until it has released the lease and stopped itself.
    pub(in super::super) fn run_all(
        process: pid_t,
        ask: &impl Fn() -> bool,
        is_held: &impl Fn() -> bool,
    ) -> Result<(), Errno> {
        if is_traced(process) {
            return Err(Errno::BUSY);
        }
        if !ask() {
            return Ok(());
        }
        // SAFETY: the arguments are plain numbers. The process was stopped, and lives, or has ended
        // and its number belongs to another user.
        if unsafe { libc::kill(process, libc::SIGCONT) } != 0 {
            return Err(last_error());
        }
        let until = Instant::now() + LONGEST;
        while is_held() {
            if Instant::now() >= until {
                return Err(Errno::TIMEDOUT);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether a debugger has a process; it would receive each signal.
    fn is_traced(process: pid_t) -> bool {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    }
}
