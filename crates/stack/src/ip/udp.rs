//! UDP datagrams that arrive. This stack receives none, and reports them to their senders.

use super::ethernet::{Arrival, dropped};
use super::icmp_error::Report;
use super::{Ingress, Ip};
use crate::counters::Counters;
use core::net::IpAddr;
use toehold_link::Checksum;
use toehold_wire::{checksum, protocol, udp};

impl Ip {
    /// Refuses the datagram of `len` bytes that begins `start` bytes behind the
    /// start of the IP header.
    #[cold]
    pub(super) fn refuse_udp<'a>(
        &mut self,
        arrival: &Arrival<'_>,
        (start, len): (usize, usize),
        (source, destination): (IpAddr, IpAddr),
        counters: &mut Counters,
    ) -> Ingress<'a> {
        let end = arrival.copy_to(&mut self.scratch).min(start + len);
        let bytes = self.scratch.get(start..end).unwrap_or(&[]);
        let Ok(datagram) = udp::View::new(bytes, bytes.len()) else {
            return dropped(&mut counters.drop_malformed);
        };
        // A link may vouch for the checksum, or an IPv4 sender omit it.
        let excused = arrival.frame.offload.checksum != Checksum::Complete
            || (source.is_ipv4() && !datagram.has_checksum());
        let pseudo_header =
            checksum::pseudo_header(source, destination, protocol::UDP, u32::from(datagram.len()));
        //= RFC 1122 §4.1.3.4
        //= RFC 8200 §8.1
        if !excused && !datagram.verify(pseudo_header, checksum::sum(datagram.payload())) {
            return dropped(&mut counters.drop_checksum);
        }
        //= RFC 1122 §4.1.3.1
        //= RFC 4443 §3.1
        self.report_arrival(arrival, Report::NoPort, counters);
        dropped(&mut counters.drop_protocol)
    }
}
