//! What may only be touched with the lease.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::Arc;

use super::{Lease, Revoked, leaving};
use crate::{Carver, Region, RegionError};

/// What a thread does for others when it lets go of a lease.
pub trait Farewell<T> {
    /// What is done only when the lease is free.
    type Debt;

    /// Serves what others have left for whoever has the lease.
    fn serve(&self, value: &mut T);

    /// Takes what is to be done once the lease is free: whoever is woken while somebody still
    /// has it may take that one's processor, only to wait for it.
    fn owed(&self, value: &mut T) -> Option<Self::Debt>;

    /// Does it.
    fn pay(&self, debt: Self::Debt);
}

/// Nothing.
impl<T> Farewell<T> for () {
    type Debt = core::convert::Infallible;

    fn serve(&self, _: &mut T) {}

    #[inline]
    fn owed(&self, _: &mut T) -> Option<Self::Debt> {
        None
    }

    fn pay(&self, debt: Self::Debt) {
        match debt {}
    }
}

/// A value of this process, the handles to what the processes share, that is to be
/// used by whoever has the lease.
///
/// ```
/// use toehold_shm::{Carver, Lease, Leased, Region, Table};
///
/// let len = Lease::BYTES_NEEDED + Table::<u64>::bytes_needed(1);
/// let mut carver = Carver::new(Region::private(len)?)?;
/// let lease = carver.lease()?;
/// let shared = Leased::new(lease, carver.table::<u64>(1)?);
///
/// let mut table = shared.lock()?;
/// table[0] += 1;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Leased<T, F = ()> {
    lease: Lease,
    /// Whether a guard is in use in this process. The lease's word lies where others
    /// can write, and anyone can release it: that no two threads of this process have
    /// the value at once must not depend on it.
    in_use: AtomicBool,
    farewell: F,
    value: UnsafeCell<T>,
}

// SAFETY: a guard is handed out only by whoever changed `in_use` from false to true,
// so one thread at a time has access to the value.
unsafe impl<T: Send, F: Sync> Sync for Leased<T, F> {}

impl<T> Leased<T> {
    /// Puts a value behind a lease.
    pub fn new(lease: Lease, value: T) -> Self {
        Self {
            lease,
            in_use: AtomicBool::new(false),
            farewell: (),
            value: UnsafeCell::new(value),
        }
    }

    /// The same, where whoever lets go does something for others.
    #[must_use]
    pub fn with_farewell<F: Farewell<T>>(self, farewell: F) -> Leased<T, F> {
        Leased {
            lease: self.lease,
            in_use: self.in_use,
            farewell,
            value: self.value,
        }
    }

    /// Makes this process's handles to a region that other processes of its node use
    /// already, and puts them behind the region's lease. `make` does what was done in the
    /// fresh region, in the same order; a [fingerprint](Carver::fingerprint) that differs
    /// from the one there means that it did not, and it should fail then.
    ///
    /// A forked child can use the mapping that it has from its parent.
    ///
    /// # Errors
    ///
    /// [`RegionError::InUse`] if this process has handles to what is in this mapping already;
    /// those of `make`.
    ///
    /// # Panics
    ///
    /// If the region was opened for reading only.
    pub fn attach<E: From<RegionError>>(
        region: impl Into<Arc<Region>>,
        make: impl FnOnce(&mut Carver) -> Result<(Lease, T), E>,
    ) -> Result<Self, E> {
        let region = region.into();
        if !region.take_use() {
            return Err(RegionError::InUse.into());
        }
        // SAFETY: the handles end up behind the lease, through which all processes that
        // have the region for writing, which is one node's only, reach theirs; no others of
        // this process lead to the same addresses; what `make` may keep beside them are
        // atomic words, which need no lease.
        let mut carver = unsafe { Carver::attach(region) };
        let (lease, value) = make(&mut carver)?;
        Ok(Self::new(lease, value))
    }
}

impl<T, F: Farewell<T>> Leased<T, F> {
    /// The lease.
    #[inline]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Waits for the lease, see [`Lease::acquire`].
    #[inline]
    pub fn lock(&self) -> Result<LeaseGuard<'_, T, F>, Revoked> {
        self.lease.acquire()?;
        self.enter()
    }

    /// The same, for some time at most, see [`Lease::acquire_until`].
    pub fn lock_until(&self, until_ns: u64) -> Result<Option<LeaseGuard<'_, T, F>>, Revoked> {
        match self.lease.acquire_until(until_ns)? {
            true => self.enter().map(Some),
            false => Ok(None),
        }
    }

    /// Takes the lease if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<LeaseGuard<'_, T, F>> {
        if self.lease.try_acquire() {
            self.enter().ok()
        } else {
            None
        }
    }

    /// Takes the lease if it is free. `None`: whoever has it serves the request that was
    /// left before this call, and that nobody else has served yet.
    #[inline]
    pub fn try_lock_or_request(&self) -> Result<Option<LeaseGuard<'_, T, F>>, Revoked> {
        match self.lease.try_acquire_or_request()? {
            true => self.enter().map(Some),
            false => Ok(None),
        }
    }

    /// Takes the lease from a process that is dead, see [`Lease::seize`]. What it was
    /// doing is half done.
    pub fn seize(&self, dead: u16) -> Option<LeaseGuard<'_, T, F>> {
        if self.lease.seize(dead) {
            self.enter().ok()
        } else {
            None
        }
    }

    /// Whether somebody wants the lease.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.lease.is_wanted()
    }

    /// A guard, the lease having been acquired.
    #[inline]
    fn enter(&self) -> Result<LeaseGuard<'_, T, F>, Revoked> {
        self.mark()?;
        Ok(LeaseGuard {
            leased: self,
            held: true,
            panicking: std::thread::panicking(),
            _value: PhantomData,
        })
    }

    /// Whether a thread of this process has the lease, or is just getting it.
    #[inline]
    pub fn is_held_here(&self) -> bool {
        self.lease.holder() == Some(self.lease.me())
    }

    #[inline]
    fn mark(&self) -> Result<(), Revoked> {
        if leaving::is_leaving() {
            self.lease.release();
            leaving::wait();
            self.lease.acquire()?;
        }
        if self.in_use.swap(true, Acquire) {
            // Somebody has broken the lease's word; the one who has the value lets go.
            Err(Revoked)
        } else {
            self.lease.note_thread();
            Ok(())
        }
    }
}

