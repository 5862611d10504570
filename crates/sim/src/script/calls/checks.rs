//! Checks of the stack: what connections, counters and timers are.

use toehold_stack::{Info, Instant, SocketError, State, Timer};

use crate::script::run::Runner;

impl Runner {
    /// Runs a check of the stack.
    pub(super) fn look(&mut self, verb: &str, words: &[&str]) -> Result<(), String> {
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
