//! Plays a script: advances the clock, injects packets, compares the output.

use std::collections::HashMap;
use std::time::Duration;

use toehold_stack::{ConnectionId, Instant, ListenerId};
use toehold_wire::tcp::{Flags, Options, Seq, Timestamps};

use super::compare::{FlowState, describe, pattern};
use super::settings::Settings;
use super::{Event, Flow, Line, OptionList, Script, ScriptError, Segment, When};
use crate::host::{BEGINNING, Host, Sent};
use crate::packet::Packet;

/// Longest wait for an expected packet without a time.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// Nanoseconds of a tick of the clock that initial sequence numbers follow.
const ISN_TICK_NS: u64 = 4_000;

/// First port of a flood's packets.
const FLOOD_PORT: u16 = 10_000;

/// A script's named socket.
#[derive(Debug, Clone, Copy)]
pub(super) enum Named {
    Listener(ListenerId),
    Connection(Connection),
}

/// A connection with the program's positions in its streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) ports: (u16, u16),
    /// Sequence number of the next byte that the program sends.
    pub(super) write_at: u32,
    /// Sequence number of the next byte that the program reads.
    pub(super) read_at: u32,
}

/// A running script.
pub(super) struct Runner {
    pub(super) settings: Settings,
    pub(super) host: Host,
    pub(super) names: HashMap<String, Named>,
    pub(super) new_sockets: toehold_stack::Settings,
    /// Ports of the default connection: the stack's and the peer's.
    pub(super) ports: (u16, u16),
    flows: HashMap<(u16, u16), FlowState>,
    last_sent: Option<Packet>,
    /// Time of the previous event.
    at: Instant,
    transcript: Vec<String>,
}

/// Plays a script from beginning to end.
pub(super) fn play(script: &Script) -> Result<(), ScriptError> {
    let mut settings = Settings::default();
    for (line, setting) in &script.settings {
        settings
            .apply(setting)
            .map_err(|message| ScriptError::new(*line, message))?;
    }
    let mut start = BEGINNING;
    if let Some(wanted) = settings.local_isn {
        // Of the parts of an initial sequence number only the clock moves. A
        // rehearsal shows the number; the run then starts when the wanted number is
        // due.
        let mut rehearsal = Runner::new(settings.clone(), start)?;
        let (isn, at) = rehearsal.first_isn(script)?;
        let ticks = wanted.wrapping_sub(isn);
        // The stack rounds its time down to the tick; aim for the middle of
        // one.
        let middle = at.0 / ISN_TICK_NS * ISN_TICK_NS + ISN_TICK_NS / 2;
        start = Instant(start.0 + u64::from(ticks) * ISN_TICK_NS + (middle - at.0));
    }
    let mut runner = Runner::new(settings, start)?;
    for line in &script.lines {
        runner
            .line(line)
            .map_err(|message| runner.error(line.number, message))?;
    }
    let last = script.lines.last().map_or(0, |line| line.number);
    runner
        .nothing_unexpected()
        .map_err(|message| runner.error(last, message))
}

impl Runner {
    fn new(settings: Settings, start: Instant) -> Result<Self, ScriptError> {
        let host =
            Host::new(&settings.config, start).map_err(|error| ScriptError::new(0, error.to_string()))?;
        Ok(Self {
            new_sockets: host.stack.default_settings(),
            settings,
            host,
            names: HashMap::new(),
            ports: (80, 2000),
            flows: HashMap::new(),
            last_sent: None,
            at: start,
            transcript: Vec::new(),
        })
    }

    fn error(&self, line: usize, message: String) -> ScriptError {
        ScriptError {
            line,
            message,
            transcript: self.transcript.clone(),
        }
    }

