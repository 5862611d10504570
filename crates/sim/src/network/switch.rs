//! The switch that joins the nodes. It knows every port's hardware address. Its
//! ports are links.
//!
//! Frames arrive a fixed, short time after they were sent. Where both sides
//! agree, payload is not copied. The receiver's stack reads it in the sender's
//! memory, as over shared-memory queues, with whatever content it has by then.
//! The switch adds no faults, see [`toehold_link::impair`].

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toehold_link::{
    Capabilities, Fence, Link, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter,
};
use toehold_shm::{Gather, PayloadArea, Region};

/// Time of a frame from port to port.
const LATENCY_NS: u64 = 1_000;

/// Most frames in flight to one port.
const MOST_FRAMES: usize = 4096;

/// Bits of a fence that hold its count. The higher bits hold the port.
const FENCE_COUNT_BITS: u32 = 48;

/// A sender's payload memory as its peers see it.
#[derive(Debug, Clone)]
struct SharedPayload {
    area: PayloadArea,
    /// A read-only mapping of the memory.
    memory: Arc<Region>,
}

#[derive(Debug)]
enum Body {
    Copied(Vec<u8>),
    /// Offsets and lengths in the sender's memory.
    InPlace(Arc<Region>, Vec<(u64, u64)>),
}

#[derive(Debug)]
struct Frame {
    due_ns: u64,
    from: usize,
    headers: Vec<u8>,
    body: Body,
    offload: Offload,
}

#[derive(Debug)]
struct Inbox {
    address: [u8; 6],
    frames: VecDeque<Frame>,
    /// Frames put in and taken out, by the source port.
    entered: Vec<u64>,
    left: Vec<u64>,
    payload: Option<SharedPayload>,
}

/// The switch itself.
#[derive(Debug, Default)]
pub(super) struct Switch {
    inboxes: Vec<Inbox>,
}

/// A node's end of its cable to the switch.
#[derive(Debug)]
pub(super) struct Port {
    switch: Arc<Mutex<Switch>>,
    index: usize,
    capabilities: Capabilities,
    now_ns: u64,
}

fn lock(switch: &Arc<Mutex<Switch>>) -> MutexGuard<'_, Switch> {
    switch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    /// Adds a port to a switch.
    pub(super) fn new(switch: &Arc<Mutex<Switch>>, address: [u8; 6], capabilities: Capabilities) -> Self {
        let mut inside = lock(switch);
        let index = inside.inboxes.len();
        inside.inboxes.push(Inbox {
            address,
            frames: VecDeque::new(),
            entered: vec![0; index],
            left: vec![0; index],
            payload: None,
        });
        for inbox in &mut inside.inboxes {
            inbox.entered.push(0);
            inbox.left.push(0);
        }
        drop(inside);
        Self {
            switch: Arc::clone(switch),
            index,
            capabilities,
            now_ns: 0,
        }
    }

    /// Lets peers read this node's payload in place.
    pub(super) fn share_payload(&self, area: PayloadArea, memory: Arc<Region>) {
        lock(&self.switch).inboxes[self.index].payload = Some(SharedPayload { area, memory });
    }

    /// Returns the arrival time of the next frame.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        lock(&self.switch).inboxes[self.index]
            .frames
            .front()
            .map(|frame| frame.due_ns)
    }

    /// Sets the send time of frames from now on.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    fn pop(&self, now_ns: u64) -> Option<Frame> {
        let mut switch = lock(&self.switch);
        let inbox = &mut switch.inboxes[self.index];
        inbox.frames.front().filter(|frame| frame.due_ns <= now_ns)?;
        let frame = inbox.frames.pop_front()?;
        inbox.left[frame.from] += 1;
        Some(frame)
    }
}

impl Switch {
    fn body(&self, from: usize, payload: &Gather<'_>) -> Body {
        if let Some(shared) = &self.inboxes[from].payload {
            let places: Option<Vec<(u64, u64)>> = payload
                .parts()
                .map(|(address, len)| {
                    shared
                        .area
                        .offset_of(address, len)
                        .map(|offset| (offset, len as u64))
                })
                .collect();
            if let Some(places) = places {
                return Body::InPlace(Arc::clone(&shared.memory), places);
            }
        }
        let mut bytes = vec![0; payload.len()];
        payload.copy_to(0, &mut bytes);
        Body::Copied(bytes)
    }

