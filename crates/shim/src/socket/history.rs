//! What the program has set of a socket, for the one that takes its place.

use core::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libc::socklen_t;
use toehold_posix::errno::Outcome;
use toehold_posix::options::{Meaning, meaning};

use crate::answer::outcome;
use crate::{next, table};

/// The options that were set, in their order; of one that was set again, the last time counts.
/// What a listener's connections have from it, they share until one of them is set.
#[derive(Default)]
pub(crate) struct History(Mutex<Arc<Vec<Setting>>>);

#[derive(Clone)]
struct Setting {
    level: c_int,
    name: c_int,
    value: Vec<u8>,
}

impl History {
    fn settings(&self) -> Arc<Vec<Setting>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note(&self, level: c_int, name: c_int, value: &[u8]) {
        if is_membership(level, name) {
            return;
        }
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = Arc::make_mut(&mut *settings);
        // A linger time outlives that it counts: what was set before still says how long it is.
        let is_off = |value: &[u8]| value.iter().take(size_of::<c_int>()).all(|byte| *byte == 0);
        let adds = (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && is_off(value);
        settings.retain(|setting| {
            (setting.level, setting.name) != (level, name) || adds && !is_off(&setting.value)
        });
        let value = value.to_vec();
        settings.push(Setting { level, name, value });
    }

    /// The same for another socket.
    pub(super) fn copy(&self) -> History {
        History(Mutex::new(self.settings()))
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
        let history = History(Mutex::new(settings));
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

    /// What another process has set of a socket of the kernel's: what is not as with a new one.
    pub(super) fn of_kernels(number: c_int, domain: c_int) -> Vec<(c_int, c_int, Vec<u8>)> {
        let Ok(new) = History::default().shadow(domain) else {
            return Vec::new();
        };
        let set = OPTIONS.iter().filter_map(|&(level, name)| {
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
        let shadow = table::adopt(outcome(unsafe { next::socket(domain, kind, 0) })?);
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

/// Options that a socket may have from another process: those that mean something to a node, or that only
/// the kernel can do something about.
const OPTIONS: [(c_int, c_int); 24] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
];

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
