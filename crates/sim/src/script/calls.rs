//! The calls of a script's program, and its checks of the stack.

use core::net::SocketAddr;
use core::time::Duration;

use toehold_stack::{
    ConnectionId, Info, Instant, ReceiveFlags, SendFlags, Shutdown, SocketError, SocketOption, State, Timer,
};
use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

use super::Call;
use super::compare::pattern;
use super::parse::{number, seconds, switch};
use super::run::{Connection, Named, Runner};
use super::settings::congestion;

/// All events of a script but packets.
pub(super) const VERBS: [&str; 24] = [
    "listen",
    "accept",
    "connect",
    "send",
    "receive",
    "shutdown",
    "close",
    "abort",
    "backlog",
    "set",
    "option",
    "state",
    "error",
    "ready",
    "at_mark",
    "info",
    "timers",
    "counter",
    "connections",
    "blocks",
    "icmp",
    "idle",
    "wait",
    "forget",
];

/// A call's outcome, in the words that follow `=>`.
type Outcome = Result<Vec<String>, SocketError>;

impl Runner {
    /// Makes a call and compares its outcome.
    pub(super) fn call(&mut self, call: &Call) -> Result<(), String> {
        let words: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        let outcome = match call.verb.as_str() {
            "listen" => self.listen(call, &words)?,
            "accept" => self.accept(call, &words)?,
            "connect" => self.connect(call, &words)?,
            "send" => self.send(&words)?,
            "receive" => self.receive(&words)?,
            "shutdown" => self.shutdown(&words)?,
            "close" | "abort" => self.close(&call.verb, &words)?,
            "backlog" => self.set_backlog(&words)?,
            "set" => self.set(&words)?,
            "option" => {
                let option = option(&words)?;
                self.new_sockets.apply(option).map(|()| Vec::new())
            }
            "icmp" => return self.icmp(&words),
            "idle" => {
                let now = self.now();
                self.host.stack.acknowledge(now);
                return Ok(());
            }
            "wait" => return Ok(()),
            "forget" => {
                self.forget();
                return Ok(());
            }
            _ => return self.look(&call.verb, &words),
        };
        compare(&outcome, &call.expected)
    }

