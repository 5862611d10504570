//! Polls tell what the kernel's epoll tells of the kernel's sockets, for the same calls.
//!
//! A sequence of calls is made on sockets of the kernel at 127.0.0.1 and on sockets of two nodes.
//! After each one all that can arrive does, and whenever the sequence waits, both have to tell the
//! same. What the two may do differently is left out: how much a buffer takes, and what is told
//! while one fills up. So is what becomes of data for an end that was shut for reading.

mod kernel;
mod nodes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use toehold_socket::Interest;

use self::kernel::Kernel;
use self::nodes::Nodes;
use crate::support::within;

/// Connections of a sequence, at most.
const CONNECTIONS: usize = 4;

/// The token of the listener; that of an end of a connection is its name.
const LISTENER: u64 = 1 << 20;

/// An end of a connection: that of the client is even.
type End = usize;

#[derive(Debug, Clone, Copy)]
enum Call {
    Connect,
    Accept,
    Write(End, usize),
    /// Until there is no more room. Not among the calls at random: when the kernel's
    /// acknowledgements make room is a matter of its timers.
    Fill(End),
    Read(End, usize),
    /// Until there is nothing more to read.
    Drain(End),
    /// The sending direction.
    Shutdown(End),
    Close(End),
    Watch(u64, Interest),
    Unwatch(u64),
    Wait,
}

impl Call {
    /// The end of a connection that it concerns.
    fn end(self) -> Option<End> {
        match self {
            Call::Write(end, _) | Call::Fill(end) | Call::Read(end, _) | Call::Drain(end) => Some(end),
            Call::Shutdown(end) | Call::Close(end) => Some(end),
            Call::Watch(token, _) | Call::Unwatch(token) => Some(token as End).filter(|_| token != LISTENER),
            Call::Connect | Call::Accept | Call::Wait => None,
        }
    }
}

/// What was told, by token.
type Told = BTreeMap<u64, Bits>;

/// What of a token.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Bits([bool; 5]);

impl std::fmt::Debug for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = ["in", "out", "rdhup", "hup", "err"];
        f.debug_set()
            .entries(
                names
                    .iter()
                    .zip(self.0)
                    .filter(|(_, told)| *told)
                    .map(|(name, _)| name),
            )
            .finish()
    }
}

/// What can be done with sockets, here and there. Calls on what does not exist do nothing.
trait World {
    fn connect(&mut self);
    /// Whether there was one to accept.
    fn accept(&mut self) -> bool;
    /// How many bytes were written.
    fn write(&mut self, end: End, len: usize) -> usize;
    fn read(&mut self, end: End, len: usize) -> usize;
    fn shutdown(&mut self, end: End);
    fn close(&mut self, end: End);
    fn watch(&mut self, token: u64, interest: Interest);
    fn unwatch(&mut self, token: u64);
    fn wait(&mut self, told: &mut Told);
    /// Until nothing moves any more.
    fn settle(&mut self);
}

/// What the sequence knows of both worlds.
#[derive(Default)]
struct Model {
    connections: usize,
    accepted: usize,
    /// What an end is watched for.
    watched: BTreeMap<u64, Interest>,
    /// Ends whose sender has filled them. All that is certain about them is what comes of
    /// draining them.
    full: [bool; 2 * CONNECTIONS],
    closed: [bool; 2 * CONNECTIONS],
}

impl Model {
    fn is_open(&self, end: End) -> bool {
        let connections = if end.is_multiple_of(2) {
            self.connections
        } else {
            self.accepted
        };
        end / 2 < connections && !self.closed[end]
    }

