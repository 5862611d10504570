//! What a process has of a node from its engine: the node's memory where it is mapped, the
//! descriptors, and the peers that were met. Its children take it over.
//!
//! A forked child has it all, the mappings and descriptors by the fork and the rest as copies.
//! Only its number it has to get from the engine, which is to see it die.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use toehold_link::mq::{Bell, Mapping};
use toehold_link::tap::TapDescription;
use toehold_shm::direct::{Directory, Journal, Signals, Waiters};
use toehold_shm::{Access, Change, Process, Region, RegionError};

use crate::attached::{AttachError, Description, Descriptors};
use crate::descriptors::{copy, keep};
use crate::direct::{BellSource, BellsOf, LazyBells, MappedBanks};
use crate::kernel::{Outlet, queues_of_shard};
use crate::memory::Layout;
use crate::shard::Bells;

pub(crate) struct Estate {
    life: u64,
    shards: Vec<Ground>,
    direct: Option<DirectGround>,
}

/// The process's part of direct connections.
pub(crate) struct DirectGround {
    pub(crate) waiters: Waiters,
    /// The signals to the accepting side of the node's own bank.
    pub(crate) signals: Signals,
    /// The source of this process's bells.
    pub(crate) bell_source: Arc<BellSource>,
    /// The bells on which the node's processes ring its waiters.
    pub(crate) bells: Arc<LazyBells>,
    /// The banks that this process or one that it was forked from has mapped.
    pub(crate) banks: Arc<MappedBanks>,
}

/// The process's part of one of the shards.
pub(crate) struct Ground {
    pub(crate) layout: Layout,
    pub(crate) fingerprint: u64,
    pub(crate) region: Arc<Region>,
    pub(crate) bells: Bells,
    /// The bell of the node's port.
    pub(crate) port: Arc<Bell>,
    /// The descriptor that threads sleep on without the lease.
    pub(crate) sleep_on: Arc<OwnedFd>,
    /// The queues of the TAP device that are this shard's, if the kernel is beside the node.
    kernel: Option<Arc<(Vec<OwnedFd>, TapDescription)>>,
    /// The peers that this process or one that it was forked from has mapped, as long as the port
    /// has them.
    peers: Mutex<Vec<Weak<Mapping>>>,
}

impl Estate {
    /// Makes an estate of the engine's description and descriptors.
    pub(crate) fn new(description: Description, descriptors: Vec<OwnedFd>) -> Result<Estate, AttachError> {
        let Description {
            shards,
            life,
            kernel,
            direct,
        } = description;
        let queues = kernel.as_ref().map_or(0, |kernel| kernel.queues.into());
        let (behind, count) = (
            queues + if direct { DirectGround::COUNT } else { 0 },
            shards.len(),
        );
        let (bells, descriptors, mut queues) =
            Descriptors::all(descriptors, count, behind).ok_or(AttachError::Build)?;
        let direct = match direct {
            true => Some(DirectGround::new(&mut queues)?),
            false => None,
        };
        let (fabric, resters) = (Arc::new(bells.fabric), Arc::new(bells.resters));
        let mut grounds = Vec::new();
        for (index, ((layout, fingerprint), descriptors)) in shards.into_iter().zip(descriptors).enumerate() {
            let Descriptors {
                region,
                sleeper,
                driver,
                port,
            } = descriptors;
            let kernel = match &kernel {
                Some(kernel) => {
                    let own = queues_of_shard(queues.len(), index, count).map(|queue| copy(&queues[queue]));
                    Some(Arc::new((own.collect::<Result<_, _>>()?, kernel.tap.clone())))
                }
                None => None,
            };
            let most = layout.region_len() as u64;
            grounds.push(Ground {
                layout,
                fingerprint,
                region: Arc::new(Region::open_within(region, Access::ReadWrite, most)?),
                bells: Bells {
                    sleeper: Arc::new(sleeper),
                    resters: Arc::clone(&resters),
                    driver: Arc::new(driver),
                    fabric: Arc::clone(&fabric),
                },
                sleep_on: Arc::new(copy(port.as_fd())?),
                port: Arc::new(port),
                kernel,
                peers: Mutex::default(),
            });
        }
        Ok(Estate {
            life,
            shards: grounds,
            direct,
        })
    }