    fn listen(&mut self, call: &Call, words: &[&str]) -> Result<Outcome, String> {
        let (mut port, mut backlog) = (80, 16);
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if word == "backlog" {
                backlog = number(words.next().ok_or("`backlog` needs a number")?)?;
            } else {
                port = number(word)? as u16;
            }
        }
        let address = SocketAddr::new(self.settings.local, port);
        let now = self.now();
        let outcome = self.host.stack.listen(now, address, backlog, &self.new_sockets);
        self.ports.0 = port;
        Ok(outcome.map(|id| self.name(call, Named::Listener(id))))
    }

    fn accept(&mut self, call: &Call, words: &[&str]) -> Result<Outcome, String> {
        let Named::Listener(listener) = self.named(words)? else {
            return Err("only a listener can accept".into());
        };
        let outcome = self.host.stack.accept(listener);
        Ok(outcome.map(|id| self.name_connection(call, id)))
    }

    fn connect(&mut self, call: &Call, words: &[&str]) -> Result<Outcome, String> {
        let with_data = words.contains(&"data");
        let words: Vec<&str> = words.iter().copied().filter(|word| *word != "data").collect();
        let port = words.first().map_or(Ok(2000), |word| number(word))? as u16;
        let remote = SocketAddr::new(self.settings.remote, port);
        let local = match words.get(1) {
            Some(word) => Some(SocketAddr::new(self.settings.local, number(word)? as u16)),
            None if self.settings.local.is_ipv6() => Some(SocketAddr::new(self.settings.local, 0)),
            None => None,
        };
        let now = self.now();
        let stack = &mut self.host.stack;
        let outcome = match with_data {
            true => stack.connect_with_data(now, local, remote, &self.new_sockets),
            false => stack.connect(now, local, remote, &self.new_sockets),
        };
        Ok(outcome.map(|id| {
            let names = self.name_connection(call, id);
            if let Ok(local) = self.host.stack.local_addr(id) {
                self.ports = (local.port(), port);
            }
            names
        }))
    }

    fn send(&mut self, words: &[&str]) -> Result<Outcome, String> {
        let connection = self.connection(words)?;
        let len = number(words.get(1).ok_or("the number of bytes is missing")?)?;
        let flags = SendFlags {
            urgent: words.contains(&"urgent"),
            more: words.contains(&"more"),
            end_of_record: words.contains(&"eor"),
        };
        let bytes: Vec<u8> = (0..len)
            .map(|i| pattern(connection.write_at.wrapping_add(i)))
            .collect();
        let outcome = self.host.stack.send(connection.id, &bytes, flags);
        Ok(outcome.map(|sent| {
            self.update(words, |c| c.write_at = c.write_at.wrapping_add(sent as u32));
            if sent == bytes.len() {
                Vec::new()
            } else {
                vec![sent.to_string()]
            }
        }))
    }

    fn receive(&mut self, words: &[&str]) -> Result<Outcome, String> {
        let connection = self.connection(words)?;
        let len = number(words.get(1).ok_or("the number of bytes is missing")?)?;
        let flags = ReceiveFlags {
            peek: words.contains(&"peek"),
            urgent: words.contains(&"urgent"),
        };
        let mut buffer = vec![0; len as usize];
        let received = match self.host.stack.receive(connection.id, &mut buffer, flags) {
            Ok(received) => received,
            Err(error) => return Ok(Err(error)),
        };
        if received == 0 && len > 0 {
            return Ok(Ok(vec!["eof".into()]));
        }
        if flags.urgent {
            return Ok(Ok(vec!["byte".into(), format!("{:#04x}", buffer[0])]));
        }
        let found = find(&buffer[..received], connection.read_at)
            .ok_or_else(|| format!("bytes from {} on are not what the peer sent", connection.read_at))?;
        let end = found.wrapping_add(received as u32);
        if !flags.peek {
            self.update(words, |c| c.read_at = end);
        }
        Ok(Ok(vec![format!("{found}:{end}")]))
    }

    fn shutdown(&mut self, words: &[&str]) -> Result<Outcome, String> {
        let connection = self.connection(words)?;
        let how = match words.get(1) {
            Some(&"read") => Shutdown::Read,
            Some(&"write") => Shutdown::Write,
            Some(&"both") => Shutdown::Both,
            _ => return Err("say which direction: `read`, `write` or `both`".into()),
        };
        let now = self.now();
        let outcome = self.host.stack.shutdown(now, connection.id, how);
        Ok(outcome.map(|()| Vec::new()))
    }

    fn close(&mut self, verb: &str, words: &[&str]) -> Result<Outcome, String> {
        let now = self.now();
        let outcome = match (self.named(words)?, verb) {
            (Named::Listener(id), "close") => self.host.stack.close_listener(id),
            (Named::Connection(c), "close") => self.host.stack.close(now, c.id),
            (Named::Connection(c), _) => self.host.stack.abort(c.id),
            (Named::Listener(_), _) => return Err("a listener is closed, not aborted".into()),
        };
        Ok(outcome.map(|()| Vec::new()))
    }

    fn set_backlog(&mut self, words: &[&str]) -> Result<Outcome, String> {
        let Named::Listener(listener) = self.named(words)? else {
            return Err("only a listener has a backlog".into());
        };
        let backlog = number(words.get(1).ok_or("the backlog is missing")?)?;
        Ok(self
            .host
            .stack
            .set_backlog(listener, backlog)
            .map(|()| Vec::new()))
    }

    fn set(&mut self, words: &[&str]) -> Result<Outcome, String> {
        let option = option(words.get(1..).unwrap_or(&[]))?;
        let now = self.now();
        let outcome = match self.named(words)? {
            Named::Listener(id) => self.host.stack.set_listener_option(id, option),
            Named::Connection(c) => self.host.stack.set_option(now, c.id, option),
        };
        Ok(outcome.map(|()| Vec::new()))
    }

    fn icmp(&mut self, words: &[&str]) -> Result<(), String> {
        let (&kind, mut rest) = words.split_first().ok_or("the kind of ICMP error is missing")?;
        let (mut mtu, mut code, mut seq) = (0, 0, None);
        while let [name, value, after @ ..] = rest {
            match *name {
                "mtu" => mtu = number(value)?,
                "code" => code = number(value)? as u8,
                "seq" => seq = Some(number(value)?.wrapping_add(self.local_isn())),
                _ => return Err(format!("`{name}` is none of `mtu`, `code`, `seq`")),
            }
            rest = after;
        }
        let mut packet = self.last_sent().ok_or("the stack has sent nothing yet")?.clone();
        if let Some(seq) = seq {
            packet.header.seq.0 = seq;
        }
        let bytes = match packet.source.is_ipv4() {
            true => icmp_v4(kind, (code, mtu), &packet.bytes())?,
            false => icmp_v6(kind, (code, mtu), &packet.bytes())?,
        };
        self.inject_bytes(&bytes)
    }

    /// Runs a check of the stack.
    fn look(&mut self, verb: &str, words: &[&str]) -> Result<(), String> {
        match verb {
            "connections" => equal(verb, self.host.stack.connections().into(), words),
            "blocks" => equal(verb, self.host.stack.payload_blocks_used().into(), words),
            "counter" => {
                let [name, operator, value] = words else {
                    return Err("counter NAME OP N".into());
                };
                let counters = self.host.stack.counters();
                let found = counters.iter().find(|(counter, _)| counter == name);
                let (_, found) = found.ok_or_else(|| format!("there is no counter `{name}`"))?;
                related(name, found, operator, value)
            }
            "info" => {
                let connection = self.connection(words)?;
                let [_, field, operator, value] = words else {
                    return Err("info C FIELD OP N".into());
                };
                let info = self
                    .host
                    .stack
                    .info(connection.id)
                    .map_err(|error| error.to_string())?;
                related(field, info_field(&info, field)?, operator, value)
            }
            "timers" => self.timers(words),
            "state" => {
                let connection = self.connection(words)?;
                let state: Result<State, SocketError> = self.host.stack.state(connection.id);
                text(
                    "state",
                    state.map_or("Gone".into(), |state| format!("{state:?}")),
                    words,
                )
            }
            "error" => {
                let connection = self.connection(words)?;
                let error = self
                    .host
                    .stack
                    .take_error(connection.id)
                    .map_err(|error| error.to_string())?;
                text(
                    "error",
                    error.map_or("None".into(), |error| format!("{error:?}")),
                    words,
                )
            }
            "at_mark" => {
                let connection = self.connection(words)?;
                let at_mark = self
                    .host
                    .stack
                    .at_mark(connection.id)
                    .map_err(|error| error.to_string())?;
                text("at_mark", if at_mark { "yes" } else { "no" }.into(), words)
            }
            _ => self.ready(words),
        }
    }

    fn timers(&mut self, words: &[&str]) -> Result<(), String> {
        let connection = self.connection(words)?;
        let info = self.host.stack.info(connection.id);
        let timers = info
            .map_err(|error| error.to_string())?
            .timers
            .into_iter()
            .flatten();
        let found: Vec<_> = timers.map(|timer| timer_words(&timer, self.now())).collect();
        if found == words[1..] {
            Ok(())
        } else {
            Err(format!("the timers are {found:?}"))
        }
    }

    fn ready(&mut self, words: &[&str]) -> Result<(), String> {
        let connection = self.connection(words)?;
        let ready = self.host.stack.readiness(connection.id);
        let mut wanted = true;
        for &word in &words[1..] {
            let found = match word {
                "not" => {
                    wanted = false;
                    continue;
                }
                "readable" => ready.readable,
                "writable" => ready.writable,
                "urgent" => ready.urgent,
                "read_closed" => ready.read_closed,
                "hang_up" => ready.hang_up,
                "error" => ready.error,
                _ => return Err(format!("`{word}` is no readiness")),
            };
            if found != wanted {
                return Err(format!("{word} is {found}: {ready:?}"));
            }
            wanted = true;
        }
        Ok(())
    }

    fn name(&mut self, call: &Call, named: Named) -> Vec<String> {
        if let Some(name) = &call.result_name {
            self.names.insert(name.clone(), named);
        }
        Vec::new()
    }

    fn name_connection(&mut self, call: &Call, id: ConnectionId) -> Vec<String> {
        let port = |address: Result<SocketAddr, SocketError>| address.map_or(0, |address| address.port());
        let ports = (
            port(self.host.stack.local_addr(id)),
            port(self.host.stack.peer_addr(id)),
        );
        self.name(
            call,
            Named::Connection(Connection {
                id,
                ports,
                write_at: 1,
                read_at: 1,
            }),
        )
    }

    fn named(&self, words: &[&str]) -> Result<Named, String> {
        let name = words.first().ok_or("the name of a socket is missing")?;
        self.names
            .get(*name)
            .copied()
            .ok_or_else(|| format!("nothing has the name `{name}`"))
    }

    fn connection(&self, words: &[&str]) -> Result<Connection, String> {
        match self.named(words)? {
            Named::Connection(connection) => Ok(connection),
            Named::Listener(_) => Err("that is a listener".into()),
        }
    }

    fn update(&mut self, words: &[&str], change: impl FnOnce(&mut Connection)) {
        if let Some(Named::Connection(connection)) = words.first().and_then(|name| self.names.get_mut(*name))
        {
            change(connection);
        }
    }
}

