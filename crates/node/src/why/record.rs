//! Programs that are not on their node: the reports to the engine, and its records of them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Reason;

/// Most records of one node. Later ones are only counted.
const MAX_RECORDS: usize = 64;

/// Bytes of a program's name, at most; more is cut.
const MAX_COMMAND: usize = 200;

/// A process's report to its node's engine, about itself or a program that it is about to begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The program's file or name.
    pub command: String,
    /// The process, by its number in its own PID namespace; for people only.
    pub pid: u32,
    /// The reason why the program is not on the node.
    pub reason: Reason,
}

impl Report {
    /// Bytes of a report as it is told, at most.
    pub const MAX_LEN: usize = 1024;

    /// A report of a program, whose name is cut to what fits.
    pub fn new(command: &str, pid: u32, reason: Reason) -> Report {
        Report {
            command: printable(command),
            pid,
            reason,
        }
    }

    /// The report as it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a report; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Report> {
        let report: Report = serde_json::from_slice(bytes).ok()?;
        Some(Report::new(&report.command, report.pid, report.reason))
    }
}

/// The text without characters that could be more than text on a terminal, and not too long.
fn printable(text: &str) -> String {
    let mut len = 0;
    text.chars()
        .map(|character| match character.is_control() {
            true => '?',
            false => character,
        })
        .take_while(|character| {
            len += character.len_utf8();
            len <= MAX_COMMAND
        })
        .collect()
}

/// A program that is not on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unaccelerated {
    /// The program's file or name.
    pub command: String,
    /// The reason why it is not on the node.
    pub reason: Reason,
    /// The process that was told of last, by its number in its own PID namespace.
    pub pid: u32,
    /// How often it was told.
    pub times: u64,
    /// When it was told first, in seconds since 1970.
    pub since: u64,
}

/// An engine's records: each program and reason once.
#[derive(Debug, Default)]
pub(crate) struct Records {
    records: Vec<Unaccelerated>,
    /// Reports that found no room.
    beyond: u64,
}

impl Records {
    /// Takes a report. Returns whether it is the first one of its program and reason.
    pub(crate) fn add(&mut self, report: Report) -> bool {
        let Report { command, pid, reason } = report;
        let known = |record: &&mut Unaccelerated| record.reason == reason && record.command == command;
        if let Some(record) = self.records.iter_mut().find(known) {
            record.pid = pid;
            record.times = record.times.saturating_add(1);
            return false;
        }
        if self.records.len() >= MAX_RECORDS {
            self.beyond = self.beyond.saturating_add(1);
            return false;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.records.push(Unaccelerated {
            command,
            reason,
            pid,
            times: 1,
            since: since.map_or(0, |since| since.as_secs()),
        });
        true
    }

    /// All records, in the order in which they came.
    pub(crate) fn all(&self) -> &[Unaccelerated] {
        &self.records
    }

    /// Reports that found no room.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_taken_once_and_counted() {
        let mut records = Records::default();
        let report = |command: &str, pid| Report::new(command, pid, Reason::Go);
        assert!(records.add(report("./gox", 7)));
        assert!(!records.add(report("./gox", 8)));
        assert!(records.add(Report::new("./gox", 8, Reason::Static)));
        let all = records.all();
        assert_eq!((all[0].pid, all[0].times), (8, 2));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn reports_beyond_the_bound_are_counted() {
        let mut records = Records::default();
        for number in 0..MAX_RECORDS + 3 {
            records.add(Report::new(&number.to_string(), 1, Reason::NoPreload));
        }
        assert_eq!((records.all().len(), records.beyond()), (MAX_RECORDS, 3));
    }

    #[test]
    fn report_with_a_hostile_name_is_cut_and_printable() {
        let hostile = format!("\u{1b}[2J{}", "é".repeat(5000));
        let bytes = serde_json::to_vec(&Report {
            command: hostile,
            pid: 1,
            reason: Reason::Static,
        });
        let report = Report::parse(&bytes.unwrap()).unwrap();
        assert!(report.command.starts_with("?[2Jé") && report.command.len() <= MAX_COMMAND);
        assert!(report.to_bytes().len() <= Report::MAX_LEN);
        assert_eq!(Report::parse(b"{}"), None);
        assert_eq!(Report::parse(b"\xff"), None);
    }
}