    /// Copies the estate for a child. The parent's is not changed any more.
    pub(crate) fn of_child(&self) -> Estate {
        let of_child = |ground: &Ground| Ground {
            layout: ground.layout.clone(),
            fingerprint: ground.fingerprint,
            region: Arc::clone(&ground.region),
            bells: ground.bells.clone(),
            port: Arc::clone(&ground.port),
            sleep_on: Arc::clone(&ground.sleep_on),
            kernel: ground.kernel.clone(),
            // A thread that the child does not have may have been looking.
            peers: Mutex::new(
                ground
                    .peers
                    .try_lock()
                    .map_or_else(|_| Vec::new(), |peers| peers.clone()),
            ),
        };
        Estate {
            life: self.life,
            shards: self.shards.iter().map(of_child).collect(),
            direct: self.direct.as_ref().map(DirectGround::of_child),
        }
    }

    /// The life of the node that it is of.
    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// Whether the kernel is beside the node.
    pub(crate) fn is_beside_kernel(&self) -> bool {
        self.shards.iter().any(|ground| ground.kernel.is_some())
    }

    /// Bytes of payload memory of the node.
    pub(crate) fn payload_bound(&self) -> u64 {
        let of_shard = |ground: &Ground| {
            let stack = &ground.layout.stack;
            u64::from(stack.payload_blocks) * u64::from(stack.payload_block_len)
        };
        self.shards.iter().map(of_shard).sum()
    }

    /// The process's part of direct connections, if the node has them.
    pub(crate) fn direct(&self) -> Option<&DirectGround> {
        self.direct.as_ref()
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Ground> {
        self.shards.iter()
    }

    /// Notes a peer that this process has mapped.
    pub(crate) fn note(&self, shard: u8, peer: &Arc<Mapping>) {
        let Some(ground) = self.shards.get(usize::from(shard)) else {
            return;
        };
        let _change = Process::this().map(Change::begin);
        let mut peers = ground.lock();
        peers.retain(|known| known.strong_count() > 0);
        peers.push(Arc::downgrade(peer));
    }
}

impl DirectGround {
    /// Descriptors that the engine gives for it.
    const COUNT: usize = 3;

    /// Makes the part for direct connections of the last descriptors that the engine has given.
    fn new(descriptors: &mut Vec<OwnedFd>) -> Result<DirectGround, AttachError> {
        let mut last = || descriptors.pop().ok_or(AttachError::Build);
        let (signals, journal, directory) = (last()?, last()?, last()?);
        let directory = Directory::open(keep(directory))?;
        let journal = Journal::open(keep(journal))?;
        let signals = Signals::open(keep(signals))?;
        let process = Process::this().map_err(RegionError::Create)?;
        let bell_source = Arc::new(BellSource::new(process));
        let bells = Arc::new(LazyBells::of_process(BellsOf::Node, Arc::clone(&bell_source)));
        let rung = Arc::clone(&bells);
        let waiters = Waiters::new(directory, journal);
        Ok(DirectGround {
            waiters: waiters.with_local_ring(move |waiter| rung.ring(waiter)),
            signals,
            bell_source,
            bells,
            banks: Arc::default(),
        })
    }

    fn of_child(&self) -> DirectGround {
        DirectGround {
            waiters: self.waiters.clone(),
            signals: self.signals.clone(),
            bell_source: Arc::clone(&self.bell_source),
            bells: Arc::clone(&self.bells),
            banks: Arc::new(self.banks.of_child()),
        }
    }
}

impl Ground {
    /// The peers that are still there.
    pub(crate) fn peers(&self) -> Vec<Arc<Mapping>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// This process's way into the TAP device.
    pub(crate) fn outlet(&self) -> Result<Option<Outlet>, AttachError> {
        let Some(kernel) = &self.kernel else {
            return Ok(None);
        };
        let (queues, tap) = &**kernel;
        let queues = queues.iter().map(copy).collect::<Result<_, _>>()?;
        Ok(Some(Outlet::new(queues, tap)?))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Mapping>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
