//! A process that is stopped while one of its threads holds a lease.
//!
//! A signal can stop a process at any instruction, and others would wait for the lease until it goes
//! on. So the engine lets the one thread run until it has let go, by `ptrace(2)`: the other threads
//! stay stopped, the parent hears nothing, and a SIGCONT or SIGKILL that comes meanwhile has its
//! effect. A process that a debugger has cannot be had that way.

#[cfg(all(test, not(miri)))]
pub(super) use self::system::run_all;
#[cfg(not(miri))]
pub(super) use self::system::{release, stop_here};

/// What tells this thread from others of its process.
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
        // SAFETY: the register may be read at any time.
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

    /// How long the thread may take to let go, and how long the kernel takes to stop one. A thread
    /// lets go within microseconds, unless other threads keep it from a processor.
    const LONGEST: Duration = Duration::from_millis(50);

    /// Time between two looks at a thread that runs.
    const LOOK: Duration = Duration::from_micros(20);

    /// Most threads that are looked at for the one with the lease.
    const MOST_THREADS: usize = 4096;

    /// Stops this process, at this thread: the engine that runs this thread takes the signal away.
    pub(in super::super) fn stop_here() {
        // SAFETY: plain numbers; the signal stops the process, and changes nothing of it.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGSTOP) };
    }

    /// See [`Lease::release_stopped`](super::super::Lease::release_stopped). `ask` tells the holder,
    /// as long as it is one, to stop once it has let go; `is_held` says whether it still is.
    pub(in super::super) fn release(
        pid: u32,
        thread: u32,
        ask: impl Fn() -> bool,
        is_held: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        /// One thread at a time attaches to others, which have one tracer at most.
        static ALONE: Mutex<()> = Mutex::new(());
        let process = pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        match run_thread(process, thread, &ask, &is_held) {
            Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NXIO) => run_all(process, &ask, &is_held),
            done => done,
        }
    }

    /// A thread that this one has attached to, until this is dropped.
    struct Tracee {
        thread: pid_t,
        /// Whether it waits for this thread, as it has to before it is let go of.
        waits: bool,
    }

    /// How a tracee was found.
    enum Found {
        /// It runs.
        Running,
        /// It has stopped, for a signal that it has not taken yet, or for none.
        At(c_int),
        Ended,
    }

    impl Tracee {
        /// Attaches to a thread that is stopped, and waits until it says so.
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
            // SAFETY: the status is written to a variable of its type.
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

        /// Waits until it stops or ends, for some time, as long as `goes_on`.
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

        /// Its thread pointer, of which the lease has half.
        fn thread_pointer(&self) -> Result<u32, Errno> {
            #[cfg(target_arch = "x86_64")]
            {
                const NT_PRSTATUS: c_int = 1;
                // SAFETY: plain numbers, for which zeroes are values.
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
            // SAFETY: the kernel writes at most `len` bytes to the caller's place.
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
        /// The kernel stops it again if its process still is stopped.
        fn drop(&mut self) {
            if !self.waits {
                let interrupted = request(libc::PTRACE_INTERRUPT, self.thread, 0);
                if interrupted.is_err() || !matches!(self.wait(|| true), Ok(Found::At(_))) {
                    // It has ended, or is asleep where no signal reaches it; the kernel lets go of it when
                    // this thread ends.
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
        // SAFETY: these requests take numbers, and no memory of this process.
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

    /// Runs the thread with the lease until it has let go.
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
        // It may have taken the lease and not said so yet.
        let mut holder = found.ok_or(Errno::NXIO)?;
        if !ask() {
            return Ok(());
        }
        let mut signal = 0;
        loop {
            holder.run(signal)?;
            match holder.wait(|| true)? {
                Found::At(libc::SIGSTOP) | Found::Ended => return Ok(()),
                // Its own signals are for it.
                Found::At(other) => signal = other,
                // Without the lease it runs since it was continued meanwhile.
                Found::Running if !is_held() => return Ok(()),
                Found::Running => return Err(Errno::TIMEDOUT),
            }
        }
    }

    /// Runs the whole process until it has let go and stopped itself.
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
        // SAFETY: plain numbers; the process was stopped, and lives, or has ended and is another user's.
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

    /// Whether a debugger has a process: it would hear of each signal.
    fn is_traced(process: pid_t) -> bool {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    }
}