    /// Returns the initial sequence number of the stack's first SYN, and its
    /// time.
    fn first_isn(&mut self, script: &Script) -> Result<(u32, Instant), ScriptError> {
        for line in &script.lines {
            let result = self.line(line);
            let isn = self
                .flows
                .values()
                .find_map(|flow| flow.local_isn.zip(flow.isn_at));
            if let Some(found) = isn {
                return Ok(found);
            }
            result.map_err(|message| self.error(line.number, message))?;
        }
        Err(ScriptError::new(
            0,
            "`config local_isn` in a script without a SYN from the stack",
        ))
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        if let Event::Expect(segment) = &line.event {
            return self.expect(line.when, segment);
        }
        if let When::After(span) = line.when {
            self.at = self.at + span;
        }
        self.advance(self.at)?;
        self.nothing_unexpected()?;
        match &line.event {
            Event::Inject(segment) => {
                let packet = self.packet(segment)?;
                self.record(self.now(), '<', &packet);
                self.inject(&packet)
            }
            Event::Flood(count, segment) => self.flood(*count, segment),
            Event::Call(call) => {
                self.call(call)?;
                self.host.settle().map_err(|error| error.to_string())
            }
            Event::Expect(_) => Ok(()),
        }
    }

    /// Returns the virtual time.
    pub(super) fn now(&self) -> Instant {
        self.host.now()
    }

    fn advance(&mut self, to: Instant) -> Result<(), String> {
        self.host.advance(to).map_err(|error| error.to_string())
    }

    fn inject(&mut self, packet: &Packet) -> Result<(), String> {
        self.inject_bytes(&packet.bytes())
    }

