//! What the program has set of a socket, for the one that takes its place.

use core::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::socklen_t;
use toehold_posix::errno::Outcome;
use toehold_posix::options::{Meaning, meaning};
use toehold_socket::Description;

use crate::answer::outcome;
use crate::{next, table};

/// The options that were set, in their order; of one that was set again, the last time counts.
///
/// Those of a connection or of a listener of the node's lie in its [`Description`], for all processes that have it.
/// Those of a socket that is the kernel's the kernel has, and this process notes them as well.
#[derive(Default)]
pub(crate) struct History {
    own: Mutex<Arc<Vec<Setting>>>,
    /// Where they are for all processes, but for those that find no room there.
    shared: Option<Description>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    level: c_int,
    name: c_int,
    value: Vec<u8>,
}

/// The levels of options that other processes see.
const LEVELS: [c_int; 4] = [
    libc::IPPROTO_IP,
    libc::SOL_SOCKET,
    libc::IPPROTO_TCP,
    libc::IPPROTO_IPV6,
];

impl Setting {
    /// Two bytes for which option it is and how long, and the value. `None`: it is longer, or of no such level.
    fn encode(&self) -> Option<Vec<u8>> {
        let level = LEVELS.iter().position(|level| *level == self.level)? as u16;
        let name = u16::from(u8::try_from(self.name).ok()?);
        let len = self.value.len();
        let head = level << 14 | name << 6 | u16::try_from(len).ok().filter(|len| *len < 64)?;
        Some([&head.to_ne_bytes()[..], &self.value].concat())
    }

