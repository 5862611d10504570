//! Records: which connection a number of a bank stands for.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::bank::RecordLine;
use crate::futex::{AtomicU64, fence};

/// A listener of a node, as long as its last holder has not closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    /// Number of the listener, and of its queue in every bank.
    pub number: u16,
    /// Tells this listener from earlier ones of the number.
    pub generation: u64,
}

/// An end's facts about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Tells this connection from earlier ones of the number; never 0.
    pub generation: u32,
    /// Address of the end that says it.
    pub local: SocketAddr,
    /// Address of the other end, of the same family.
    pub remote: SocketAddr,
    /// The listener that the connection is offered to; `None` at the accepting end.
    pub listener: Option<ListenerId>,
    /// Options, as the sockets above define them.
    pub options: u64,
    /// Initial sequence number, for recordings.
    pub iss: u32,
    /// When the end was opened, in nanoseconds on the monotonic clock.
    pub opened_ns: u64,
}

const NO_LISTENER: u64 = u64::MAX;

/// An address as two words and its family: 4 or 6.
pub(super) fn address_words(address: IpAddr) -> ([u64; 2], u64) {
    match address {
        IpAddr::V4(address) => ([u64::from(address.to_bits()), 0], 4),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            ([bits as u64, (bits >> 64) as u64], 6)
        }
    }
}

/// The address that two words stand for; `None` if the family is unknown.
pub(super) fn address_of(words: [u64; 2], family: u64) -> Option<IpAddr> {
    match family {
        4 => Some(IpAddr::V4(Ipv4Addr::from_bits(words[0] as u32))),
        6 => {
            let bits = u128::from(words[0]) | u128::from(words[1]) << 64;
            Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
        }
        _ => None,
    }
}

fn load(words: &[AtomicU64; 2]) -> [u64; 2] {
    [words[0].load(Relaxed), words[1].load(Relaxed)]
}

fn store(words: &[AtomicU64; 2], values: [u64; 2]) {
    words[0].store(values[0], Relaxed);
    words[1].store(values[1], Relaxed);
}

impl RecordLine {
    /// Writes a record, the generation last. Only the end's node may call it.
    pub(super) fn write(&self, record: &Record) {
        self.generation.store(0, Relaxed);
        fence(Release);
        let (local, family) = address_words(record.local.ip());
        let (remote, _) = address_words(record.remote.ip());
        store(&self.local, local);
        store(&self.remote, remote);
        let ports = u64::from(record.local.port()) | u64::from(record.remote.port()) << 16;
        self.ports.store(ports | family << 32, Relaxed);
        let listener = record.listener.map_or((NO_LISTENER, 0), |listener| {
            (u64::from(listener.number), listener.generation)
        });
        self.listener.store(listener.0, Relaxed);
        self.listener_generation.store(listener.1, Relaxed);
        self.options.store(record.options, Relaxed);
        self.iss.store(u64::from(record.iss), Relaxed);
        self.opened_ns.store(record.opened_ns, Relaxed);
        self.generation.store(u64::from(record.generation), Release);
    }

    /// Copies the record of that generation. `None` if the number stands for another connection
    /// by now, or the words make no record.
    pub(super) fn read(&self, generation: u32) -> Option<Record> {
        let is_current = |found: u64| generation != 0 && found == u64::from(generation);
        if !is_current(self.generation.load(Acquire)) {
            return None;
        }
        let (local, remote) = (load(&self.local), load(&self.remote));
        let ports = self.ports.load(Relaxed);
        let listener = self.listener.load(Relaxed);
        let listener_generation = self.listener_generation.load(Relaxed);
        let options = self.options.load(Relaxed);
        let iss = self.iss.load(Relaxed) as u32;
        let opened_ns = self.opened_ns.load(Relaxed);
        fence(Acquire);
        if !is_current(self.generation.load(Relaxed)) {
            return None;
        }
        let family = ports >> 32;
        let listener = match listener {
            NO_LISTENER => None,
            number => Some(ListenerId {
                number: u16::try_from(number).ok()?,
                generation: listener_generation,
            }),
        };
        Some(Record {
            generation,
            local: SocketAddr::new(address_of(local, family)?, ports as u16),
            remote: SocketAddr::new(address_of(remote, family)?, (ports >> 16) as u16),
            listener,
            options,
            iss,
            opened_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            generation: 7,
            local: "10.0.0.1:4000".parse().unwrap(),
            remote: "10.0.0.2:80".parse().unwrap(),
            listener: Some(ListenerId {
                number: 3,
                generation: 1 << 40,
            }),
            options: 5,
            iss: u32::MAX,
            opened_ns: 9,
        }
    }

    #[test]
    fn record_written_is_read_by_its_generation_alone() {
        let line = RecordLine::default();
        assert_eq!(line.read(0), None);
        line.write(&record());
        assert_eq!(line.read(7), Some(record()));
        assert_eq!(line.read(6), None);
        let six = Record {
            local: "[fd00::1]:1".parse().unwrap(),
            remote: "[fd00::2]:65535".parse().unwrap(),
            listener: None,
            generation: 8,
            ..record()
        };
        line.write(&six);
        assert_eq!((line.read(7), line.read(8)), (None, Some(six)));
    }

    #[test]
    fn record_of_an_unknown_family_is_none() {
        let line = RecordLine::default();
        line.write(&record());
        line.ports.store(5 << 32, Relaxed);
        assert_eq!(line.read(7), None);
        line.ports.store(4 << 32, Relaxed);
        line.listener.store(1 << 16, Relaxed);
        assert_eq!(line.read(7), None);
    }
}
