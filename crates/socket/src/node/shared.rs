//! State that all handles of a node and all its sockets share. It has the way to the node's shards,
//! and makes and unmakes what is in them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_node::direct::DirectEnd;
use toehold_node::{
    AttachedNode, Guard, Holder, LocalNode, Operation, Ownership, Relayed, Shard, ShardHandle, Shards,
    SpinBudget,
};
use toehold_stack::{Event, Settings};

use crate::error::{from_holder, gone, parents};

/// Longest time that the engine may take to close something, before the caller that has let go of
/// it goes on.
const CLOSING: Duration = Duration::from_millis(200);

/// State that all handles of a node share.
pub(crate) struct Shared {
    pub(super) place: Place,
    /// The spin budget of calls that concern no socket.
    pub(super) spin: SpinBudget,
}

/// A descriptor's holder, and the end or sockets that it stands for.
pub(crate) enum Identified {
    Direct(Holder, DirectEnd),
    /// Something in shards, with its id in each.
    InShards(Holder, Vec<(u8, Event)>),
}

/// The process of the node's engine.
pub(super) enum Place {
    /// This process.
    Here(LocalNode),
    /// Another process.
    Elsewhere(AttachedNode),
}

impl Shared {
    #[inline]
    pub(crate) fn shards(&self) -> io::Result<&Shards> {
        match &self.place {
            Place::Here(node) => node.shards().ok_or_else(parents),
            Place::Elsewhere(node) => node.shards().map_err(gone),
        }
    }

    #[inline]
    fn handle(&self, shard: u8) -> io::Result<&ShardHandle> {
        Ok(self.shards()?.get(shard))
    }

    /// The node's shards, if this process has used them before. A forked child need not begin to
    /// use them just to let go of its copies.
    #[inline]
    pub(crate) fn shards_in_use(&self) -> Option<&Shards> {
        match &self.place {
            Place::Here(node) => node.shards(),
            Place::Elsewhere(node) => node.shards_in_use(),
        }
    }

