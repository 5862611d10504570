//! Reports of MSG_ERRQUEUE about attempts to connect that the network has ended
//! (ip(7), IP_RECVERR).

use core::ffi::c_int;
use core::net::SocketAddr;

use libc::{AF_INET, SOL_IP, SOL_IPV6};
use toehold_stack::NetworkReport;

use crate::address;
use crate::errno::Errno;
use crate::message::Control;

/// Values of SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6.
const ORIGINS: [u8; 2] = [2, 3];

/// Returns the control message of a report for a socket of a domain:
/// `sock_extended_err`, and the sender of the ICMP message behind it.
pub fn control(report: &NetworkReport, domain: c_int) -> Control {
    let origin = ORIGINS[usize::from(report.to.is_ipv6())];
    let mut data = Errno::from(report.error).0.to_ne_bytes().to_vec();
    data.extend([origin, report.kind, report.code, 0]);
    // Further fields, which stay zero: information about the error, and data.
    data.extend([0; 8]);
    data.extend(address::bytes(SocketAddr::new(report.from, 0), domain));
    let (level, kind) = match domain {
        AF_INET => (SOL_IP, libc::IP_RECVERR),
        _ => (SOL_IPV6, libc::IPV6_RECVERR),
    };
    Control { level, kind, data }
}

/// Returns the destination of the reported packet, as a message's name.
pub fn name(report: &NetworkReport, domain: c_int) -> Vec<u8> {
    address::bytes(report.to, domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toehold_stack::SocketError;

    #[test]
    fn report_has_form_of_domain() {
        let report = NetworkReport {
            error: SocketError::HostUnreachable,
            from: "10.0.0.9".parse().unwrap(),
            kind: 3,
            code: 1,
            to: "10.0.0.7:80".parse().unwrap(),
            quoted: [0; 8],
        };
        let told = control(&report, AF_INET);
        assert_eq!((told.level, told.kind), (SOL_IP, libc::IP_RECVERR));
        assert_eq!(told.data.len(), 16 + size_of::<libc::sockaddr_in>());
        assert_eq!(told.data[..4], libc::EHOSTUNREACH.to_ne_bytes());
        assert_eq!(told.data[4..8], [2, 3, 1, 0]);
        assert_eq!(told.data[20..24], [10, 0, 0, 9]);
        assert_eq!(name(&report, AF_INET)[2..8], [0, 80, 10, 0, 0, 7]);
        let told = control(&report, libc::AF_INET6);
        assert_eq!((told.level, told.kind), (SOL_IPV6, libc::IPV6_RECVERR));
        assert_eq!(told.data.len(), 16 + size_of::<libc::sockaddr_in6>());
        assert_eq!(told.data[24..40], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x09");
    }
}
