//! Work that the kernel leaves to the other end of a TAP device.

use serde::{Deserialize, Serialize};

/// Kinds of frames that the kernel may pass unfinished. Super-frames need
/// `checksum`: the kernel fills checksums in when it cuts a super-frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offloads {
    /// Checksums of TCP and UDP.
    pub checksum: bool,
    /// Super-frames of TCP over IPv4.
    pub tcp_v4: bool,
    /// Super-frames of TCP over IPv6.
    pub tcp_v6: bool,
    /// Super-frames of TCP with ECN (RFC 3168).
    pub tcp_ecn: bool,
    /// Super-frames of UDP, over IPv4 and IPv6 (Linux 6.2 on).
    pub udp: bool,
}

impl Offloads {
    /// All offloads.
    pub const ALL: Offloads = Offloads {
        checksum: true,
        tcp_v4: true,
        tcp_v6: true,
        tcp_ecn: true,
        udp: true,
    };

    /// No offloads: frames arrive complete and at most as long as the MTU.
    pub const NONE: Offloads = Offloads {
        checksum: false,
        tcp_v4: false,
        tcp_v6: false,
        tcp_ecn: false,
        udp: false,
    };

    /// Removes offloads that need a missing one.
    pub(super) fn consistent(self) -> Offloads {
        let tcp = self.tcp_v4 || self.tcp_v6;
        Offloads {
            checksum: self.checksum,
            tcp_v4: self.checksum && self.tcp_v4,
            tcp_v6: self.checksum && self.tcp_v6,
            tcp_ecn: self.checksum && tcp && self.tcp_ecn,
            udp: self.checksum && self.udp,
        }
    }

    /// Removes the offload that the fewest kernels have. Returns `None` if none was
    /// left.
    pub(super) fn reduced(mut self) -> Option<Offloads> {
        let order = [
            &mut self.udp,
            &mut self.tcp_ecn,
            &mut self.tcp_v6,
            &mut self.tcp_v4,
            &mut self.checksum,
        ];
        let last = order.into_iter().find(|offload| **offload)?;
        *last = false;
        Some(self)
    }

    /// Encodes the offloads for the kernel.
    pub(super) fn flags(self) -> libc::c_uint {
        let Offloads {
            checksum,
            tcp_v4,
            tcp_v6,
            tcp_ecn,
            udp,
        } = self;
        let flag = |set: bool, flag| if set { flag } else { 0 };
        flag(checksum, libc::TUN_F_CSUM)
            | flag(tcp_v4, libc::TUN_F_TSO4)
            | flag(tcp_v6, libc::TUN_F_TSO6)
            | flag(tcp_ecn, libc::TUN_F_TSO_ECN)
            // The kernel takes both of them or none.
            | flag(udp, libc::TUN_F_USO4 | libc::TUN_F_USO6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduced_gives_offloads_up_one_by_one() {
        let mut offloads = Offloads::ALL;
        let mut flags = vec![offloads.flags()];
        while let Some(fewer) = offloads.reduced() {
            offloads = fewer;
            assert_eq!(offloads, offloads.consistent());
            flags.push(offloads.flags());
        }
        assert_eq!(offloads, Offloads::NONE);
        assert_eq!(flags, [0x6f, 0x0f, 0x07, 0x03, 0x01, 0]);
    }

    #[test]
    fn offloads_without_checksums_are_none() {
        let without = Offloads {
            checksum: false,
            ..Offloads::ALL
        };
        assert_eq!(without.consistent(), Offloads::NONE);
    }
}
