//! Compares the fast path with the general path. Two stacks receive the same frames and calls, and
//! only one of them predicts.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::VecDeque;

use proptest::prelude::*;
use toehold_link::{Capabilities, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use zerocopy::IntoBytes;

use crate::{Config, ConnectionId, DirectReceive, Instant, ReceiveFlags, SendFlags, Settings, Stack};

/// A captured frame.
#[derive(Debug, Clone, PartialEq)]
struct Frame {
    bytes: Vec<u8>,
    offload: toehold_link::Offload,
}

#[derive(Default)]
struct Wire(VecDeque<Frame>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(at + frame.payload.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        let offload = frame.offload;
        self.0.push_back(Frame { bytes, offload });
        Ok(())
    }
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

fn stack(side: usize, super_frame: u32) -> Stack {
    let config = Config {
        ipv4: Some((ADDRESSES[side], 24)),
        ethernet: false,
        link: Capabilities {
            super_frame,
            ..Config::default().link
        },
        connections: 4,
        payload_blocks: 128,
        payload_block_len: 4096,
        seed: 7 + side as u64,
        ..Config::default()
    };
    let region = Region::private(Stack::region_len(&config)).unwrap();
    Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap()
}

/// The two stacks, and their peer.
struct Pair {
    now: Instant,
    twins: [Stack; 2],
    peer: Stack,
    ids: [ConnectionId; 2],
    to_twins: Wire,
    to_peer: Wire,
}

impl Pair {
    fn new(super_frame: u32) -> Self {
        let mut twins = [stack(0, super_frame), stack(0, super_frame)];
        twins[1].tcp.long_way_only = true;
        let mut peer = stack(1, super_frame);
        let now = Instant(1_000_000_000);
        let settings = Settings::from_config(&peer.tcp.config);
        let at = SocketAddr::from((ADDRESSES[1], 7));
        let listener = peer.listen(now, at, 4, &settings).unwrap();
        let ids = twins
            .each_mut()
            .map(|twin| twin.connect(now, None, at, &settings).unwrap());
        assert_eq!(ids[0], ids[1]);
        let mut pair = Pair {
            now,
            twins,
            peer,
            ids: [ids[0]; 2],
            to_twins: Wire::default(),
            to_peer: Wire::default(),
        };
        for _ in 0..4 {
            pair.transmit();
            pair.deliver_to_peer(false);
            pair.deliver_to_twins(0);
        }
        pair.ids[1] = pair.peer.accept(listener).unwrap();
        pair
    }

    /// Lets all stacks send. The two stacks must send the same.
    fn transmit(&mut self) {
        let mut wires = [Wire::default(), Wire::default()];
        for (twin, wire) in self.twins.iter_mut().zip(&mut wires) {
            twin.poll_transmit(self.now, wire);
            while twin.next_event().is_some() {}
        }
        let [first, second] = wires;
        assert_eq!(first.0, second.0, "what they send");
        self.to_peer.0.extend(first.0);
        self.peer.poll_transmit(self.now, &mut self.to_twins);
        while self.peer.next_event().is_some() {}
        let [first, second] = self.twins.each_ref().map(|twin| {
            let index = twin.tcp.resolve(self.ids[0]);
            index.map(|index| twin.tcp.pcbs[index]).ok()
        });
        assert_eq!(first.as_bytes_of(), second.as_bytes_of(), "what they know");
        let [first, second] = self.twins.each_ref().map(|twin| format!("{:?}", twin.counters()));
        assert_eq!(first, second, "what they count");
    }

    /// Delivers frames; `into` is the free length of the program's buffer.
    fn deliver_to_twins(&mut self, into: usize) {
        let Some(frame) = self.to_twins.0.pop_front() else {
            return;
        };
        let placed = self.twins.each_mut().map(|twin| {
            let mut buffer = vec![0; into];
            let mut direct_receive = DirectReceive {
                connection: self.ids[0],
                buffer: &mut buffer,
                filled: 0,
            };
            let received = received(&frame);
            twin.handle_frame_into(
                self.now,
                &received,
                Some(&mut direct_receive).filter(|_| into > 0),
            );
            let filled = direct_receive.filled;
            (filled, buffer)
        });
        assert_eq!(placed[0], placed[1], "what was placed");
    }

    fn deliver_to_peer(&mut self, twice: bool) {
        let Some(frame) = self.to_peer.0.pop_front() else {
            return;
        };
        for _ in 0..=usize::from(twice) {
            self.peer.handle_frame(self.now, &received(&frame));
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { peer, len } => {
                let bytes = vec![len as u8; len.into()];
                let flags = SendFlags::default();
                if peer {
                    let _ = self.peer.send(self.ids[1], &bytes, flags);
                } else {
                    let sent = self
                        .twins
                        .each_mut()
                        .map(|twin| twin.send(self.ids[0], &bytes, flags));
                    assert_eq!(sent[0], sent[1]);
                }
            }
            Step::Receive { peer, len } => {
                let mut buffer = vec![0; len.into()];
                let flags = ReceiveFlags::default();
                if peer {
                    let _ = self.peer.receive(self.ids[1], &mut buffer, flags);
                } else {
                    let got = self.twins.each_mut().map(|twin| {
                        let mut buffer = vec![0; len.into()];
                        (twin.receive(self.ids[0], &mut buffer, flags), buffer)
                    });
                    assert_eq!(got[0], got[1]);
                }
            }
            Step::ToTwins { count, into } => (0..count).for_each(|_| self.deliver_to_twins(into.into())),
            Step::ToPeer { count, twice } => (0..count).for_each(|_| self.deliver_to_peer(twice)),
            Step::Lose { to_peer } => {
                let wire = if to_peer {
                    &mut self.to_peer
                } else {
                    &mut self.to_twins
                };
                wire.0.pop_front();
            }
            Step::Swap { to_peer } => {
                let wire = if to_peer {
                    &mut self.to_peer
                } else {
                    &mut self.to_twins
                };
                if wire.0.len() > 1 {
                    wire.0.swap(0, 1);
                }
            }
            Step::Wait { micros } => {
                self.now = self.now.plus_nanos(u64::from(micros) * 1000);
                for stack in self.twins.iter_mut().chain([&mut self.peer]) {
                    stack.handle_timeout(self.now);
                }
            }
        }
        self.transmit();
    }
}

fn received(frame: &Frame) -> Received<'_> {
    Received {
        private: &frame.bytes,
        rest: Gather::EMPTY,
        offload: frame.offload,
    }
}

trait AsBytesOf {
    fn as_bytes_of(&self) -> Option<&[u8]>;
}

impl AsBytesOf for Option<crate::tcp::Pcb> {
    fn as_bytes_of(&self) -> Option<&[u8]> {
        self.as_ref().map(IntoBytes::as_bytes)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send { peer: bool, len: u16 },
    Receive { peer: bool, len: u16 },
    ToTwins { count: u8, into: u16 },
    ToPeer { count: u8, twice: bool },
    Lose { to_peer: bool },
    Swap { to_peer: bool },
    Wait { micros: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![1..200_u16, 1000..20_000_u16];
    prop_oneof![
        6 => (any::<bool>(), len()).prop_map(|(peer, len)| Step::Send { peer, len }),
        4 => (any::<bool>(), len()).prop_map(|(peer, len)| Step::Receive { peer, len }),
        6 => (1..5_u8, prop_oneof![Just(0), len()]).prop_map(|(count, into)| Step::ToTwins { count, into }),
        6 => (1..5_u8, prop::bool::weighted(0.1)).prop_map(|(count, twice)| Step::ToPeer { count, twice }),
        1 => any::<bool>().prop_map(|to_peer| Step::Lose { to_peer }),
        1 => any::<bool>().prop_map(|to_peer| Step::Swap { to_peer }),
        3 => prop_oneof![1..100_u32, 1000..400_000_u32].prop_map(|micros| Step::Wait { micros }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn both_paths_lead_to_same_state(
        super_frame in prop_oneof![Just(1500_u32), Just(65_535)],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut pair = Pair::new(super_frame);
        for step in &steps {
            pair.step(step);
        }
    }
}

/// Proves that the test above covers the fast path.
#[test]
fn requests_and_replies_are_predicted() {
    let mut pair = Pair::new(1500);
    for _ in 0..10 {
        pair.step(&Step::Send { peer: true, len: 64 });
        assert_eq!(pair.to_twins.0.len(), 1);
        let predicted = pair.twins[0].tcp.predictions;
        pair.step(&Step::ToTwins { count: 1, into: 64 });
        assert_eq!(pair.twins[0].tcp.predictions, predicted + 1);
        pair.step(&Step::Send { peer: false, len: 64 });
        pair.step(&Step::ToPeer {
            count: 4,
            twice: false,
        });
        pair.step(&Step::ToTwins { count: 4, into: 0 });
        pair.step(&Step::Receive { peer: true, len: 64 });
    }
}
