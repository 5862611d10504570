//! The calls of a script's program, and its checks of the stack.

mod checks;
mod icmp;
mod option;
mod outcome;

use core::net::SocketAddr;

use toehold_stack::{ConnectionId, ReceiveFlags, SendFlags, Shutdown, SocketError};

use self::option::option;
use self::outcome::{Outcome, compare};
use super::Call;
use super::compare::pattern;
use super::parse::number;
use super::run::{Connection, Named, Runner};

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