    /// The calls that a call stands for, now.
    fn apply(&mut self, call: Call, worlds: &mut [&mut dyn World; 2]) {
        if let Some(end) = call.end() {
            for full in [end, end ^ 1]
                .into_iter()
                .filter(|end| self.full[*end])
                .collect::<Vec<_>>()
            {
                self.drain(full, worlds);
            }
        }
        match call {
            Call::Connect if self.connections < CONNECTIONS => {
                self.connections += 1;
                each(worlds, |world| world.connect());
            }
            Call::Accept => {
                let accepted = worlds.each_mut().map(|world| world.accept());
                assert_eq!(accepted[0], accepted[1]);
                self.accepted += usize::from(accepted[0]);
            }
            Call::Write(end, len) if self.is_open(end) => {
                let written = worlds.each_mut().map(|world| world.write(end, len));
                assert_eq!(written[0], written[1], "written to {end}");
            }
            Call::Fill(end) if self.is_open(end) && self.is_open(end ^ 1) => {
                each(worlds, |world| fill(world, end));
                self.full[end ^ 1] = true;
                self.watch_again(end / 2, worlds);
            }
            Call::Read(end, len) if self.is_open(end) => {
                let read = worlds.each_mut().map(|world| world.read(end, len));
                assert_eq!(read[0], read[1], "read from {end}");
            }
            Call::Drain(end) if self.is_open(end) => self.drain(end, worlds),
            Call::Shutdown(end) if self.is_open(end) => {
                each(worlds, |world| world.shutdown(end));
            }
            Call::Close(end) if self.is_open(end) => {
                self.closed[end] = true;
                self.watched.remove(&(end as u64));
                each(worlds, |world| world.close(end));
            }
            Call::Watch(token, interest) if token == LISTENER || self.is_open(token as End) => {
                self.watched.insert(token, interest);
                each(worlds, |world| world.watch(token, interest));
            }
            Call::Unwatch(token) if self.watched.remove(&token).is_some() => {
                each(worlds, |world| world.unwatch(token));
            }
            Call::Wait => drop(same(worlds)),
            _ => return,
        }
        each(worlds, |world| world.settle());
    }

    fn drain(&mut self, end: End, worlds: &mut [&mut dyn World; 2]) {
        each(worlds, |world| drain(world, end));
        self.full[end] = false;
    }

    /// Forgets what was told of a connection, and asks anew.
    fn watch_again(&self, connection: usize, worlds: &mut [&mut dyn World; 2]) {
        for world in worlds {
            world.settle();
            for token in [2 * connection as u64, 2 * connection as u64 + 1] {
                if let Some(interest) = self.watched.get(&token) {
                    world.unwatch(token);
                    world.watch(token, *interest);
                }
            }
        }
    }
}

fn each(worlds: &mut [&mut dyn World; 2], call: impl Fn(&mut dyn World)) {
    for world in worlds {
        call(*world);
    }
}

fn fill(world: &mut dyn World, end: End) {
    let mut idle = 0;
    while idle < 3 {
        idle = if world.write(end, 1 << 16) > 0 {
            0
        } else {
            idle + 1
        };
        world.settle();
    }
}

fn drain(world: &mut dyn World, end: End) {
    let mut idle = 0;
    while idle < 3 {
        idle = if world.read(end, 1 << 16) > 0 { 0 } else { idle + 1 };
        world.settle();
    }
}

/// Waits in both worlds. The kernel may take its time with acknowledgements that make room.
fn same(worlds: &mut [&mut dyn World; 2]) -> Told {
    let [mut expected, mut told] = [Told::new(), Told::new()];
    let [kernel, nodes] = worlds;
    nodes.wait(&mut told);
    kernel.wait(&mut expected);
    let until = Instant::now() + Duration::from_secs(2);
    while expected != told && Instant::now() < until {
        kernel.wait(&mut expected);
    }
    assert_eq!(told, expected, "the poll told, epoll told");
    told
}

fn any_interest() -> impl Strategy<Value = Interest> {
    let bits = [
        Interest::READABLE,
        Interest::WRITABLE,
        Interest::READ_CLOSED,
        Interest::EDGE,
        Interest::ONE_SHOT,
    ];
    (0..32_u32).prop_map(move |chosen| {
        let chosen = bits.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 != 0);
        chosen.fold(Interest::none(), |sum, (_, bit)| sum | *bit)
    })
}

fn any_call() -> impl Strategy<Value = Call> {
    let end = || 0..2 * CONNECTIONS;
    prop_oneof![
        6 => Just(Call::Connect),
        6 => Just(Call::Accept),
        12 => (end(), 1..100_usize).prop_map(|(end, len)| Call::Write(end, len)),
        12 => (end(), 1..100_usize).prop_map(|(end, len)| Call::Read(end, len)),
        3 => end().prop_map(Call::Drain),
        2 => end().prop_map(Call::Shutdown),
        1 => end().prop_map(Call::Close),
        12 => (end(), any_interest()).prop_map(|(end, interest)| Call::Watch(end as u64, interest)),
        3 => any_interest().prop_map(|interest| Call::Watch(LISTENER, interest)),
        2 => end().prop_map(|end| Call::Unwatch(end as u64)),
        20 => Just(Call::Wait),
    ]
}

