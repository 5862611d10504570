//! Waking a thread that polls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};

use rustix::io::Errno;
use toehold_node::Interest;

use super::direct::{DirectWatched, Identity};
use super::set::DIRECT;
use super::{Registry, Token};

/// Wakes a thread that polls, from any other thread.
#[derive(Debug, Clone)]
pub struct Waker {
    entry: Arc<WakerEntry>,
}

#[derive(Debug)]
struct WakerEntry {
    registry: Registry,
    place: WakerPlace,
}

/// The place of a waker.
#[derive(Debug)]
enum WakerPlace {
    /// In the shard of the thread that made the poll.
    Home(u32),
    /// In no shard: the node has direct connections.
    Direct(Arc<AtomicBool>),
}

impl Waker {
    /// Makes a waker that has a poll tell of `token`, as readable.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has no room for it.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        registry.set.node.contain(|| {
            let set = &registry.set;
            let place = match &set.direct {
                Some(direct) => {
                    let is_set = Arc::new(AtomicBool::new(false));
                    let watched = DirectWatched::Waker(Arc::clone(&is_set));
                    direct.add(identity(&is_set), watched, token, Interest::READABLE);
                    set.use_shards(DIRECT)?;
                    WakerPlace::Direct(is_set)
                }
                None => {
                    let mut home = set.enter(set.home)?;
                    let index = home.open_waker(set.poll(set.home), token.0 as u64);
                    WakerPlace::Home(index.ok_or(Errno::NOBUFS)?)
                }
            };
            let registry = registry.clone();
            Ok(Waker {
                entry: Arc::new(WakerEntry { registry, place }),
            })
        })
    }

    /// Makes the present call of [`Poll::poll`](super::Poll::poll) return, or the next one.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn wake(&self) -> io::Result<()> {
        let WakerEntry { registry, place } = &*self.entry;
        registry.set.node.contain(|| {
            match (place, &registry.set.direct) {
                (WakerPlace::Direct(is_set), Some(direct)) => {
                    is_set.store(true, Release);
                    direct.look_again(identity(is_set));
                }
                (WakerPlace::Home(index), _) => {
                    registry.set.enter(registry.set.home)?.use_waker(*index);
                }
                (WakerPlace::Direct(_), None) => {}
            }
            Ok(())
        })
    }
}

fn identity(is_set: &Arc<AtomicBool>) -> Identity {
    Identity {
        address: Arc::as_ptr(is_set).addr(),
        name: 0,
    }
}

impl Drop for WakerEntry {
    fn drop(&mut self) {
        // A node that is gone holds nothing.
        let set = &self.registry.set;
        let _ = set.node.contain(|| {
            match (&self.place, &set.direct) {
                (WakerPlace::Direct(is_set), Some(direct)) => {
                    direct.end(identity(is_set));
                }
                (WakerPlace::Home(index), _) => set.enter(set.home)?.deregister(*index),
                (WakerPlace::Direct(_), None) => {}
            }
            Ok(())
        });
    }
}