/// Finds the bytes in the peer's stream: at `at`, or behind an urgent byte that
/// was taken out. Returns their sequence number.
fn find(bytes: &[u8], at: u32) -> Option<u32> {
    [at, at.wrapping_add(1)].into_iter().find(|&start| {
        bytes
            .iter()
            .enumerate()
            .all(|(i, &byte)| byte == pattern(start.wrapping_add(i as u32)))
    })
}

fn compare(outcome: &Outcome, expected: &[String]) -> Result<(), String> {
    match (outcome, expected) {
        (Ok(found), [first, ..]) if first != "error" => {
            let wanted = translate(expected)?;
            if *found == wanted {
                Ok(())
            } else {
                Err(format!("the call gave `{}`", found.join(" ")))
            }
        }
        (Ok(found), []) if found.is_empty() => Ok(()),
        (Ok(found), _) => Err(format!("the call succeeded: `{}`", found.join(" "))),
        (Err(error), [first, name]) if first == "error" && format!("{error:?}") == *name => Ok(()),
        (Err(error), _) => Err(format!("the call failed: {error:?} ({error})")),
    }
}

/// Translates `byte SEQUENCE`, which names a byte by its sequence number.
fn translate(expected: &[String]) -> Result<Vec<String>, String> {
    match expected {
        [first, sequence] if first == "byte" => Ok(vec![
            "byte".into(),
            format!("{:#04x}", pattern(number(sequence)?)),
        ]),
        _ => Ok(expected.to_vec()),
    }
}

