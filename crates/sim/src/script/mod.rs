//! Packet scripts: exact TCP exchanges, in the manner of packetdrill.
//!
//! A script drives one stack under virtual time. It injects packets, states the
//! expected output with its times, and makes socket calls in between. Output
//! that the script does not expect is an error.
//!
//! ```text
//! #= RFC 9293 §3.5
//! config timestamps on          # settings come first
//!
//! +0    L = listen 80
//! +0    < S 0:0(0) win 65535 <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 7>
//! +0    > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 900 ecr 100,wscale 5>
//! +0.1  < . 1:1(0) ack 1 win 512 <nop,nop,TS val 200 ecr 900>
//! +0    C = accept L
//! +0    < P. 1:101(100) ack 1 win 512 <nop,nop,TS val 200 ecr 900>
//! +0.04 > . 1:1(0) ack 101 <TS val 1040 ecr 200>
//! +0    receive C 1000 => 1:101
//! +0    close C
//! +0    > F. 1:1(0) ack 101 <...>
//! ```
//!
//! # Lines
//!
//! A line is a comment (`#`), a setting (`config NAME VALUE`), or an event with its
//! time. `+SECONDS` counts from the previous event. `*` permits any time for an
//! expected packet. Expected packets may be early or late by `config tolerance`,
//! half a millisecond by default. Comments of the form `#= RFC 9293 §3.5` cite the
//! tested clause.
//!
//! # Packets
//!
//! `<` injects a packet, `>` expects one. Then follow, in this order:
//!
//! - the connection, if not the default one: `@2001` for another port of the
//!   peer, `@C` for the port of a socket;
//! - the ECN bits of the IP header, if they matter: `[ect0]`, `[ect1]`, `[ce]`,
//!   `[noecn]`;
//! - flags: `S`YN, `F`IN, `R`ST, `P`SH, `.` for ACK, `U`RG, `E`CE, C`W`R; or `-`;
//! - sequence numbers, `first:behind(payload)`;
//! - `ack NUMBER`, `win NUMBER` (as in the header, never scaled), `urg NUMBER`;
//! - options: `<mss N,sackOK,wscale N,TS val N ecr N,sack A:B C:D,FO COOKIE,nop,eol>`
//!   (`FO` alone asks for a cookie, `FOEXP` is its experimental form), or
//!   `<raw 020405b4>` byte by byte; in expected packets `<...>` for any.
//!
//! An expected packet without `win` may have any window. One without options
//! must have none. PSH is only compared with `config push on`.
//!
//! Sequence numbers count from each side's initial one. The peer's is
//! `config remote_isn`. The stack's is learned from its SYN. Before that, and
//! after `forget`, numbers are absolute. The stack's timestamps count from its
//! first one, which has the number that the script gives it. `*` stands for any
//! timestamp.
//!
//! Payload is a fixed pattern, one byte per sequence number. Both directions are
//! checked.
//!
//! # Events
//!
//! | event | |
//! | --- | --- |
//! | `L = listen [PORT] [backlog N]` | opens a listener, at port 80 and with a backlog of 16 |
//! | `C = accept L` | takes a waiting connection |
//! | `C = connect [PORT] [data]` | begins to connect, to the peer's port 2000; with `data`, the SYN leaves with the first `send` |
//! | `send C N [more] [eor] [urgent]` | queues N bytes |
//! | `receive C N [peek]` | takes up to N bytes: `=> first:behind`, `=> eof` |
//! | `receive C 1 urgent` | takes the urgent byte: `=> byte SEQUENCE` |
//! | `shutdown C read\|write\|both`, `close C`, `abort C` | |
//! | `close L`, `backlog L N` | closes a listener, or sets its backlog |
//! | `set C OPTION VALUE` | sets an option of a connection or listener, see below |
//! | `option OPTION VALUE` | sets an option of all sockets opened from now on |
//! | `state C NAME` | checks the state; `Gone` once the program's name for it is invalid |
//! | `error C NAME` | takes the pending error; `None` |
//! | `ready C [not] readable\|writable\|urgent\|read_closed\|hang_up\|error …` | checks readiness |
//! | `at_mark C yes\|no` | |
//! | `timers C KIND:MS:RETRIES …` | compares the running timers, by `TimerKind`, with their remaining time |
//! | `info C FIELD OP N` | compares a field of `Info`: `==`, `<=`, `>=` |
//! | `counter NAME OP N` | compares a counter of the stack |
//! | `connections N`, `blocks N` | checks the number of connections or payload blocks in use |
//! | `icmp KIND [mtu N] [code N] [seq N]` | an ICMP error about the last packet sent |
//! | `flood N SEGMENT` | puts N packets in, each from a port of its own; answers are dropped |
//! | `idle` | tells the stack that its driver is idle, so that no deferred work waits any longer |
//! | `wait` | lets time pass |
//! | `forget` | makes the script learn initial sequence numbers and timestamps anew |
//!
//! A call that is expected to fail ends in `=> error NAME`. `send` may end in
//! `=> N`, the number of bytes that it takes.
//!
//! # Options
//!
//! | value | options |
//! | --- | --- |
//! | `on` or `off` | `nodelay`, `cork`, `quickack`, `keepalive`, `urgent_inline`, `reuse_address`, `fast_open_connect`, `fast_open_no_cookie` |
//! | seconds | `keepalive_idle`, `keepalive_interval`, `user_timeout`, `linger` (or `off`) |
//! | number | `keepalive_probes`, `send_buffer`, `receive_buffer`, `unsent_low_water`, `low_water`, `max_segment`, `traffic_class` |
//! | number, of a listener | `fast_open`, `defer_accept` |
//! | `reno` or `cubic` | `congestion` |
//!
//! # Settings
//!
//! | value | settings |
//! | --- | --- |
//! | number | `mtu`, `super_frame`, `connections`, `time_wait_records`, `payload_blocks`, `block_len` |
//! | number, of TCP | `send_buffer`, `receive_buffer`, `short_path_buffer`, `idle_buffer`, `initial_window`, `retries`, `syn_retries`, `challenge_rate` |
//! | seconds, of TCP | `rto_min`, `rto_initial`, `rto_max`, `delayed_ack`, `time_wait`, `fin_wait_2` |
//! | `on` or `off`, of TCP | `sack`, `timestamps`, `window_scaling`, `ecn` |
//! | `on` or `off` | `local` (the link is local), `ipv6` (addresses are IPv6), `push` (PSH is compared) |
//! | `reno` or `cubic` | `congestion` |
//! | 32 hexadecimal digits | `fast_open_key` |
//! | number | `remote_isn`, `local_isn` (the clock begins when this number is due) |
//! | seconds | `tolerance` |
//!
//! SACK, timestamps and window scaling are off unless a script turns them on.