    fn put(
        &mut self,
        from: usize,
        to: usize,
        now_ns: u64,
        frame: &Transmit<'_>,
    ) -> Result<(), TransmitError> {
        if self.inboxes[to].frames.len() >= MOST_FRAMES {
            return Err(TransmitError::Full);
        }
        let body = self.body(from, frame.payload);
        let inbox = &mut self.inboxes[to];
        inbox.entered[from] += 1;
        inbox.frames.push_back(Frame {
            due_ns: now_ns + LATENCY_NS,
            from,
            headers: frame.headers.to_vec(),
            body,
            offload: frame.offload,
        });
        Ok(())
    }
}

impl Transmitter for Port {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let Some(destination) = frame.headers.first_chunk::<6>() else {
            return Err(TransmitError::TooLong);
        };
        let largest = if frame.offload.segment_size > 0 {
            self.capabilities.super_frame as usize
        } else {
            self.capabilities.mtu.into()
        };
        if frame.len() > largest + 14 {
            return Err(TransmitError::TooLong);
        }
        let mut switch = lock(&self.switch);
        if destination[0] & 1 == 1 {
            for to in (0..switch.inboxes.len()).filter(|&to| to != self.index) {
                // A full neighbour does not hold up the others.
                let _ = switch.put(self.index, to, self.now_ns, frame);
            }
            return Ok(());
        }
        match switch
            .inboxes
            .iter()
            .position(|inbox| inbox.address == *destination)
        {
            Some(to) => switch.put(self.index, to, self.now_ns, frame),
            None => Err(TransmitError::Unreachable),
        }
    }

    fn fence(&self, destination: [u8; 6], _: &toehold_link::steering::Flow) -> Fence {
        let switch = lock(&self.switch);
        let to = switch
            .inboxes
            .iter()
            .position(|inbox| inbox.address == destination);
        Fence(to.map_or(0, |to| {
            (to as u64) << FENCE_COUNT_BITS | switch.inboxes[to].entered[self.index]
        }))
    }

    fn passed(&self, fence: Fence) -> bool {
        let switch = lock(&self.switch);
        let to = (fence.0 >> FENCE_COUNT_BITS) as usize;
        let count = fence.0 & ((1 << FENCE_COUNT_BITS) - 1);
        switch
            .inboxes
            .get(to)
            .is_none_or(|inbox| inbox.left[self.index] >= count)
    }
}

impl Frame {
    fn deliver(self, handler: &mut dyn FnMut(&Received<'_>)) {
        let mut private = self.headers;
        let mut rest = Gather::EMPTY;
        match &self.body {
            Body::Copied(bytes) => {
                let head = MIN_PRIVATE.saturating_sub(private.len()).min(bytes.len());
                private.extend_from_slice(&bytes[..head]);
                rest = Gather::from_slice(&bytes[head..]);
            }
            Body::InPlace(memory, places) => {
                for &(offset, len) in places {
                    if let Some(part) = memory.gather(offset, len) {
                        rest.append(&part);
                    }
                }
                let head = MIN_PRIVATE.saturating_sub(private.len()).min(rest.len());
                let at = private.len();
                private.resize(at + head, 0);
                rest.copy_to(0, &mut private[at..]);
                rest = rest.slice(head, rest.len() - head);
            }
        }
        handler(&Received {
            private: &private,
            rest,
            offload: self.offload,
        });
    }
}

impl Link for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn address(&self) -> [u8; 6] {
        lock(&self.switch).inboxes[self.index].address
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.now_ns = now_ns;
        let mut count = 0;
        while count < budget {
            let Some(frame) = self.pop(now_ns) else { break };
            frame.deliver(handler);
            count += 1;
        }
        count
    }

    fn flush(&mut self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prepare_sleep(&mut self) -> bool {
        true
    }

    fn finish_sleep(&mut self, _now_ns: u64) {}
}