impl<T, F> fmt::Debug for Leased<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// The right to use what is behind a lease. Letting go of it releases the lease.
///
/// Where it is let go for a while, it may not be had again. Then the guard is of no
/// use any more and has to be dropped: to use the value after that is a bug, and
/// panics.
///
/// A thread that panics with the guard leaves what is behind the lease half done.
/// Then nobody gets the lease any more, as if the process had died with it.
pub struct LeaseGuard<'a, T, F: Farewell<T> = ()> {
    leased: &'a Leased<T, F>,
    held: bool,
    /// The thread was panicking already when it took the lease.
    panicking: bool,
    _value: PhantomData<&'a mut T>,
}

impl<T, F: Farewell<T>> LeaseGuard<'_, T, F> {
    /// Serves requests, and lets others have the lease if they want it, and takes it back
    /// after that. One that sleeps for it comes first. After an error the guard is of no
    /// use any more.
    #[cold]
    pub fn give_way(guard: &mut Self) -> Result<(), Revoked> {
        if guard.leased.lease.take_requested() {
            guard.leased.farewell.serve(guard);
            if !guard.leased.is_wanted() {
                return Ok(());
            }
        }
        if let Some(debt) = guard.leased.farewell.owed(guard) {
            guard.leased.farewell.pay(debt);
        }
        guard.leave();
        guard.leased.lease.give_way()?;
        guard.come_back()
    }

    /// Does something without the lease, such as to rest. After an error, which is that
    /// the lease could not be had again, the guard is of no use any more. If that is
    /// known before, nothing is done: nobody would wake up who rests then.
    pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> Result<R, Revoked> {
        guard.let_go()?;
        let result = work();
        guard.leased.lease.acquire()?;
        guard.come_back()?;
        Ok(result)
    }

    /// Whether somebody else wants the lease.
    #[inline]
    pub fn is_wanted(guard: &Self) -> bool {
        guard.leased.is_wanted()
    }

    /// Whether the guard is still good for something.
    #[inline]
    pub fn is_held(guard: &Self) -> bool {
        guard.held
    }

    /// Lets the lease go once nothing is left to be served. Nobody leaves many requests in
    /// a row without waiting for the lease, so this comes to an end.
    #[inline]
    fn let_go(&mut self) -> Result<(), Revoked> {
        let farewell = &self.leased.farewell;
        loop {
            let debt = farewell.owed(self);
            self.leave();
            let released = self.leased.lease.release_unless_requested();
            if let Some(debt) = debt {
                farewell.pay(debt);
            }
            if released? {
                return Ok(());
            }
            self.come_back()?;
            // A guard that is being dropped is not dropped again by a panic.
            let bomb = Bomb(&self.leased.lease);
            farewell.serve(self);
            core::mem::forget(bomb);
        }
    }

    /// Lets go of the value; the lease is still this process's.
    #[inline]
    fn leave(&mut self) {
        assert!(self.held, "the lease was revoked");
        self.held = false;
        self.leased.in_use.store(false, Release);
    }

    /// The other way round.
    #[inline]
    fn come_back(&mut self) -> Result<(), Revoked> {
        self.leased.mark()?;
        self.held = true;
        Ok(())
    }
}

/// Closes the lease of one who panics while it serves requests.
struct Bomb<'a>(&'a Lease);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T, F: Farewell<T>> Deref for LeaseGuard<'_, T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        assert!(self.held, "the lease was revoked");
        // SAFETY: this guard has set `in_use` and not cleared it since, so it is the
        // only one; it lends the value out for as long as it is borrowed itself.
        unsafe { &*self.leased.value.get() }
    }
}

impl<T, F: Farewell<T>> DerefMut for LeaseGuard<'_, T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        assert!(self.held, "the lease was revoked");
        // SAFETY: as in `deref`.
        unsafe { &mut *self.leased.value.get() }
    }
}

impl<T, F: Farewell<T>> Drop for LeaseGuard<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        if self.held {
            if std::thread::panicking() && !self.panicking {
                self.leased.lease.close();
                self.leave();
                self.leased.lease.release();
            } else {
                // There is nothing to be done about one that was revoked.
                let _ = self.let_go();
            }
        }
    }
}

impl<T: fmt::Debug, F: Farewell<T>> fmt::Debug for LeaseGuard<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("LeaseGuard");
        if self.held {
            debug.field(&**self).finish()
        } else {
            debug.finish_non_exhaustive()
        }
    }
}