    /// Calls `act`, which uses the node's memory. Other programs of the node can write nonsense
    /// there, and the stack panics at it. Then this process leaves that life of the node, and the
    /// engine begins another one.
    ///
    /// # Errors
    ///
    /// The errors of `act`; `NetworkDown` if it panicked.
    #[inline]
    pub(crate) fn contain<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // A call that was interrupted leaves its state to a node that no thread uses any more.
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(done) => done,
            Err(_) => self.abandon(),
        }
    }

    /// Leaves a life of the node whose memory is damaged.
    pub(crate) fn leave_damaged(&self) {
        let _ = self.abandon::<()>();
    }

    #[cold]
    fn abandon<T>(&self) -> io::Result<T> {
        if let Some(shards) = self.shards_in_use() {
            shards.abandon();
        }
        Err(Errno::NETDOWN.into())
    }

    /// Begins a call that concerns a shard.
    #[inline]
    pub(crate) fn enter(&self, shard: u8) -> io::Result<Guard<'_>> {
        self.handle(shard)?.enter().map_err(gone)
    }

    /// The number of this process in the node; 0 if it was forked and has none yet.
    pub(crate) fn process(&self) -> u16 {
        self.shards_in_use().map_or(0, |shards| shards.get(0).process())
    }

    /// Makes a connection in a shard, with the holder that keeps it open. Returns the error of
    /// `make`.
    pub(crate) fn make<T>(
        &self,
        shard: u8,
        make: impl FnOnce(&mut Guard<'_>) -> io::Result<(Event, T)>,
    ) -> io::Result<(Holder, T)> {
        self.contain(|| {
            let handle = self.handle(shard)?;
            let holder = handle.holder().map_err(from_holder)?;
            let mut shard = handle.enter().map_err(gone)?;
            let made = make(&mut shard).and_then(|(source, made)| {
                if handle.hold(&mut shard, &holder, source) {
                    return Ok(made);
                }
                shard.close(source);
                Err(Errno::NFILE.into())
            });
            if Guard::is_held(&shard) {
                handle.settle(&mut shard);
            }
            drop(shard);
            match made {
                Ok(made) => Ok((holder, made)),
                Err(error) => {
                    handle.give_back(holder);
                    Err(error)
                }
            }
        })
    }

    /// Lets go of a connection of a shard. Closes it, unless another process may have it too; then
    /// the engine closes it once no process has it. `linger` says how long the last process to have
    /// it waits before that, if at all, and `wait` does so.
    pub(crate) fn unmake(
        &self,
        shard: u8,
        holder: Holder,
        source: Event,
        linger: impl FnOnce(&Shard) -> Option<Duration>,
        wait: impl FnOnce(&mut Guard<'_>, Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        self.contain(|| {
            let Some(handle) = self.shards_in_use().map(|shards| shards.get(shard)) else {
                return Ok(());
            };
            // Of a node that is gone, nothing is left to be closed.
            let mut shard = handle.enter().map_err(gone)?;
            if handle.is_relayed(&shard, &holder) {
                // The engine closes it.
                return Ok(());
            }
            let linger = linger(&shard);
            let holder = if handle.is_exclusive(&holder) {
                holder
            } else {
                shard.unwatch(source, handle.process());
                drop(shard);
                if linger.is_none() {
                    self.let_go(holder);
                    return Ok(());
                }
                let Some(holder) = handle.inherit(holder) else {
                    return Ok(());
                };
                shard = handle.enter().map_err(gone)?;
                holder
            };
            shard.tick();
            if let Some(longest) = linger {
                wait(&mut shard, longest)?;
            }
            shard.close(source);
            handle.release(&mut shard, &holder);
            shard.respond();
            handle.settle(&mut shard);
            drop(shard);
            handle.give_back(holder);
            Ok(())
        })
    }

    /// The holder that will keep a listener open, and the address where it is to listen. The kernel
    /// beside the node, if there is one, leaves that port to it from now on.
    pub(crate) fn holder_at(&self, at: SocketAddr, settings: &Settings) -> io::Result<(Holder, SocketAddr)> {
        self.contain(|| {
            let handle = self.handle(0)?;
            let mut holder = handle.holder().map_err(from_holder)?;
            let mut at = at;
            match handle.take_port(&mut holder, at, settings.v6_only()) {
                Ok(port) => {
                    at.set_port(port);
                    Ok((holder, at))
                }
                Err(error) => {
                    handle.give_back(holder);
                    Err(from_holder(error))
                }
            }
        })
    }

    /// Makes something in every shard, the first one first, all of which the holder keeps
    /// open. What was made is closed again if it cannot be made in one of them.
    pub(crate) fn make_everywhere<T>(
        &self,
        holder: Holder,
        mut make: impl FnMut(u8, &mut Guard<'_>) -> io::Result<(Event, T)>,
    ) -> io::Result<(Holder, Vec<T>)> {
        self.contain(|| {
            let shards = self.shards()?;
            let (mut made, mut sources) = (Vec::new(), Vec::new());
            for (index, handle) in shards.iter() {
                let one = handle.enter().map_err(gone).and_then(|mut shard| {
                    let (source, one) = make(index, &mut shard)?;
                    if handle.hold(&mut shard, &holder, source) {
                        handle.settle(&mut shard);
                        return Ok((source, one));
                    }
                    shard.close(source);
                    Err(Errno::NFILE.into())
                });
                match one {
                    Ok((source, one)) => {
                        sources.push(source);
                        made.push(one);
                    }
                    Err(error) => {
                        // A node that is gone holds nothing.
                        let _ = self.unmake_everywhere(holder, &sources);
                        return Err(error);
                    }
                }
            }
            Ok((holder, made))
        })
    }

    /// Lets go of something in every shard. The port is free when it is closed in the first shard,
    /// which comes last.
    pub(crate) fn unmake_everywhere(&self, holder: Holder, sources: &[Event]) -> io::Result<()> {
        self.contain(|| {
            let Some(shards) = self.shards_in_use() else {
                // A forked child that has used nothing of its parent's may be the last to have this.
                self.let_go(holder);
                return Ok(());
            };
            let exclusive = shards.get(0).is_exclusive(&holder);
            let made = sources.iter().enumerate().rev();
            for (handle, &source) in made.map(|(index, source)| (shards.get(index as u8), source)) {
                let mut shard = handle.enter().map_err(gone)?;
                if !exclusive {
                    shard.unwatch(source, handle.process());
                    continue;
                }
                shard.tick();
                shard.close(source);
                handle.release(&mut shard, &holder);
                shard.respond();
                handle.settle(&mut shard);
            }
            match exclusive {
                true => shards.get(0).give_back(holder),
                false => self.let_go(holder),
            }
            Ok(())
        })
    }

    /// Lets go of a holder that other processes may have too. If none has, what it stood for is closed
    /// now, as the kernel would have closed it.
    pub(crate) fn let_go(&self, holder: Holder) {
        drop(holder);
        if let Place::Elsewhere(node) = &self.place {
            node.await_closing(CLOSING);
        }
    }

    /// Finds the end of a direct connection, or the sockets in shards, that a descriptor stands
    /// for.
    pub(crate) fn identify_direct(&self, descriptor: OwnedFd) -> io::Result<Identified> {
        self.contain(|| {
            let shards = self.shards()?;
            let (holder, end) = shards.identify_direct(descriptor).map_err(from_holder)?;
            if let Some(end) = end {
                return Ok(Identified::Direct(holder, end));
            }
            let sources = shards.sources(&holder).map_err(from_holder)?;
            Ok(Identified::InShards(holder, sources))
        })
    }

    /// The connection or listener that a descriptor is, in every shard that has it.
    pub(crate) fn identify(&self, descriptor: OwnedFd) -> io::Result<(Holder, Vec<(u8, Event)>)> {
        self.contain(|| {
            let shards = self.shards()?;
            shards.identify(descriptor).map_err(from_holder)
        })
    }

    /// The ends of the connection whose bytes the engine carries to and from a descriptor.
    pub(super) fn relayed(&self, descriptor: OwnedFd) -> io::Result<Option<Relayed>> {
        self.contain(|| self.shards()?.relayed(descriptor).map_err(from_holder))
    }

    /// Notes that this process has a poll that has to be closed when it ends.
    pub(crate) fn own(&self, index: u8, shard: &mut Guard<'_>, poll: u32) -> io::Result<Ownership> {
        let owned = self.handle(index)?.own(shard, poll);
        owned.ok_or_else(|| Errno::NOBUFS.into())
    }

    /// Notes that this process has closed the poll.
    pub(crate) fn disown(&self, index: u8, shard: &mut Guard<'_>, ownership: Ownership) {
        if let Ok(handle) = self.handle(index) {
            handle.disown(shard, ownership);
        }
    }

    /// Waits until an operation that has just failed in a shard is done, `deadline` at
    /// most; `None` if that has passed.
    pub(crate) fn block<O: Operation>(
        &self,
        index: u8,
        shard: &mut Guard<'_>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<toehold_stack::Instant>,
    ) -> io::Result<Option<O::Output>> {
        let handle = self.handle(index)?;
        handle.block(shard, operation, spin, deadline).map_err(gone)
    }

    /// Ends a call that did not wait.
    #[inline]
    pub(crate) fn settle(&self, index: u8, shard: &mut Guard<'_>) {
        if let Ok(handle) = self.handle(index) {
            handle.settle(shard);
        }
    }
}

/// The shard of a node to which a connection belongs.
pub(crate) struct OnShard {
    pub(crate) node: Arc<Shared>,
    pub(crate) index: u8,
}

impl OnShard {
    /// The way to the shard.
    #[inline]
    pub(crate) fn handle(&self) -> io::Result<&ShardHandle> {
        self.node.handle(self.index)
    }

    /// Begins a call.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<Guard<'_>> {
        self.node.enter(self.index)
    }

    /// Waits for an operation as [`Shared::block`] does.
    pub(crate) fn block<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<toehold_stack::Instant>,
    ) -> io::Result<Option<O::Output>> {
        self.node.block(self.index, shard, operation, spin, deadline)
    }

    /// Ends a call that did not wait.
    #[inline]
    pub(crate) fn settle(&self, shard: &mut Guard<'_>) {
        self.node.settle(self.index, shard);
    }

    /// Lets go of a connection as [`Shared::unmake`] does.
    pub(crate) fn unmake(
        &self,
        holder: Holder,
        source: Event,
        linger: impl FnOnce(&Shard) -> Option<Duration>,
        wait: impl FnOnce(&mut Guard<'_>, Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        self.node.unmake(self.index, holder, source, linger, wait)
    }
}