fn text(what: &str, found: String, words: &[&str]) -> Result<(), String> {
    match words.get(1) {
        Some(&expected) if expected == found => Ok(()),
        Some(expected) => Err(format!("{what} is {found}, not {expected}")),
        None => Err(format!("the expected {what} is missing")),
    }
}

fn equal(what: &str, found: u64, words: &[&str]) -> Result<(), String> {
    related(
        what,
        found,
        "==",
        words.first().ok_or("the expected number is missing")?,
    )
}

/// Describes a timer in the syntax of scripts.
fn timer_words(timer: &Timer, now: Instant) -> String {
    let left_ms = timer.due.nanos_since(now) / 1_000_000;
    format!("{:?}:{left_ms}:{}", timer.kind, timer.retries)
}

fn related(what: &str, found: u64, operator: &str, value: &str) -> Result<(), String> {
    let wanted: u64 = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    let holds = match operator {
        "==" => found == wanted,
        "<=" => found <= wanted,
        ">=" => found >= wanted,
        _ => return Err(format!("`{operator}` is none of ==, <=, >=")),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{what} is {found}, which is not {operator} {wanted}"))
    }
}

fn info_field(info: &Info, field: &str) -> Result<u64, String> {
    Ok(match field {
        "rtt_ms" => info.rtt_ns / 1_000_000,
        "rto_ms" => info.rto_ns / 1_000_000,
        "congestion_window" => info.congestion_window.into(),
        "slow_start_threshold" => info.slow_start_threshold.into(),
        "segment_size" => info.segment_size.into(),
        "send_window" => info.send_window.into(),
        "unacknowledged" => info.unacknowledged.into(),
        "unsent" => info.unsent.into(),
        "unread" => info.unread.into(),
        "retransmits" => info.retransmits.into(),
        "bytes_acked" => info.bytes_acked,
        "bytes_received" => info.bytes_received,
        "timestamps" => info.timestamps.into(),
        "sack" => info.sack.into(),
        "window_scaling" => info.window_scaling.into(),
        "ecn" => info.ecn.into(),
        _ => return Err(format!("`{field}` is no field")),
    })
}