    /// Those that were encoded one after the other, as far as they are whole.
    fn decode(mut bytes: &[u8]) -> Vec<Setting> {
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
fn set(settings: &mut Vec<Setting>, level: c_int, name: c_int, value: &[u8]) {
    // A linger time outlives that it counts: what was set before still says how long it is.
    let is_off = |value: &[u8]| value.iter().take(size_of::<c_int>()).all(|byte| *byte == 0);
    let adds = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && is_off(value);
    settings
        .retain(|setting| (setting.level, setting.name) != (level, name) || adds && !is_off(&setting.value));
    let value = value.to_vec();
    settings.push(Setting { level, name, value });
}

/// What was set of a listener that its connections have: as it was at some version, and for a new connection to begin
/// with.
#[derive(Default)]
pub(super) struct Legacy(Mutex<(u64, Arc<Inheritance>)>);

#[derive(Default)]
struct Inheritance {
    shared: Vec<u8>,
    own: Arc<Vec<Setting>>,
}

impl History {
    /// That of a connection or listener of the node's, for all processes that have it.
    pub(super) fn shared(description: &Description) -> History {
        History {
            own: Mutex::default(),
            shared: Some(description.clone()),
        }
    }

    /// The same of one that is new, and set as another socket.
    pub(super) fn begin(description: &Description, like: &History) -> History {
        let history = History::shared(description);
        let (bytes, rest) = like.encode();
        description.begin_notes(&bytes);
        *history.own() = rest;
        history
    }

    /// The same of a new connection of a listener's.
    pub(super) fn begin_accepted(description: &Description, listeners: &History, legacy: &Legacy) -> History {
        let history = History::shared(description);
        let version = listeners.shared.as_ref().map_or(0, Description::version);
        let mut known = legacy.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Notes that were never changed are those of version 0, with those that the listener has begun with.
        if known.0 != version + 1 {
            let (shared, own) = listeners.of_connections().encode();
            *known = (version + 1, Arc::new(Inheritance { shared, own }));
        }
        let inheritance = Arc::clone(&known.1);
        drop(known);
        description.begin_notes(&inheritance.shared);
        if !inheritance.own.is_empty() {
            *history.own() = Arc::clone(&inheritance.own);
        }
        history
    }

    /// That of a socket that was made for a protocol, which is kept as an option is that says it.
    pub(super) fn of(protocol: c_int) -> History {
        let history = History::default();
        if ![0, libc::IPPROTO_TCP].contains(&protocol) {
            history.note(libc::SOL_SOCKET, libc::SO_PROTOCOL, &protocol.to_ne_bytes());
        }
        history
    }

    /// What SO_PROTOCOL says.
    pub(super) fn protocol(&self) -> c_int {
        let settings = self.settings();
        let mut settings = settings.iter();
        let said = settings.find(|setting| is_protocol(setting.level, setting.name));
        let said = said.and_then(|setting| setting.value.first_chunk());
        said.map_or(libc::IPPROTO_TCP, |said| c_int::from_ne_bytes(*said))
    }

    fn own(&self) -> MutexGuard<'_, Arc<Vec<Setting>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What other processes see of the options, and those that find no room there.
    fn encode(&self) -> (Vec<u8>, Arc<Vec<Setting>>) {
        let (mut bytes, mut rest) = (Vec::new(), Vec::new());
        for setting in &*self.settings() {
            match setting
                .encode()
                .filter(|encoded| bytes.len() + encoded.len() <= Description::NOTES)
            {
                Some(encoded) => bytes.extend(encoded),
                None => rest.push(setting.clone()),
            }
        }
        (bytes, Arc::new(rest))
    }

    fn settings(&self) -> Arc<Vec<Setting>> {
        let own = Arc::clone(&self.own());
        let Some(description) = &self.shared else {
            return own;
        };
        let mut settings = Setting::decode(&description.notes());
        settings.extend(own.iter().cloned());
        Arc::new(settings)
    }

    pub(crate) fn note(&self, level: c_int, name: c_int, value: &[u8]) {
        if is_membership(level, name) {
            return;
        }
        // A filter lies in the program's memory, and no longer than it is set: that there is one is enough to know.
        let value = match is_filter(level, name) {
            true => &[1],
            false => value,
        };
        let Some(description) = &self.shared else {
            return set(Arc::make_mut(&mut *self.own()), level, name, value);
        };
        let is_shared = description.change_notes(|bytes| {
            let mut settings = Setting::decode(bytes);
            set(&mut settings, level, name, value);
            let encoded: Option<Vec<_>> = settings.iter().map(Setting::encode).collect();
            // What cannot be encoded finds no room.
            *bytes = encoded.map_or_else(|| vec![0; Description::NOTES + 1], |encoded| encoded.concat());
        });
        let is_other = |setting: &Setting| (setting.level, setting.name) != (level, name);
        let mut own = self.own();
        if is_shared {
            if !own.iter().all(is_other) {
                Arc::make_mut(&mut *own).retain(is_other);
            }
            return;
        }
        description.change_notes(|bytes| {
            let kept = Setting::decode(bytes).into_iter().filter(is_other);
            *bytes = kept.filter_map(|setting| setting.encode()).flatten().collect();
        });
        set(Arc::make_mut(&mut *own), level, name, value);
    }

    /// The same for another socket.
    pub(super) fn copy(&self) -> History {
        History {
            own: Mutex::new(self.settings()),
            shared: None,
        }
    }

    /// As the kernel does it: what is bound to an address of IPv6 is for IPv6 only.
    pub(super) fn note_bound(&self, at: IpAddr) {
        if at.is_ipv6() && !at.is_unspecified() {
            self.note(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32.to_ne_bytes());
        }
    }

    /// What the connections of a listener have that was set so.
    pub(super) fn of_connections(&self) -> History {
        let settings = self.settings();
        // A priority is a socket's own, whether it was set as such or as a kind of service.
        let of_priority = |setting: &Setting| {
            let named = (setting.level, setting.name);
            named == (libc::SOL_SOCKET, libc::SO_PRIORITY) || named == (libc::IPPROTO_IP, libc::IP_TOS)
        };
        let has_priority = settings.iter().any(of_priority);
        let is_opened_fast =
            |setting: &Setting| (setting.level, setting.name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);
        let has_fast = settings.iter().any(is_opened_fast);
        let mut settings = settings;
        if settings
            .iter()
            .any(|setting| is_protocol(setting.level, setting.name))
        {
            // A peer that does not know of MPTCP makes connections of TCP.
            Arc::make_mut(&mut settings).retain(|setting| !is_protocol(setting.level, setting.name));
        }
        let history = History {
            own: Mutex::new(settings),
            shared: None,
        };
        if has_fast {
            history.note(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &[0; size_of::<c_int>()]);
        }
        if has_priority {
            history.note(libc::SOL_SOCKET, libc::SO_PRIORITY, &[0; size_of::<c_int>()]);
        }
        history
    }

    /// Of what is dissolved, the kernel keeps no place to peek at.
    pub(super) fn forget_peek(&self) {
        let peek = |level, name, _: &[u8]| (level, name) == (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
        if self.any(peek) {
            self.note(libc::SOL_SOCKET, libc::SO_PEEK_OFF, &(-1_i32).to_ne_bytes());
        }
    }

    /// Whether anything was set that is such.
    pub(super) fn any(&self, is_such: impl Fn(c_int, c_int, &[u8]) -> bool) -> bool {
        let settings = self.settings();
        let mut settings = settings.iter();
        settings.any(|setting| is_such(setting.level, setting.name, &setting.value))
    }

    /// Whether a switch is on; `None` if nobody has touched it.
    pub(super) fn switch(&self, level: c_int, name: c_int) -> Option<bool> {
        let settings = self.settings();
        let mut settings = settings.iter();
        let setting = settings.find(|setting| (setting.level, setting.name) == (level, name))?;
        Some(setting.value.iter().any(|byte| *byte != 0))
    }

    /// What another process has set of a socket of the kernel's of this protocol: what is not as with a new one.
    pub(super) fn of_kernels(&self, number: c_int, domain: c_int) -> Vec<(c_int, c_int, Vec<u8>)> {
        let Ok(new) = History::of(self.protocol()).shadow(domain) else {
            return Vec::new();
        };
        let all = OPTIONS
            .iter()
            .flat_map(|(level, names)| names.iter().map(move |name| (*level, *name)));
        let set = all.filter_map(|(level, name)| {
            let value = value_of(number, level, name)?;
            (value_of(new.as_raw_fd(), level, name)? != value).then_some((level, name, value))
        });
        set.map(|(level, name, value)| (level, name, as_set(level, name, value)))
            .collect()
    }

    /// A socket of the kernel's that was set so: what it says, the kernel would say.
    pub(super) fn shadow(&self, domain: c_int) -> Outcome<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: plain numbers.
        let shadow = table::adopt(outcome(unsafe { next::socket(domain, kind, self.protocol()) })?);
        self.replay(shadow.as_raw_fd());
        Ok(shadow)
    }

    /// What it means to a node.
    pub(super) fn meanings(&self) -> Vec<Meaning> {
        let settings = self.settings();
        let meanings = settings
            .iter()
            .filter_map(|setting| meaning(setting.level, setting.name, &setting.value).ok());
        meanings.collect()
    }

    /// What of that is not the stack's affair.
    pub(super) fn other_meanings(&self) -> Vec<Meaning> {
        let mut meanings = self.meanings();
        meanings.retain(|meaning| !matches!(meaning, Meaning::Stack(_)));
        meanings
    }

    /// Sets the same of a socket of the kernel's.
    fn replay(&self, number: c_int) {
        for setting in &*self.settings() {
            let value = setting.value.as_ptr().cast::<c_void>();
            let len = setting.value.len() as socklen_t;
            // SAFETY: the value is as long as said. What the kernel does not take, it has not taken before.
            unsafe { next::setsockopt(number, setting.level, setting.name, value, len) };
        }
    }
}

/// Options that a socket of the kernel's may have from another process: all that it remembers.
const OPTIONS: [(c_int, &[c_int]); 4] = [
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_DONTROUTE,
            libc::SO_BROADCAST,
            libc::SO_SNDBUF,
            libc::SO_RCVBUF,
            libc::SO_KEEPALIVE,
            libc::SO_OOBINLINE,
            libc::SO_NO_CHECK,
            libc::SO_PRIORITY,
            libc::SO_LINGER,
            libc::SO_REUSEPORT,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_BINDTODEVICE,
            libc::SO_TIMESTAMP,
            libc::SO_TIMESTAMPNS,
            libc::SO_MARK,
            libc::SO_TIMESTAMPING,
            libc::SO_RXQ_OVFL,
            libc::SO_WIFI_STATUS,
            libc::SO_PEEK_OFF,
            libc::SO_NOFCS,
            libc::SO_LOCK_FILTER,
            libc::SO_SELECT_ERR_QUEUE,
            libc::SO_BUSY_POLL,
            libc::SO_MAX_PACING_RATE,
            libc::SO_ZEROCOPY,
            libc::SO_TXTIME,
            // Those that libc does not name: SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET, SO_RESERVE_MEM, SO_TXREHASH,
            // SO_RCVMARK.
            69,
            70,
            73,
            74,
            75,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_TOS,
            libc::IP_TTL,
            libc::IP_RECVOPTS,
            libc::IP_RETOPTS,
            libc::IP_PKTINFO,
            libc::IP_MTU_DISCOVER,
            libc::IP_RECVERR,
            libc::IP_RECVTTL,
            libc::IP_RECVTOS,
            libc::IP_FREEBIND,
            libc::IP_PASSSEC,
            libc::IP_TRANSPARENT,
            libc::IP_ORIGDSTADDR,
            libc::IP_MINTTL,
            libc::IP_CHECKSUM,
            libc::IP_BIND_ADDRESS_NO_PORT,
            libc::IP_RECVFRAGSIZE,
            libc::IP_MULTICAST_TTL,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_ALL,
            libc::IP_UNICAST_IF,
            // IP_LOCAL_PORT_RANGE.
            51,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[
            libc::IPV6_UNICAST_HOPS,
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_LOOP,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_RECVERR,
            libc::IPV6_V6ONLY,
            libc::IPV6_FLOWINFO_SEND,
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_RECVHOPLIMIT,
            libc::IPV6_RECVHOPOPTS,
            libc::IPV6_RECVRTHDR,
            libc::IPV6_RECVDSTOPTS,
            libc::IPV6_RECVPATHMTU,
            libc::IPV6_DONTFRAG,
            libc::IPV6_RECVTCLASS,
            libc::IPV6_TCLASS,
            libc::IPV6_AUTOFLOWLABEL,
            libc::IPV6_ADDR_PREFERENCES,
            libc::IPV6_MINHOPCOUNT,
            libc::IPV6_ORIGDSTADDR,
            libc::IPV6_TRANSPARENT,
            libc::IPV6_UNICAST_IF,
            libc::IPV6_RECVFRAGSIZE,
            libc::IPV6_FREEBIND,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_MAXSEG,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_SYNCNT,
            libc::TCP_LINGER2,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_WINDOW_CLAMP,
            libc::TCP_QUICKACK,
            libc::TCP_CONGESTION,
            libc::TCP_THIN_LINEAR_TIMEOUTS,
            libc::TCP_THIN_DUPACK,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_FASTOPEN,
            // TCP_NOTSENT_LOWAT, TCP_SAVE_SYN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE, TCP_INQ, TCP_TX_DELAY,
            // TCP_RTO_MAX_MS, TCP_RTO_MIN_US, TCP_DELACK_MAX_US.
            25,
            27,
            30,
            34,
            36,
            37,
            44,
            45,
            46,
        ],
    ),
];

/// What says for which protocol a socket was made.
fn is_protocol(level: c_int, name: c_int) -> bool {
    (level, name) == (libc::SOL_SOCKET, libc::SO_PROTOCOL)
}

/// What the kernel says of an option.
fn value_of(number: c_int, level: c_int, name: c_int) -> Option<Vec<u8>> {
    let mut value = vec![0; 32];
    let mut len = value.len() as socklen_t;
    // SAFETY: there is room for so many bytes.
    let got = unsafe { next::getsockopt(number, level, name, value.as_mut_ptr().cast(), &mut len) };
    value.truncate(len as usize);
    (got == 0).then_some(value)
}

/// What was said to have it so: Linux counts twice what buffers hold.
fn as_set(level: c_int, name: c_int, value: Vec<u8>) -> Vec<u8> {
    let is_buffer = level == libc::SOL_SOCKET && [libc::SO_SNDBUF, libc::SO_RCVBUF].contains(&name);
    match <[u8; 4]>::try_from(&*value) {
        Ok(bytes) if is_buffer => (c_int::from_ne_bytes(bytes) / 2).to_ne_bytes().to_vec(),
        _ => value,
    }
}

fn is_filter(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF].contains(&name)
}

