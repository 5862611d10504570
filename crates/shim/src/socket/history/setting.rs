//! An option that was set, and how it lies in the memory that processes share.

use core::ffi::c_int;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) level: c_int,
    pub(super) name: c_int,
    pub(super) value: Vec<u8>,
}

/// The levels of options that other processes see.
pub(super) const LEVELS: [c_int; 4] = [
    libc::IPPROTO_IP,
    libc::SOL_SOCKET,
    libc::IPPROTO_TCP,
    libc::IPPROTO_IPV6,
];

impl Setting {
    /// Two bytes for which option it is and how long, and the value. Returns `None` if it is
    /// longer, or of no such level.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let level = LEVELS.iter().position(|level| *level == self.level)? as u16;
        let name = u16::from(u8::try_from(self.name).ok()?);
        let len = self.value.len();
        let head = level << 14 | name << 6 | u16::try_from(len).ok().filter(|len| *len < 64)?;
        Some([&head.to_ne_bytes()[..], &self.value].concat())
    }

    /// The options that were encoded one after the other, as far as they are whole.
    pub(super) fn decode(mut bytes: &[u8]) -> Vec<Setting> {
        let mut settings = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
            let head = u16::from_ne_bytes(*head);
            let Some((value, rest)) = rest.split_at_checked(usize::from(head & 63)) else {
                break;
            };
            settings.push(Setting {
                level: LEVELS[usize::from(head >> 14)],
                name: c_int::from(head >> 6 & 0xff),
                value: value.to_vec(),
            });
            bytes = rest;
        }
        settings
    }
}

/// Sets one of them.
pub(super) fn set(settings: &mut Vec<Setting>, level: c_int, name: c_int, value: &[u8]) {
    // A linger time outlives that it counts: what was set before still says how long it is.
    let is_off = |value: &[u8]| value.iter().take(size_of::<c_int>()).all(|byte| *byte == 0);
    let adds = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && is_off(value);
    settings
        .retain(|setting| (setting.level, setting.name) != (level, name) || adds && !is_off(&setting.value));
    let value = value.to_vec();
    settings.push(Setting { level, name, value });
}

/// Whether an option says for which protocol a socket was made.
pub(super) fn is_protocol(level: c_int, name: c_int) -> bool {
    (level, name) == (libc::SOL_SOCKET, libc::SO_PROTOCOL)
}

pub(super) fn is_filter(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF].contains(&name)
}

/// Memberships of groups, which are a socket's own and count one by one.
pub(super) fn is_membership(level: c_int, name: c_int) -> bool {
    // MCAST_JOIN_GROUP to MCAST_LEAVE_SOURCE_GROUP, for both families.
    let any = (42..=47).contains(&name);
    match level {
        libc::IPPROTO_IP => {
            any || (libc::IP_ADD_MEMBERSHIP..=libc::IP_DROP_SOURCE_MEMBERSHIP).contains(&name)
        }
        libc::IPPROTO_IPV6 => {
            let own = [
                libc::IPV6_ADD_MEMBERSHIP,
                libc::IPV6_DROP_MEMBERSHIP,
                libc::IPV6_JOIN_ANYCAST,
                libc::IPV6_LEAVE_ANYCAST,
            ];
            any || own.contains(&name)
        }
        _ => false,
    }
}
