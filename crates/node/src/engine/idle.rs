//! A host without a stack, for tests of what is around it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::HostError;
use crate::control::{
    Attachment, CaptureRequest, CaptureSummary, Client, Counter, Host, Refusal, SocketStatus, StackStatus,
};
use crate::fabric::Place;
use crate::placement::Placement;
use crate::settings::NodeSettings;

/// A node that only occupies its place. Nobody can attach to it.
#[derive(Debug)]
pub(super) struct Idle {
    settings: NodeSettings,
    placement: Mutex<Placement>,
}

impl Idle {
    /// For [`super::Engine::start`].
    pub(super) fn host(_: &Place, settings: &NodeSettings) -> Result<Arc<dyn Host>, HostError> {
        Ok(Arc::new(Idle {
            settings: settings.clone(),
            placement: Mutex::new(settings.placement),
        }))
    }
}

fn no_stack() -> Refusal {
    Refusal::new("its engine process has no stack, so that no program can use it")
}

impl Host for Idle {
    fn attach(&self, _: Client) -> Result<Attachment, Refusal> {
        Err(no_stack())
    }

    fn detached(&self, _: u16) {}

    fn peer(&self, _: u8, _: u16) -> Option<Vec<OwnedFd>> {
        None
    }

    fn holders(&self, _: u16, _: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal> {
        Err(no_stack())
    }

    fn identify(&self, _: u16, _: OwnedFd) -> Result<u32, Refusal> {
        Err(no_stack())
    }

    fn status(&self) -> StackStatus {
        StackStatus {
            placement: *self.placement.lock().unwrap_or_else(PoisonError::into_inner),
            shards: self.settings.shards,
            connections_bound: self.settings.connections,
            payload_bound: self.settings.payload_memory,
            ..StackStatus::default()
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        Vec::new()
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    fn set_placement(&self, placement: Placement) -> Result<(), Refusal> {
        *self.placement.lock().unwrap_or_else(PoisonError::into_inner) = placement;
        Ok(())
    }

    fn start_capture(&self, _: File, _: CaptureRequest) -> Result<(), Refusal> {
        Err(no_stack())
    }

    fn stop_capture(&self) -> CaptureSummary {
        CaptureSummary::default()
    }

    fn stop(&self) {}
}