fn option(words: &[&str]) -> Result<SocketOption, String> {
    let [name, value] = *words else {
        return Err("an option and its value".into());
    };
    let small = || number(value).map(|value| value as u8);
    Ok(match name {
        "nodelay" => SocketOption::NoDelay(switch(value)?),
        "cork" => SocketOption::Cork(switch(value)?),
        "quickack" => SocketOption::QuickAck(switch(value)?),
        "keepalive" => SocketOption::Keepalive(switch(value)?),
        "urgent_inline" => SocketOption::UrgentInline(switch(value)?),
        "reuse_address" => SocketOption::ReuseAddress(switch(value)?),
        "keepalive_idle" => SocketOption::KeepaliveIdle(seconds(value)?),
        "keepalive_interval" => SocketOption::KeepaliveInterval(seconds(value)?),
        "keepalive_probes" => SocketOption::KeepaliveProbes(small()?),
        "user_timeout" => SocketOption::UserTimeout(seconds(value)?),
        "linger" => SocketOption::Linger(linger(value)?),
        "send_buffer" => SocketOption::SendBuffer(number(value)?),
        "receive_buffer" => SocketOption::ReceiveBuffer(number(value)?),
        "unsent_low_water" => SocketOption::UnsentLowWater(number(value)?),
        "low_water" => SocketOption::ReceiveLowWater(number(value)?),
        "max_segment" => SocketOption::MaxSegment(number(value)? as u16),
        "traffic_class" => SocketOption::TrafficClass(small()?),
        "fast_open" => SocketOption::FastOpen(number(value)?),
        "fast_open_connect" => SocketOption::FastOpenConnect(switch(value)?),
        "fast_open_no_cookie" => SocketOption::FastOpenNoCookie(switch(value)?),
        "defer_accept" => SocketOption::DeferAccept(number(value)?),
        "congestion" => SocketOption::Congestion(congestion(value)?),
        _ => return Err(format!("`{name}` is no option")),
    })
}

fn linger(value: &str) -> Result<Option<Duration>, String> {
    if value == "off" {
        Ok(None)
    } else {
        seconds(value).map(Some)
    }
}

/// Builds an ICMP error from a router about a packet.
fn icmp_v4(kind: &str, (code, mtu): (u8, u32), about: &[u8]) -> Result<Vec<u8>, String> {
    let about = &about[..about.len().min(28 + 20)];
    let unreachable = |code| icmpv4::Message::DestinationUnreachable {
        code,
        mtu: mtu as u16,
        original: about,
    };
    let message = match kind {
        "net_unreachable" => unreachable(0),
        "host_unreachable" => unreachable(1),
        "protocol_unreachable" => unreachable(2),
        "port_unreachable" => unreachable(3),
        "too_big" => unreachable(4),
        "unreachable" => unreachable(code),
        "parameter_problem" => icmpv4::Message::ParameterProblem {
            pointer: 0,
            code,
            original: about,
        },
        "time_exceeded" => icmpv4::Message::TimeExceeded {
            code,
            original: about,
        },
        "source_quench" => {
            let mut bytes = icmp_v4("host_unreachable", (0, 0), about)?;
            bytes[20] = 4;
            bytes[21] = 0;
            icmpv4::set_checksum(&mut bytes[20..], 0);
            return Ok(bytes);
        }
        _ => return Err(format!("`{kind}` is no ICMP error")),
    };
    let view = ipv4::View::quoted(about).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; 20 + message.len()];
    ipv4::Header {
        protocol: protocol::ICMPV4,
        payload_len: message.len() as u16,
        ..ipv4::Header::new([10, 0, 0, 254].into(), view.src())
    }
    .emit(&mut bytes);
    message.emit(&mut bytes[20..]);
    Ok(bytes)
}

fn icmp_v6(kind: &str, (code, mtu): (u8, u32), about: &[u8]) -> Result<Vec<u8>, String> {
    let about = &about[..about.len().min(1232)];
    let unreachable = |code| icmpv6::Message::DestinationUnreachable {
        code,
        original: about,
    };
    let message = match kind {
        "net_unreachable" => unreachable(0),
        "host_unreachable" => unreachable(3),
        "port_unreachable" => unreachable(4),
        "unreachable" => unreachable(code),
        "parameter_problem" => icmpv6::Message::ParameterProblem {
            pointer: 0,
            code,
            original: about,
        },
        "too_big" => icmpv6::Message::PacketTooBig { mtu, original: about },
        "time_exceeded" => icmpv6::Message::TimeExceeded {
            code,
            original: about,
        },
        _ => return Err(format!("`{kind}` is no ICMPv6 error")),
    };
    let view = ipv6::View::quoted(about).map_err(|error| error.to_string())?;
    let router = core::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);
    let len = message.len();
    let mut bytes = vec![0; 40 + len];
    ipv6::Header {
        next_header: protocol::ICMPV6,
        payload_len: len as u16,
        ..ipv6::Header::new(router, view.src())
    }
    .emit(&mut bytes);
    message.emit(router, view.src(), &mut bytes[40..]);
    Ok(bytes)
}
