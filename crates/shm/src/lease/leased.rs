//! Values that only the holder of the lease may access.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::Arc;

use super::{Lease, Revoked, leaving};
use crate::{Carver, Region, RegionError};

/// Work that a thread does for others when it releases a lease.
pub trait Farewell<T> {
    /// Work that has to wait until the lease is free.
    type Debt;

    /// Serves the requests that other threads have left for the holder of the lease.
    fn serve(&self, value: &mut T);

    /// Takes the work for the time after the release. A thread that is woken while the lease is
    /// held may take the holder's processor, only to wait for the lease.
    fn owed(&self, value: &mut T) -> Option<Self::Debt>;

    /// Does that work.
    fn pay(&self, debt: Self::Debt);
}

/// Does nothing.
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

/// A value of this process that only the holder of the lease uses, usually its handles to the
/// shared state.
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
    /// Whether a guard is in use in this process. Other processes can write the lease's word and
    /// release it. The guarantee that no two threads of this process have the value at once must
    /// not depend on that word.
    in_use: AtomicBool,
    farewell: F,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that changed `in_use` from false to true gets a guard, so one thread at a
// time has access to the value.
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

    /// Adds work that a releasing thread does for others.
    #[must_use]
    pub fn with_farewell<F: Farewell<T>>(self, farewell: F) -> Leased<T, F> {
        Leased {
            lease: self.lease,
            in_use: self.in_use,
            farewell,
            value: self.value,
        }
    }

    /// Makes this process's handles to a region that other processes of its node use already, and
    /// puts them behind the region's lease. `make` repeats the calls of the process that carved the
    /// region, in the same order. It should fail if the [fingerprint](Carver::fingerprint) differs
    /// from the region's.
    ///
    /// A forked child can use the mapping of its parent.
    ///
    /// # Errors
    ///
    /// [`RegionError::InUse`] if this process already has handles to this mapping; those of `make`.
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
        // SAFETY: the handles end up behind the lease. All processes that map the region for
        // writing belong to one node and use it through the lease. No other handles of this process
        // lead to these addresses. `make` may keep only atomic words beside them, which need no
        // lease.
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

    /// Waits for the lease for a limited time, see [`Lease::acquire_until`].
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

    /// Takes the lease if it is free. Returns `None` if the holder serves the request that the
    /// caller left before this call.
    #[inline]
    pub fn try_lock_or_request(&self) -> Result<Option<LeaseGuard<'_, T, F>>, Revoked> {
        match self.lease.try_acquire_or_request()? {
            true => self.enter().map(Some),
            false => Ok(None),
        }
    }

    /// Takes the lease from a dead process, see [`Lease::seize`]. The change that it was making may
    /// be incomplete.
    pub fn seize(&self, dead: u16) -> Option<LeaseGuard<'_, T, F>> {
        if self.lease.seize(dead) {
            self.enter().ok()
        } else {
            None
        }
    }

    /// Whether a thread wants the lease.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.lease.is_wanted()
    }

    /// Makes a guard after the lease was acquired.
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

    /// Whether a thread of this process has the lease, or is about to get it.
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
            // Another process has overwritten the lease's word; the thread with the value releases
            // it.
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

/// The right to use the value behind a lease. Dropping it releases the lease.
///
/// A method that releases the lease for a while may fail to get it back. Then the guard must be
/// dropped: using the value after that is a bug, and panics.
///
/// A thread that panics with the guard may leave the value in an incomplete state. Then no thread
/// gets the lease any more, as if the process had died with it.
pub struct LeaseGuard<'a, T, F: Farewell<T> = ()> {
    leased: &'a Leased<T, F>,
    held: bool,
    /// The thread was already panicking when it took the lease.
    panicking: bool,
    _value: PhantomData<&'a mut T>,
}

impl<T, F: Farewell<T>> LeaseGuard<'_, T, F> {
    /// Serves requests, lets waiting threads have the lease, and takes it back after that. A
    /// sleeping thread comes first. After an error the guard must be dropped.
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

    /// Runs `work`, such as a rest, without the lease. After an error the guard must be dropped:
    /// the lease could not be acquired again. If the lease is already closed, `work` does not run,
    /// since nothing would wake a resting thread.
    pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> Result<R, Revoked> {
        guard.let_go()?;
        let result = work();
        guard.leased.lease.acquire()?;
        guard.come_back()?;
        Ok(result)
    }

    /// Whether another thread wants the lease.
    #[inline]
    pub fn is_wanted(guard: &Self) -> bool {
        guard.leased.is_wanted()
    }

    /// Whether the guard still holds the lease.
    #[inline]
    pub fn is_held(guard: &Self) -> bool {
        guard.held
    }

    /// Releases the lease once no request is left. A thread leaves only a few requests in a row
    /// without waiting for the lease, so this loop ends.
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
            // The bomb prevents a second drop of the guard if a panic drops it.
            let bomb = Bomb(&self.leased.lease);
            farewell.serve(self);
            core::mem::forget(bomb);
        }
    }

    /// Gives up the value; this process still holds the lease.
    #[inline]
    fn leave(&mut self) {
        assert!(self.held, "the lease was revoked");
        self.held = false;
        self.leased.in_use.store(false, Release);
    }

    /// Takes the value back.
    #[inline]
    fn come_back(&mut self) -> Result<(), Revoked> {
        self.leased.mark()?;
        self.held = true;
        Ok(())
    }
}

/// Closes the lease if its holder panics while it serves requests.
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
        // SAFETY: this guard has set `in_use` and not cleared it since, so it is the only one. It
        // lends the value as long as it is borrowed itself.
        unsafe { &*self.leased.value.get() }
    }
}

impl<T, F: Farewell<T>> DerefMut for LeaseGuard<'_, T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        assert!(self.held, "the lease was revoked");
        // SAFETY: this guard has set `in_use` and not cleared it since, so it is the only one. It
        // is borrowed mutably.
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
                // Nothing is left to do for a revoked lease.
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
