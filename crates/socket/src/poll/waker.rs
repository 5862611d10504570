//! Waking a thread that polls.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::{Registry, Token};

/// Wakes a thread that polls, from any other thread.
#[derive(Debug, Clone)]
pub struct Waker {
    entry: Arc<WakerEntry>,
}

#[derive(Debug)]
struct WakerEntry {
    registry: Registry,
    index: u32,
}

impl Waker {
    /// A waker that makes a poll tell of `token`, as readable.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has no room for it.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        registry.set.node.contain(|| {
            let set = &registry.set;
            let index = set
                .enter(set.home)?
                .open_waker(set.poll(set.home), token.0 as u64);
            let index = index.ok_or(Errno::NOBUFS)?;
            let registry = registry.clone();
            Ok(Waker {
                entry: Arc::new(WakerEntry { registry, index }),
            })
        })
    }

    /// Makes the present call of [`Poll::poll`](super::Poll::poll) return, or the next one.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn wake(&self) -> io::Result<()> {
        self.entry.registry.set.node.contain(|| {
            let WakerEntry { registry, index } = &*self.entry;
            registry.set.enter(registry.set.home)?.use_waker(*index);
            Ok(())
        })
    }
}

impl Drop for WakerEntry {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        let set = &self.registry.set;
        let _ = set.node.contain(|| {
            set.enter(set.home)?.deregister(self.index);
            Ok(())
        });
    }
}
