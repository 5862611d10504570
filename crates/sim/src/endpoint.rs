//! Programs of simulated nodes. Each has one connection, sends a stream, and
//! checks the stream that it receives.

use core::fmt;
use core::time::Duration;

use toehold_stack::{
    ConnectionId, Instant, ListenerId, ReceiveFlags, SendFlags, Shutdown, SocketError, SocketOption, Stack,
    State,
};

use crate::stream::Stream;

/// A program's plan for its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes to send before the program shuts its sending direction.
    pub send: u64,
    /// Bytes to receive before the peer shuts its sending direction.
    pub receive: u64,
    /// Seed of the sent stream.
    pub send_seed: u64,
    /// Seed of the expected stream.
    pub receive_seed: u64,
    /// Most bytes of a write.
    pub write_len: usize,
    /// Most bytes of a read.
    pub read_len: usize,
    /// Pause between two reads.
    pub read_pause: Duration,
    /// Pause between two writes.
    pub write_pause: Duration,
    /// Turns Nagle's algorithm off.
    pub no_delay: bool,
    /// Keeps its sending direction open until the peer has shut its own.
    pub close_second: bool,
}

impl Plan {
    /// Draws the plans of a connection's two ends from a seed.
    pub fn pair(seed: u64, most_bytes: u64) -> [Plan; 2] {
        let mut random = fastrand::Rng::with_seed(seed);
        let amounts = [random.u64(..=most_bytes), random.u64(..=most_bytes)];
        let second = random.usize(..4);
        let mut end = |index: usize| Plan {
            send: amounts[index],
            receive: amounts[1 - index],
            send_seed: seed ^ index as u64,
            receive_seed: seed ^ (1 - index as u64),
            write_len: 1 + pick_len(&mut random),
            read_len: 1 + pick_len(&mut random),
            read_pause: pause(&mut random),
            write_pause: pause(&mut random),
            no_delay: random.bool(),
            close_second: second == index,
        };
        [end(0), end(1)]
    }
}

/// Draws a length. Short and long ones are about equally likely.
fn pick_len(random: &mut fastrand::Rng) -> usize {
    let bits = random.u32(6..18);
    random.usize(..1 << bits)
}

/// Draws a pause, which is usually zero.
fn pause(random: &mut fastrand::Rng) -> Duration {
    match random.u32(..8) {
        0 => Duration::from_micros(random.u64(1..2_000)),
        1 => Duration::from_millis(random.u64(1..60)),
        _ => Duration::ZERO,
    }
}

/// A program's progress or result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The program still runs.
    Running,
    /// Both streams arrived whole, as far as this side can tell.
    Complete,
    /// The connection ended with an error.
    Failed(SocketError),
}

/// A program with its connection.
pub struct Endpoint {
    /// The connection. Its name may be invalid once the program is done.
    pub connection: ConnectionId,
    /// The program's progress or result.
    pub outcome: Outcome,
    /// Bytes received so far.
    pub received: u64,
    /// Bytes handed to the stack so far.
    pub sent: u64,
    plan: Plan,
    next_read: Instant,
    next_write: Instant,
    shut: bool,
    ended: bool,
    buffer: Vec<u8>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            outcome,
            received,
            sent,
            plan,
            ..
        } = self;
        write!(f, "{outcome:?}: {sent} sent, {received} received of {plan:?}")
    }
}

impl Endpoint {
    /// Creates a program for a connection that was just opened or accepted.
    pub fn new(now: Instant, stack: &mut Stack, connection: ConnectionId, plan: Plan) -> Self {
        if plan.no_delay {
            let _ = stack.set_option(now, connection, SocketOption::NoDelay(true));
        }
        Self {
            connection,
            outcome: Outcome::Running,
            received: 0,
            sent: 0,
            buffer: vec![0; plan.read_len.max(plan.write_len)],
            plan,
            next_read: now,
            next_write: now,
            shut: false,
            ended: false,
        }
    }