    pub(super) fn inject_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.host.inject_bytes(bytes).map_err(|error| error.to_string())
    }

    fn flood(&mut self, count: u32, segment: &Segment) -> Result<(), String> {
        let mut packet = self.packet(segment)?;
        for i in 0..count {
            packet.header.src_port = FLOOD_PORT + (i % 50_000) as u16;
            self.inject(&packet)?;
            self.host.sent.clear();
        }
        self.transcript.push(format!("(a flood of {count} packets)"));
        Ok(())
    }

    /// Returns the ports of a packet's connection: the stack's and the peer's.
    fn ports_of(&self, flow: &Flow) -> Result<(u16, u16), String> {
        match flow {
            Flow::Default => Ok(self.ports),
            Flow::RemotePort(port) => Ok((self.ports.0, *port)),
            Flow::Socket(name) => match self.names.get(name) {
                Some(Named::Connection(connection)) => Ok(connection.ports),
                _ => Err(format!("`{name}` is no connection")),
            },
        }
    }

    /// Builds the packet that a script describes, with absolute numbers.
    fn packet(&self, segment: &Segment) -> Result<Packet, String> {
        let ports = self.ports_of(&segment.flow)?;
        let flow = self.flows.get(&ports).copied().unwrap_or_default();
        let remote_isn = self.settings.remote_isn;
        let local = |number: u32| Seq(number.wrapping_add(flow.local_isn.unwrap_or(0)));
        let mut packet = Packet::new(
            (self.settings.remote, ports.1).into(),
            (self.settings.local, ports.0).into(),
            segment.flags,
            Seq(segment.seq.wrapping_add(remote_isn)),
            segment.ack.map_or(Seq(0), local),
        );
        packet.ecn = segment.ecn.unwrap_or(0);
        packet.header.window = segment.window.unwrap_or(u16::MAX);
        packet.header.urgent = segment.urgent.unwrap_or(0);
        packet.header.options = options(&segment.options, local, flow.timestamp_base.unwrap_or(0));
        packet.raw_options = segment.options.raw.clone();
        let start = segment
            .seq
            .wrapping_add(segment.flags.contains(Flags::SYN).into());
        packet.payload = (0..segment.len).map(|i| pattern(start.wrapping_add(i))).collect();
        Ok(packet)
    }

    fn expect(&mut self, when: When, segment: &Segment) -> Result<(), String> {
        let tolerance = self.settings.tolerance;
        let (earliest, latest) = match when {
            When::After(span) => {
                self.at = self.at + span;
                (
                    Instant(self.at.0.saturating_sub(tolerance.as_nanos() as u64)),
                    self.at + tolerance,
                )
            }
            When::Any => (Instant(0), self.now() + PATIENCE),
        };
        while self.host.sent.is_empty() {
            match self
                .host
                .stack
                .poll_timeout()
                .filter(|deadline| *deadline <= latest)
            {
                Some(deadline) => self.advance(deadline.max(self.now()))?,
                None => return Err(format!("nothing was sent; {}", self.next_words())),
            }
        }
        let Some(sent) = self.host.sent.pop_front() else {
            return Ok(());
        };
        if when == When::Any {
            self.at = sent.at;
        }
        self.record_sent(&sent);
        if sent.at < earliest || sent.at > latest {
            return Err(format!(
                "`{}` was sent at {}, not at {}",
                self.show(&sent.packet),
                self.clock(sent.at),
                self.clock(self.at)
            ));
        }
        self.compare(segment, &sent)
    }

    fn compare(&mut self, segment: &Segment, sent: &Sent) -> Result<(), String> {
        let ports = self.ports_of(&segment.flow)?;
        let header = &sent.packet.header;
        if (header.src_port, header.dst_port) != ports {
            return Err(format!(
                "`{}` belongs to another connection",
                self.show(&sent.packet)
            ));
        }
        let settings = &self.settings;
        let flow = self.flows.entry(ports).or_default();
        flow.learn(segment, sent);
        flow.compare(segment, &sent.packet, settings.remote_isn, settings.compare_push)
            .map_err(|what| {
                format!(
                    "{what}: the stack sent `{}`",
                    describe(&sent.packet, flow, settings.remote_isn)
                )
            })
    }

    /// Describes the stack's next deadline, for an error message.
    fn next_words(&mut self) -> String {
        match self.host.stack.poll_timeout() {
            Some(deadline) => format!("the stack's next deadline is {}", self.clock(deadline)),
            None => "the stack waits for nothing".into(),
        }
    }

    fn nothing_unexpected(&mut self) -> Result<(), String> {
        match self.host.sent.pop_front() {
            Some(sent) => {
                self.record_sent(&sent);
                Err(format!(
                    "`{}` was not expected, sent at {}",
                    self.show(&sent.packet),
                    self.clock(sent.at)
                ))
            }
            None => Ok(()),
        }
    }

    fn record_sent(&mut self, sent: &Sent) {
        self.record(sent.at, '>', &sent.packet);
        self.last_sent = Some(sent.packet.clone());
    }

    fn record(&mut self, at: Instant, direction: char, packet: &Packet) {
        let line = format!("{} {direction} {}", self.clock(at), self.show(packet));
        self.transcript.push(line);
    }

    /// Describes a packet with the script's numbers.
    fn show(&self, packet: &Packet) -> String {
        let header = &packet.header;
        let flow = self
            .flows
            .get(&(header.src_port, header.dst_port))
            .or_else(|| self.flows.get(&(header.dst_port, header.src_port)))
            .copied()
            .unwrap_or_default();
        if packet.source == self.settings.local {
            describe(packet, &flow, self.settings.remote_isn)
        } else {
            packet.to_string()
        }
    }

    /// Formats a point in time in seconds from the script's beginning.
    fn clock(&self, at: Instant) -> String {
        let start = match self.settings.local_isn {
            Some(_) => 0,
            None => BEGINNING.0,
        };
        format!("{:.6}", at.0.saturating_sub(start) as f64 / 1e9)
    }

    /// Returns the packet that the stack sent last.
    pub(super) fn last_sent(&self) -> Option<&Packet> {
        self.last_sent.as_ref()
    }

    /// Returns the initial sequence number of the default connection, or 0.
    pub(super) fn local_isn(&self) -> u32 {
        self.flows
            .get(&self.ports)
            .and_then(|flow| flow.local_isn)
            .unwrap_or(0)
    }

    /// Forgets initial sequence numbers and timestamps, which are then learned
    /// anew.
    pub(super) fn forget(&mut self) {
        self.flows.clear();
    }
}

/// Converts options to absolute numbers. SACK blocks name the stack's bytes, and
/// the echo is one of its timestamps.
fn options(list: &OptionList, local: impl Fn(u32) -> Seq, timestamp_base: u32) -> Options {
    let mut options = Options {
        mss: list.mss,
        window_scale: list.window_scale,
        sack_permitted: list.sack_permitted,
        fast_open: list.fast_open,
        timestamps: list.timestamps.map(|(value, echo)| Timestamps {
            value: value.unwrap_or(0),
            echo: echo.map_or(0, |echo| {
                if echo == 0 {
                    0
                } else {
                    echo.wrapping_add(timestamp_base)
                }
            }),
        }),
        ..Options::NONE
    };
    for &(left, right) in &list.sack {
        options.sack.push(local(left), local(right));
    }
    options
}
