//! Messages with known content, and the book that is kept of them.

use super::World;
use std::collections::{BTreeMap, HashMap};
use toehold_msg::FlowId;
use toehold_msg::endpoint::{
    CompletedOperation, Completion, CompletionError, OutgoingMessage, ProgramBuffer, SubmitError,
};
use toehold_msg::matching::{Selector, SourceId};

/// Lengths at both sides of each limit.
pub const LENGTHS: [u64; 17] = [
    0, 1, 8, 23, 24, 32, 63, 64, 65, 640, 1399, 1433, 4096, 8192, 65_535, 65_536, 300_000,
];

/// The content of a message.
pub fn pattern(from: usize, number: u64, len: u64) -> Vec<u8> {
    let start = (from as u64 + 1)
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(number * 31);
    (0..len)
        .map(|at| (start.wrapping_add(at) ^ (at >> 8)) as u8)
        .collect()
}

/// A word that names a message to its receiver.
fn label(from: usize, number: u64) -> u64 {
    (from as u64) << 32 | number
}

/// A receive that was posted.
#[derive(Debug, Clone, Copy)]
struct Expected {
    host: usize,
    order: u64,
    selector: Selector,
    buffer: ProgramBuffer,
}

/// A send that was taken.
#[derive(Debug, Clone, Copy)]
struct Promised {
    host: usize,
    buffer: ProgramBuffer,
}

/// What was sent, received and completed.
#[derive(Debug, Default)]
pub struct Book {
    next: u64,
    sends: HashMap<u64, Promised>,
    receives: HashMap<u64, Expected>,
    /// By message label: its length and tag.
    messages: HashMap<u64, (u64, u64)>,
    numbers: BTreeMap<usize, u64>,
    /// By receiver and sender: the receive's order and the message's number, for each pair
    /// of the same selector.
    received: Vec<(usize, Selector, u64, u64)>,
    pub sent: u64,
    pub failed_sends: u64,
    pub failed_receives: u64,
    pub last_errors: Vec<CompletionError>,
}

