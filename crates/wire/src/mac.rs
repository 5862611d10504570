//! Hardware addresses.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An Ethernet hardware address.
///
/// ```
/// use toehold_wire::Mac;
/// let mac: Mac = "02:00:00:00:00:2a".parse().unwrap();
/// assert_eq!(mac, Mac([2, 0, 0, 0, 0, 42]));
/// assert_eq!(mac.to_string(), "02:00:00:00:00:2a");
/// ```
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address: all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No station: the target address in an ARP request.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Returns whether the address is a multicast address. Broadcast is one.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether the address is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Returns whether the address can belong to one station.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::UNSPECIFIED
    }

    /// The hardware address of a multicast IP address. IPv4's broadcast address
    /// gives broadcast. Returns `None` if `address` is not multicast.
    pub fn for_multicast(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) if v4.is_broadcast() => Some(Self::BROADCAST),
            IpAddr::V4(v4) if v4.is_multicast() => {
                //= RFC 1112 §6.4
                let [_, b, c, d] = v4.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(v6) if v6.is_multicast() => {
                //= RFC 2464 §7
                let octets = v6.octets();
                Some(Self([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]))
            }
            _ => None,
        }
    }

    /// The link-local IPv6 address that is derived from the hardware address.
    pub fn link_local(self) -> Ipv6Addr {
        //= RFC 4291 §A
        let [a, b, c, d, e, g] = self.0;
        Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, g])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not six two-digit hexadecimal numbers between colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hardware address looks like 02:00:00:00:00:01")]
pub struct ParseMacError;

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            let hexadecimal = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !hexadecimal {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() {
            Err(ParseMacError)
        } else {
            Ok(Self(octets))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_returns_error() {
        let mac = Mac([0xde, 0xad, 0, 1, 0x7f, 0xff]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:1",
            "+2:00:00:00:00:01",
            "0g:00:00:00:00:01",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(ParseMacError), "{text}");
        }
    }

    #[test]
    fn groups_map_to_hardware_addresses() {
        let of = |text: &str| Mac::for_multicast(text.parse().unwrap()).map(|mac| mac.to_string());
        assert_eq!(of("224.128.1.2").as_deref(), Some("01:00:5e:00:01:02"));
        assert_eq!(of("255.255.255.255").as_deref(), Some("ff:ff:ff:ff:ff:ff"));
        assert_eq!(of("ff02::1:ff28:9c5a").as_deref(), Some("33:33:ff:28:9c:5a"));
        assert_eq!(of("10.0.0.1"), None);
        assert_eq!(of("fe80::1"), None);
    }

    #[test]
    fn link_local_address_is_derived() {
        //= RFC 4291 §A
        let mac = Mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(mac.link_local().to_string(), "fe80::3656:78ff:fe9a:bcde");
    }

    #[test]
    fn kinds_of_address_are_told_apart() {
        assert!(Mac::BROADCAST.is_multicast() && Mac::BROADCAST.is_broadcast());
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!Mac([3, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!Mac::UNSPECIFIED.is_unicast());
    }
}