/// Fewer under the engine, where every quiet moment takes its time.
fn few() -> ProptestConfig {
    let is_slow = std::env::var_os(crate::shared::PLACEMENT).is_some();
    ProptestConfig {
        cases: if is_slow { 1 } else { 24 },
        max_shrink_iters: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn polls_tell_what_epoll_tells(calls in prop::collection::vec(any_call(), 1..120)) {
        within(60, move || {
            let (mut kernel, mut nodes) = (Kernel::new(), Nodes::new());
            let mut model = Model::default();
            for call in calls {
                model.apply(call, &mut [&mut kernel, &mut nodes]);
            }
            same(&mut [&mut kernel, &mut nodes]);
        });
    }
}

/// What edges are for, one after the other, in words.
#[test]
fn an_edge_is_told_once_for_each_change() {
    use Call::{Accept, Connect, Drain, Fill, Read, Wait, Watch, Write};
    let edge = Interest::READABLE | Interest::WRITABLE | Interest::READ_CLOSED | Interest::EDGE;
    within(60, move || {
        let (mut kernel, mut nodes) = (Kernel::new(), Nodes::new());
        let mut model = Model::default();
        let mut told = |calls: &[Call]| {
            for &call in calls {
                model.apply(call, &mut [&mut kernel, &mut nodes]);
            }
            same(&mut [&mut kernel, &mut nodes])
        };
        let [input, output] = [
            Bits([true, false, false, false, false]),
            Bits([false, true, false, false, false]),
        ];
        let both = Bits([true, true, false, false, false]);
        let listening = Watch(LISTENER, Interest::READABLE | Interest::EDGE);
        assert_eq!(told(&[listening, Connect])[&LISTENER], input);
        assert!(told(&[]).is_empty(), "nothing has changed");
        assert_eq!(told(&[Connect])[&LISTENER], input, "one more arrives");
        assert_eq!(told(&[Accept, Accept, Watch(1, edge)])[&1], output);
        assert_eq!(told(&[Write(0, 10)])[&1], both);
        assert!(told(&[]).is_empty());
        assert!(told(&[Read(1, 4)]).is_empty(), "that there is less is no news");
        assert_eq!(told(&[Write(0, 10)])[&1], both, "more data, still readable");
        assert!(told(&[Drain(1)]).is_empty());
        assert_eq!(told(&[Watch(1, edge)])[&1], output, "as registered anew");
        assert!(told(&[Fill(1), Wait]).is_empty());
        assert_eq!(told(&[Drain(0)])[&1], output, "room, after it was missing");
        let once = Interest::READABLE | Interest::ONE_SHOT;
        assert_eq!(told(&[Watch(1, once), Write(0, 1)])[&1], input);
        assert!(
            told(&[Write(0, 1), Call::Close(0)]).is_empty(),
            "not even of its end"
        );
        assert!(told(&[Watch(1, once)])[&1].0[0], "registered again");
    });
}

/// What came of a connection before it was accepted is not told afterwards.
#[test]
fn data_are_no_news_for_who_waits_for_room() {
    use Call::{Accept, Connect, Wait, Watch, Write};
    within(60, move || {
        let (mut kernel, mut nodes) = (Kernel::new(), Nodes::new());
        let mut model = Model::default();
        let room = Interest::WRITABLE | Interest::EDGE;
        for call in [Connect, Accept, Watch(1, room), Wait, Write(0, 10)] {
            model.apply(call, &mut [&mut kernel, &mut nodes]);
        }
        let told = same(&mut [&mut kernel, &mut nodes]);
        assert!(told.is_empty(), "{told:?}");
    });
}

/// Linux wakes every thread that waits for the connection (`inet_shutdown`).
#[test]
fn every_shutdown_is_told() {
    use Call::{Accept, Connect, Shutdown, Wait, Watch};
    within(60, move || {
        let (mut kernel, mut nodes) = (Kernel::new(), Nodes::new());
        let mut model = Model::default();
        let room = Interest::WRITABLE | Interest::EDGE;
        for call in [
            Connect,
            Accept,
            Watch(0, room),
            Shutdown(0),
            Wait,
            Wait,
            Shutdown(0),
        ] {
            model.apply(call, &mut [&mut kernel, &mut nodes]);
        }
        let told = same(&mut [&mut kernel, &mut nodes]);
        assert!(told.contains_key(&0), "{told:?}");
    });
}