impl Book {
    fn context(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends a message. Returns `false` if the endpoint has no room now.
    pub fn send(
        &mut self,
        world: &mut World,
        from: usize,
        flow: FlowId,
        tag: u64,
        len: u64,
        options: u64,
    ) -> bool {
        let number = *self.numbers.entry(from).or_default();
        let context = self.context();
        let host = &mut world.hosts[from];
        let buffer = host.memory.buffer(pattern(from, number, len));
        let message = OutgoingMessage {
            data: Some(label(from, number)),
            is_injected: options & 1 != 0 && len <= 4096,
            wants_delivery: options & 2 != 0,
            ..OutgoingMessage::tagged(tag, buffer, context)
        };
        match host.state.send(world.now, flow, &message, &mut host.memory) {
            Ok(_) => {}
            Err(SubmitError::TryAgain) => return false,
            Err(error) => panic!("{error}"),
        }
        if message.is_injected {
            // Nothing may look at the buffer any more.
            host.memory.take(buffer);
        } else {
            self.sends.insert(context, Promised { host: from, buffer });
        }
        self.messages.insert(label(from, number), (len, tag));
        *self.numbers.entry(from).or_default() += 1;
        self.sent += 1;
        true
    }

    pub fn post(&mut self, world: &mut World, host: usize, selector: Selector, len: u64) {
        let context = self.context();
        let owner = &mut world.hosts[host];
        let buffer = owner.memory.buffer(vec![0; len as usize]);
        let posted = owner
            .state
            .post(world.now, selector, buffer, context, &mut owner.memory);
        posted.expect("room");
        let expected = Expected {
            host,
            order: context,
            selector,
            buffer,
        };
        self.receives.insert(context, expected);
    }

    /// Posts a receive unless its peer has gone.
    pub fn try_post(&mut self, world: &mut World, host: usize, selector: Selector, len: u64) {
        let flow = selector.source.map(|source| FlowId::from_bits(source.0));
        if flow.is_none_or(|flow| world.hosts[host].state.peer(flow).is_some()) {
            let context = self.context();
            let owner = &mut world.hosts[host];
            let buffer = owner.memory.buffer(vec![0; len as usize]);
            let posted = owner
                .state
                .post(world.now, selector, buffer, context, &mut owner.memory);
            if posted.is_ok() {
                let order = context;
                let expected = Expected {
                    host,
                    order,
                    selector,
                    buffer,
                };
                self.receives.insert(context, expected);
            }
        }
    }

    /// Forgets the operations of a host that has died.
    pub fn abandon(&mut self, host: usize) {
        self.sends.retain(|_, send| send.host != host);
        self.receives.retain(|_, receive| receive.host != host);
    }

    /// Takes a host's completions and checks each.
    pub fn collect(&mut self, world: &mut World, host: usize) {
        for completion in world.completions(host) {
            match completion.operation {
                CompletedOperation::Send => self.check_send(world, host, &completion),
                CompletedOperation::Receive => self.check_receive(world, host, &completion),
            }
        }
    }

    fn check_send(&mut self, world: &mut World, host: usize, completion: &Completion) {
        let send = self
            .sends
            .remove(&completion.context)
            .expect("a send completes once");
        assert_eq!(send.host, host);
        world.hosts[host].memory.take(send.buffer);
        if let Err(error) = completion.result {
            self.failed_sends += 1;
            self.last_errors.push(error);
        }
    }

    fn check_receive(&mut self, world: &mut World, host: usize, completion: &Completion) {
        let receive = self
            .receives
            .remove(&completion.context)
            .expect("a receive completes once");
        assert_eq!(receive.host, host);
        let content = world.hosts[host].memory.take(receive.buffer);
        match completion.result {
            Ok(()) | Err(CompletionError::Truncated) => {}
            Err(error) => {
                self.failed_receives += 1;
                self.last_errors.push(error);
                return;
            }
        }
        let label = completion.data.expect("each message has a label");
        let (len, tag) = self.messages.remove(&label).expect("a message is received once");
        assert_eq!((completion.len, completion.tag), (len, tag));
        assert_eq!(completion.placed, len.min(receive.buffer.len));
        assert_eq!(completion.result.is_err(), len > receive.buffer.len);
        let (from, number) = ((label >> 32) as usize, label & u64::from(u32::MAX));
        let placed = completion.placed as usize;
        assert!(
            content[..placed] == pattern(from, number, len)[..placed],
            "content of {label:x}"
        );
        assert!(content[placed..].iter().all(|byte| *byte == 0));
        let selector = Selector {
            source: Some(SourceId(from as u64)),
            ..receive.selector
        };
        self.received.push((host, selector, receive.order, number));
    }

    /// Checks that equal receives got each sender's messages in the order of both.
    pub fn check_order(&mut self) {
        self.received.sort_by_key(|(host, selector, order, _)| {
            (*host, selector.source, selector.tag, selector.ignore, *order)
        });
        for pair in self.received.windows(2) {
            let [(host, selector, _, first), (other, same, _, second)] = pair else {
                unreachable!("windows of two");
            };
            if (host, selector) == (other, same) {
                assert!(
                    first < second,
                    "{first} after {second} at {host} for {selector:?}"
                );
            }
        }
    }

    /// Checks that nothing is left over.
    pub fn check_all(&mut self) {
        self.check_order();
        assert!(
            self.sends.is_empty() && self.receives.is_empty(),
            "operations without an end"
        );
        let failed = (self.failed_sends, self.failed_receives);
        assert_eq!(failed, (0, 0), "{:?}", self.last_errors);
        assert!(
            self.messages.is_empty(),
            "messages {:x?} were lost",
            self.messages
        );
    }

    /// Number of messages that were received.
    pub fn received(&self) -> u64 {
        self.received.len() as u64
    }

    pub fn is_settled(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }
}
