//! The node as its engine process has it: memory that other processes attach to.

mod life;
mod look;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toehold_link::mq::PeerDescriptors;

use self::life::Life;
use super::HostError;
use crate::config::NodeConfig;
use crate::control::{
    Attachment, CaptureRequest, CaptureSummary, Client, Counter, Host, Refusal, SocketStatus, StackStatus,
};
use crate::error::NodeError;
use crate::fabric::Place;
use crate::placement::Placement;
use crate::settings::NodeSettings;

/// The number of the engine among the processes of its node.
const ENGINE: u16 = toehold_shm::Lease::ENGINE;

/// Most processes of a node at once.
const MAX_PROCESSES: usize = 1 << 12;

/// A node with a stack, whose memory programs attach to.
pub struct StackHost {
    config: NodeConfig,
    state: Mutex<State>,
}

struct State {
    /// `None`: the node has ended, or could not begin anew.
    life: Option<Life>,
    /// How many lives were lost.
    resets: u64,
    /// Of every process, the life that it is attached to.
    processes: BTreeMap<u16, u64>,
    placement: Placement,
    /// What was seen last, for when the stack cannot be looked at.
    last: StackStatus,
}

impl StackHost {
    /// For [`super::Engine::start`].
    ///
    /// # Errors
    ///
    /// If a setting is out of range, or the system refuses memory, files,
    /// descriptors or threads.
    pub fn host(place: &Place, settings: &NodeSettings) -> Result<Arc<dyn Host>, HostError> {
        Ok(Arc::new(StackHost::begin(node_config(place, settings))?))
    }

    fn begin(config: NodeConfig) -> Result<StackHost, NodeError> {
        let life = Life::begin(&config)?;
        let placement = config.placement;
        Ok(StackHost {
            config,
            state: Mutex::new(State {
                life: Some(life),
                resets: 0,
                processes: BTreeMap::new(),
                placement,
                last: StackStatus::default(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A number for a process: the lowest that is free.
    fn number(&self) -> Option<u16> {
        let mut free = ENGINE + 1;
        for &taken in self.processes.keys() {
            if taken != free {
                break;
            }
            free += 1;
        }
        (self.processes.len() < MAX_PROCESSES).then_some(free)
    }

    /// Begins another life in place of one that is lost.
    fn reset(&mut self, config: &NodeConfig) {
        // It has to be out of the other one's way first.
        drop(self.life.take());
        self.resets += 1;
        let config = config.clone().placement(self.placement);
        // If there is nothing to begin with, whoever attaches is told so.
        self.life = Life::begin(&config).ok();
    }

    fn life(&self) -> Result<&Life, Refusal> {
        let life = self.life.as_ref();
        life.ok_or_else(|| Refusal::new("it has ended, or the system refuses it memory to begin anew"))
    }
}

impl Host for StackHost {
    fn attach(&self, _: Client) -> Result<Attachment, Refusal> {
        let mut state = self.lock();
        let process = state
            .number()
            .ok_or_else(|| Refusal::new("it has as many processes as it can have"))?;
        let offer = state.life()?.offer();
        let (description, descriptors) =
            offer.map_err(|error| Refusal::new(format!("it has no descriptors left: {error}")))?;
        let description = serde_json::to_value(&description)
            .map_err(|error| Refusal::new(format!("it cannot be described: {error}")))?;
        let life = state.resets;
        state.processes.insert(process, life);
        Ok(Attachment {
            process,
            description,
            descriptors,
        })
    }

    fn detached(&self, process: u16) {
        let mut state = self.lock();
        let current = state.processes.remove(&process) == Some(state.resets);
        let buried = !current || state.life().is_ok_and(|life| life.bury(process));
        if !buried {
            state.reset(&self.config);
        }
    }

    fn peer(&self, slot: u8, generation: u16) -> Option<Vec<OwnedFd>> {
        let descriptors = self.lock().life().ok()?.peer(slot, generation);
        descriptors.map(PeerDescriptors::into_list)
    }

    fn holders(&self, _: u16, _: u16) -> Result<Vec<OwnedFd>, Refusal> {
        Err(Refusal::new("its sockets have no descriptors"))
    }

    fn status(&self) -> StackStatus {
        let mut state = self.lock();
        let seen = state.life().ok().and_then(|life| look::status(&life.shard));
        if let Some(seen) = seen {
            state.last = seen;
        }
        StackStatus {
            placement: state.placement,
            shards: 1,
            ..state.last.clone()
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        let state = self.lock();
        let sockets = state.life().ok().and_then(|life| look::sockets(&life.shard));
        sockets.unwrap_or_default()
    }

    fn counters(&self) -> Vec<Counter> {
        let state = self.lock();
        let counters = state.life().ok().and_then(|life| look::counters(&life.shard));
        let mut counters = counters.unwrap_or_default();
        counters.push(Counter {
            name: "node_resets".to_owned(),
            value: state.resets,
            doc: "Times the node began anew because a program died while it ran the stack.".to_owned(),
        });
        counters
    }

    fn set_placement(&self, placement: Placement) -> Result<(), Refusal> {
        let mut state = self.lock();
        state.placement = placement;
        state.life()?.set_placement(placement);
        Ok(())
    }

    fn start_capture(&self, _: File, _: CaptureRequest) -> Result<(), Refusal> {
        Err(Refusal::new("its frames cannot be recorded by this version"))
    }

    fn stop_capture(&self) -> CaptureSummary {
        CaptureSummary::default()
    }

    fn stop(&self) {
        let life = self.lock().life.take();
        if let Some(mut life) = life {
            life.end();
        }
    }
}

fn node_config(place: &Place, settings: &NodeSettings) -> NodeConfig {
    let record = place.record();
    NodeConfig::new(place.fabric().path(), record.name.to_string())
        .mac(record.mac.0)
        .ipv4(record.ipv4.addr(), record.ipv4.prefix_len())
        .ipv6(record.ipv6.addr(), record.ipv6.prefix_len())
        .mtu(settings.mtu)
        .ring_capacity(settings.ring as usize)
        .max_peers(settings.peers.into())
        .zero_copy(settings.zero_copy)
        .connections(settings.connections)
        .payload_memory(settings.payload_memory as usize)
        .placement(settings.placement)
        .drain(settings.drain)
}
