//! Ports of this side that the program has confined (IP_LOCAL_PORT_RANGE).

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use toehold_posix::errno::{Errno, Outcome};

/// The file with the system's range of ports.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Ports from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The system's ports, from `first` to `last` as far as these are among them.
    pub(super) fn within_systems(first: u16, last: u16) -> Ports {
        let said = std::fs::read_to_string(RANGE).unwrap_or_default();
        let mut said = said.split_whitespace().filter_map(|port| port.parse().ok());
        // What Linux begins with.
        let system = (said.next().unwrap_or(32768), said.next().unwrap_or(60999));
        Ports::within(system, first, last)
    }

    fn within((lowest, highest): (u16, u16), first: u16, last: u16) -> Ports {
        let is_within = |port| (lowest..=highest).contains(&port);
        Ports {
            first: if is_within(first) { first } else { lowest },
            last: if is_within(last) { last } else { highest },
        }
    }

    /// Begins from one of them that is free, in no order that others could foresee (RFC 6056 section 3.3.1).
    pub(super) fn first_free<T>(
        self,
        to: IpAddr,
        mut begin: impl FnMut(SocketAddr) -> Outcome<T>,
    ) -> Outcome<T> {
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let count = u32::from(self.last.saturating_sub(self.first)) + 1;
        let start = RandomState::new().hash_one(self.first) as u32;
        for step in 0..count {
            let port = self.first + (start.wrapping_add(step) % count) as u16;
            match begin(SocketAddr::new(any, port)) {
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
                begun => return begun,
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_systems_range_does_not_count() {
        let within = |first, last| {
            let ports = Ports::within((32768, 60999), first, last);
            (ports.first, ports.last)
        };
        assert_eq!(within(40000, 40010), (40000, 40010));
        assert_eq!(within(1, 40010), (32768, 40010));
        assert_eq!(within(40000, 65535), (40000, 60999));
        assert_eq!(within(0, 0), (32768, 60999));
    }

    #[test]
    fn each_port_is_tried_once_until_one_is_free() {
        let ports = Ports {
            first: 40000,
            last: 40004,
        };
        let mut tried = Vec::new();
        let done = ports.first_free(Ipv4Addr::LOCALHOST.into(), |from| {
            tried.push(from.port());
            match tried.len() {
                1..5 => Err(Errno::ADDRINUSE),
                _ => Ok(from.port()),
            }
        });
        assert_eq!(done, Ok(tried[4]));
        tried.sort_unstable();
        assert_eq!(tried, [40000, 40001, 40002, 40003, 40004]);
        let none = ports.first_free(Ipv6Addr::LOCALHOST.into(), |_| {
            Outcome::<()>::Err(Errno::ADDRINUSE)
        });
        assert_eq!(none, Err(Errno::ADDRNOTAVAIL));
        let refused = ports.first_free(Ipv6Addr::LOCALHOST.into(), |_| {
            Outcome::<()>::Err(Errno::NETUNREACH)
        });
        assert_eq!(refused, Err(Errno::NETUNREACH));
    }
}