/// Memberships of groups, which are a socket's own and count one by one.
fn is_membership(level: c_int, name: c_int) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use toehold_socket::SocketOption;

    #[test]
    fn memberships_are_a_sockets_own() {
        let history = History::default();
        history.note(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &[0; 8]);
        history.note(libc::IPPROTO_IP, 42, &[0; 136]);
        history.note(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &[0; 20]);
        assert!(history.settings().is_empty());
    }

    #[test]
    fn a_priority_is_a_sockets_own() {
        let history = History::default();
        assert!(history.of_connections().settings().is_empty());
        for (level, name) in [
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::SOL_SOCKET, libc::SO_PRIORITY),
        ] {
            let history = History::default();
            history.note(level, name, &[16, 0, 0, 0]);
            let of_connections = history.of_connections();
            assert_eq!(
                of_connections.switch(libc::SOL_SOCKET, libc::SO_PRIORITY),
                Some(false)
            );
        }
    }

    #[test]
    fn a_linger_time_outlives_that_it_counts() {
        let history = History::default();
        let set = |pair: [c_int; 2]| {
            let value = pair.map(c_int::to_ne_bytes).concat();
            history.note(libc::SOL_SOCKET, libc::SO_LINGER, &value);
        };
        let is = |lingers: &[Option<u64>]| {
            let lingers = lingers.iter().map(|seconds| seconds.map(Duration::from_secs));
            let expected: Vec<_> = lingers
                .map(|span| Meaning::Stack(SocketOption::Linger(span)))
                .collect();
            assert_eq!(history.meanings(), expected);
        };
        set([1, 5]);
        set([0, 7]);
        set([0, 8]);
        is(&[Some(5), None]);
        set([1, 9]);
        is(&[Some(9)]);
    }

    #[test]
    fn options_of_connection_are_seen_by_other_holders() {
        let description = Description::private();
        let [one, other] = [(); 2].map(|()| History::shared(&description));
        let priority = (libc::SOL_SOCKET, libc::SO_PRIORITY);
        one.note(priority.0, priority.1, &5_i32.to_ne_bytes());
        other.note(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &[]);
        assert_eq!(other.switch(priority.0, priority.1), Some(true));
        other.note(priority.0, priority.1, &0_i32.to_ne_bytes());
        assert_eq!(one.switch(priority.0, priority.1), Some(false));
        assert_eq!(*one.settings(), *other.settings());
        assert_eq!(one.settings().len(), 2);
        // As in a process that knows of the connection alone.
        let copied = one.copy();
        assert_eq!(
            *History::begin(&Description::private(), &copied).settings(),
            *copied.settings()
        );
    }

    #[test]
    fn options_without_room_stay_in_the_process() {
        let description = Description::private();
        let history = History::shared(&description);
        for name in 0..100 {
            history.note(libc::SOL_SOCKET, name, &name.to_ne_bytes());
        }
        history.note(libc::SOL_SOCKET, 7, &[1; 64]);
        history.note(9999, 1, &[1; 4]);
        assert_eq!(history.settings().len(), 101);
        assert_eq!(history.switch(libc::SOL_SOCKET, 7), Some(true));
        assert!(Setting::decode(&description.notes()).len() > 20);
        assert_eq!(
            History::begin(&Description::private(), &history.copy())
                .settings()
                .len(),
            101
        );
    }

    #[test]
    fn encoded_options_are_the_same_decoded_and_nonsense_is_bounded() {
        let settings: Vec<_> = LEVELS
            .iter()
            .zip([0, 63, 4, 1])
            .map(|(level, len)| Setting {
                level: *level,
                name: 255,
                value: vec![7; len],
            })
            .collect();
        let bytes: Vec<u8> = settings
            .iter()
            .flat_map(|setting| setting.encode().unwrap())
            .collect();
        assert_eq!(Setting::decode(&bytes), settings);
        for len in 0..bytes.len() {
            assert!(Setting::decode(&bytes[..len]).len() < settings.len());
        }
        assert!(Setting::decode(&[0xff; 99]).len() <= 2);
    }

    #[test]
    fn connections_of_listener_have_what_was_set_of_it_last() {
        let listener = History::shared(&Description::private());
        let legacy = Legacy::default();
        let has_nodelay = || {
            let accepted = History::begin_accepted(&Description::private(), &listener, &legacy);
            accepted.switch(libc::IPPROTO_TCP, libc::TCP_NODELAY)
        };
        assert_eq!(has_nodelay(), None);
        for value in [1, 0] {
            listener.note(libc::IPPROTO_TCP, libc::TCP_NODELAY, &[value, 0, 0, 0]);
            assert_eq!([has_nodelay(), has_nodelay()], [Some(value != 0); 2]);
        }
    }

    #[test]
    fn of_an_option_the_last_value_counts() {
        let history = History::default();
        let set = |value: c_int| history.note(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &value.to_ne_bytes());
        set(1);
        history.note(libc::IPPROTO_TCP, libc::TCP_NODELAY, &1_i32.to_ne_bytes());
        set(0);
        let expected = [
            Meaning::Stack(SocketOption::NoDelay(true)),
            Meaning::Stack(SocketOption::Keepalive(false)),
        ];
        assert_eq!(history.meanings(), expected);
        assert_eq!(history.copy().meanings(), expected);
        let keepalive = |history: &History| history.switch(libc::SOL_SOCKET, libc::SO_KEEPALIVE);
        assert_eq!(keepalive(&history), Some(false));
        assert_eq!(history.switch(libc::IPPROTO_TCP, libc::TCP_CORK), None);
        // What is set of a copy is the copy's.
        history
            .copy()
            .note(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_i32.to_ne_bytes());
        assert_eq!(keepalive(&history), Some(false));
    }
}