mod calls;
mod compare;
mod parse;
mod parse_packet;
mod run;
mod settings;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use toehold_wire::tcp::{FastOpen, Flags};

use self::settings::Setting;

/// A packet script, parsed.
#[derive(Debug, Clone)]
pub struct Script {
    settings: Vec<(usize, Setting)>,
    lines: Vec<Line>,
}

/// Reason for which a script could not be read, or the stack's deviation from
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// The script's line, from 1.
    pub line: usize,
    /// The error.
    pub message: String,
    /// The packets up to the error, one a line.
    pub transcript: Vec<String>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)?;
        for line in &self.transcript {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScriptError {}

impl ScriptError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            transcript: Vec::new(),
        }
    }
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        parse::script(text)
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    ///
    /// An unreadable file (line 0), or the first invalid line.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path).map_err(|error| ScriptError::new(0, error.to_string()))?;
        Self::parse(&text)
    }

    /// Plays the script against a new stack.
    ///
    /// # Errors
    ///
    /// The first line from which the stack deviates.
    pub fn play(&self) -> Result<(), ScriptError> {
        run::play(self)
    }
}

/// An event of a script.
#[derive(Debug, Clone)]
struct Line {
    number: usize,
    when: When,
    event: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The time since the previous event.
    After(Duration),
    /// Any time.
    Any,
}

#[derive(Debug, Clone)]
enum Event {
    Inject(Segment),
    Expect(Segment),
    Flood(u32, Segment),
    Call(Call),
}

/// The connection of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Flow {
    Default,
    RemotePort(u16),
    Socket(String),
}

/// A segment as a script describes it. Numbers count from the initial ones.
#[derive(Debug, Clone)]
struct Segment {
    flow: Flow,
    ecn: Option<u8>,
    flags: Flags,
    seq: u32,
    len: u32,
    ack: Option<u32>,
    window: Option<u16>,
    urgent: Option<u16>,
    options: OptionList,
}

/// A number; `None` matches any.
type Wild = Option<u32>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OptionList {
    /// `<...>`: matches any options.
    any: bool,
    mss: Option<u16>,
    window_scale: Option<u8>,
    sack_permitted: bool,
    sack: Vec<(u32, u32)>,
    timestamps: Option<(Wild, Wild)>,
    fast_open: Option<FastOpen>,
    raw: Option<Vec<u8>>,
}

/// A call or a check: `[NAME =] VERB ARGUMENT… [=> RESULT…]`.
#[derive(Debug, Clone)]
struct Call {
    result_name: Option<String>,
    verb: String,
    arguments: Vec<String>,
    /// The words behind `=>`. If empty, the call has to succeed.
    expected: Vec<String>,
}

#[cfg(test)]
mod tests;