    /// Reads and writes as far as possible now. Returns the time of the next
    /// call if the program wants one without an event of its connection.
    ///
    /// # Panics
    ///
    /// If the received bytes differ from the peer's.
    pub fn run(&mut self, now: Instant, stack: &mut Stack) -> Option<Instant> {
        if self.outcome != Outcome::Running {
            return None;
        }
        if stack.state(self.connection) == Ok(State::SynSent) {
            return None;
        }
        match self.work(now, stack) {
            Ok(()) | Err(SocketError::WouldBlock | SocketError::InProgress) => {}
            Err(error) => {
                self.outcome = Outcome::Failed(error);
                let _ = stack.close(now, self.connection);
                return None;
            }
        }
        if self.shut && self.ended {
            self.outcome = Outcome::Complete;
            let _ = stack.close(now, self.connection);
            return None;
        }
        let wants = [
            (!self.ended && self.next_read > now).then_some(self.next_read),
            (!self.shut && self.next_write > now).then_some(self.next_write),
        ];
        wants.into_iter().flatten().min()
    }

    fn work(&mut self, now: Instant, stack: &mut Stack) -> Result<(), SocketError> {
        let read = self.read(now, stack);
        let written = self.write(now, stack);
        for result in [read, written] {
            match result {
                Ok(()) | Err(SocketError::WouldBlock | SocketError::InProgress) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self, now: Instant, stack: &mut Stack) -> Result<(), SocketError> {
        while self.sent < self.plan.send && self.next_write <= now {
            let left = self.plan.send - self.sent;
            let len = self
                .plan
                .write_len
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            let bytes = &mut self.buffer[..len];
            Stream::new(self.plan.send_seed).fill(self.sent, bytes);
            let taken = stack.send(self.connection, bytes, SendFlags::default())?;
            self.sent += taken as u64;
            self.next_write = now + self.plan.write_pause;
        }
        let may_shut = !self.plan.close_second || self.ended;
        if self.sent == self.plan.send && !self.shut && may_shut {
            stack.shutdown(now, self.connection, Shutdown::Write)?;
            self.shut = true;
        }
        Ok(())
    }

    fn read(&mut self, now: Instant, stack: &mut Stack) -> Result<(), SocketError> {
        while !self.ended && self.next_read <= now {
            let len = self.plan.read_len;
            let buffer = &mut self.buffer[..len];
            let taken = stack.receive(self.connection, buffer, ReceiveFlags::default())?;
            if taken == 0 {
                assert_eq!(self.received, self.plan.receive, "the stream ended early");
                self.ended = true;
            }
            let bytes = &buffer[..taken];
            if let Err(corrupted) = Stream::new(self.plan.receive_seed).check(self.received, bytes) {
                panic!("{corrupted}");
            }
            self.received += taken as u64;
            assert!(self.received <= self.plan.receive, "more than was sent");
            self.next_read = now + self.plan.read_pause;
        }
        Ok(())
    }
}

/// A server's plans for accepted connections.
#[derive(Debug, Clone)]
pub enum Service {
    /// A plan drawn from this seed and the client's address, with at most this
    /// many bytes a direction.
    Seeded(u64, u64),
    /// One plan for every connection.
    Fixed(Plan),
}

/// A program that accepts connections.
#[derive(Debug)]
pub struct Server {
    /// The server's listener.
    pub listener: ListenerId,
    /// The plans for accepted connections.
    pub service: Service,
}

/// Derives the seed of a connection's plans from the client's address.
pub fn connection_seed(seed: u64, client: core::net::SocketAddr) -> u64 {
    let host = match client.ip() {
        core::net::IpAddr::V4(v4) => u64::from(v4.to_bits()),
        core::net::IpAddr::V6(v6) => v6.to_bits() as u64,
    };
    (seed ^ host << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(client.port()) << 8
}

impl Server {
    /// Accepts all waiting connections and starts their programs.
    pub fn accept(&self, now: Instant, stack: &mut Stack) -> Vec<Endpoint> {
        let mut accepted = Vec::new();
        while let Ok(connection) = stack.accept(self.listener) {
            let Ok(client) = stack.peer_addr(connection) else {
                continue;
            };
            let plan = match &self.service {
                Service::Seeded(seed, most) => {
                    let [_, plan] = Plan::pair(connection_seed(*seed, client), *most);
                    plan
                }
                Service::Fixed(plan) => plan.clone(),
            };
            accepted.push(Endpoint::new(now, stack, connection, plan));
        }
        accepted
    }
}
