//! The counts of a node's processes about direct connections, each process's in a line of its own.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use toehold_shm::{Carver, OutOfMemory, Words};

use crate::control::Counter;

/// Lines: one for each process of a node, by its number, and the first for those that have ended.
const LINES: usize = 1 << 13;

/// Words of a line.
const WORDS: usize = 16;

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident $word:literal,)+) => {
        /// A counter of direct connections.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Count {
            $($(#[doc = $doc])+ $name,)+
        }

        /// Names and sentences of the counters, in order.
        const ALL: &[(&str, &str)] = &[$(($word, concat!($($doc),+)),)+];
    };
}

counts! {
    /// Direct connections opened.
    Opened "direct_opened",
    /// Direct connections accepted.
    Accepted "direct_accepted",
    /// Bytes written to direct connections.
    BytesSent "direct_bytes_sent",
    /// Bytes read from direct connections.
    BytesReceived "direct_bytes_received",
    /// Threads of peers woken.
    Rings "direct_rings",
    /// Times a thread slept for direct connections.
    Sleeps "direct_sleeps",
    /// Times a thread looked for what might have come before it slept.
    Looks "direct_looks",
    /// Direct connections reset because the peer broke a rule of the memory.
    Offences "direct_offences",
    /// Connections made over TCP because the peer lists no such listener.
    TcpUnlisted "direct_tcp_unlisted",
    /// Connections made over TCP because no number of a bank was free.
    TcpNumbers "direct_tcp_numbers",
    /// Connections made over TCP because the listener's queue was full.
    TcpQueue "direct_tcp_queue",
    /// Connections made over TCP because the memory could not be mapped.
    TcpMemory "direct_tcp_memory",
    /// Connections made over TCP because no port was free for a direct one.
    TcpPorts "direct_tcp_ports",
    /// Connections made over TCP because the node's bound of payload memory was reached.
    TcpPayload "direct_tcp_payload",
}

const _: () = assert!(ALL.len() <= WORDS);

/// Handles of the counters, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    words: Words<AtomicU64>,
}

impl Counts {
    pub(crate) fn bytes_needed() -> usize {
        Words::wide_bytes_needed(LINES * WORDS)
    }

    pub(crate) fn create(carver: &mut Carver) -> Result<Counts, OutOfMemory> {
        Ok(Counts {
            words: carver.wide_words(LINES * WORDS)?,
        })
    }

    fn word(&self, process: u16, count: usize) -> Option<&AtomicU64> {
        self.words.get(usize::from(process) % LINES * WORDS + count)
    }

    /// Adds to a counter of a process.
    #[inline]
    pub(crate) fn add(&self, process: u16, count: Count, more: u64) {
        if let Some(word) = self.word(process, count as usize) {
            word.fetch_add(more, Relaxed);
        }
    }

    /// Adds the counts of a process that has ended to the node's. Its number may be another one's
    /// soon.
    pub(crate) fn forget(&self, process: u16) {
        for count in 0..ALL.len() {
            if let (Some(word), Some(sum)) = (self.word(process, count), self.word(0, count)) {
                sum.fetch_add(word.swap(0, Relaxed), Relaxed);
            }
        }
    }

    /// The sums of these processes and of those that have ended.
    pub(crate) fn sums(&self, processes: impl Iterator<Item = u16> + Clone) -> Vec<Counter> {
        let sum = |count| {
            let all = processes.clone().chain([0]);
            let words = all.filter_map(|process| self.word(process, count));
            words.fold(0_u64, |sum, word| sum.wrapping_add(word.load(Relaxed)))
        };
        let counters = ALL.iter().enumerate();
        counters
            .map(|(count, (name, doc))| Counter {
                name: (*name).to_owned(),
                value: sum(count),
                doc: doc.trim().to_owned(),
                shard: None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    #[test]
    fn counts_of_processes_are_summed_also_after_their_end() {
        let region = Region::private(Counts::bytes_needed()).unwrap();
        let counts = Counts::create(&mut Carver::new(region).unwrap()).unwrap();
        counts.add(2, Count::Opened, 3);
        counts.add(3, Count::Opened, 4);
        counts.add(3, Count::TcpPayload, 1);
        let value = |processes: &[u16], name: &str| {
            let sums = counts.sums(processes.iter().copied());
            sums.iter().find(|counter| counter.name == name).unwrap().value
        };
        assert_eq!(value(&[2, 3], "direct_opened"), 7);
        counts.forget(3);
        assert_eq!(value(&[2], "direct_opened"), 7);
        assert_eq!(value(&[2, 3], "direct_tcp_payload"), 1);
        assert_eq!(value(&[2], "direct_accepted"), 0);
        let sums = counts.sums([2].into_iter());
        assert!(
            sums.iter()
                .all(|counter| counter.doc.ends_with('.') && !counter.doc.starts_with(' '))
        );
    }
}
