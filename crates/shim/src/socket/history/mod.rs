//! The options that the program has set of a socket, for the socket that takes its place.

mod kernel;
mod setting;

use core::ffi::c_int;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toehold_posix::options::{Meaning, meaning};
use toehold_socket::Description;

use self::setting::{Setting, is_filter, is_membership, is_protocol, set};

/// The options that were set, in their order; of one that was set again, the last time counts.
///
/// The options of a connection or of a listener of the node's lie in its [`Description`], for all
/// processes that have it. The kernel has the options of a socket of its own, and this process
/// notes them as well.
#[derive(Default)]
pub(crate) struct History {
    own: Mutex<Arc<Vec<Setting>>>,
    /// The description that has them for all processes, but for those that find no room there.
    shared: Option<Description>,
}

/// The options of a listener that its connections have: as they were at some version, and for a new
/// connection to begin with.
#[derive(Default)]
pub(super) struct Legacy(Mutex<(u64, Arc<Inheritance>)>);

#[derive(Default)]
struct Inheritance {
    shared: Vec<u8>,
    own: Arc<Vec<Setting>>,
}

impl History {
    /// The history of a connection or listener of the node's, for all processes that have it.
    pub(super) fn shared(description: &Description) -> History {
        History {
            own: Mutex::default(),
            shared: Some(description.clone()),
        }
    }

    /// The history of a new connection or listener, with the options of another socket.
    pub(super) fn begin(description: &Description, like: &History) -> History {
        let history = History::shared(description);
        let (bytes, rest) = like.encode();
        description.begin_notes(&bytes);
        *history.own() = rest;
        history
    }

    /// The history of a new connection of a listener's.
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

    /// The history of a socket that was made for a protocol. The protocol is kept as the option
    /// that reports it.
    pub(super) fn of(protocol: c_int) -> History {
        let history = History::default();
        if ![0, libc::IPPROTO_TCP].contains(&protocol) {
            history.note(libc::SOL_SOCKET, libc::SO_PROTOCOL, &protocol.to_ne_bytes());
        }
        history
    }

    /// The value of SO_PROTOCOL.
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

    /// The options that other processes see, as bytes, and those that find no room there.
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

    /// A copy of the options, for another socket.
    pub(super) fn copy(&self) -> History {
        History {
            own: Mutex::new(self.settings()),
            shared: None,
        }
    }

    /// Notes that a socket that is bound to an address of IPv6 is for IPv6 only, as the kernel
    /// does.
    pub(super) fn note_bound(&self, at: IpAddr) {
        if at.is_ipv6() && !at.is_unspecified() {
            self.note(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32.to_ne_bytes());
        }
    }

    /// The options of a listener that its connections have.
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

    /// Forgets the place to peek at, as the kernel does of a connection that is dissolved.
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

    /// Whether a switch is on; `None` if the program has not set it.
    pub(super) fn switch(&self, level: c_int, name: c_int) -> Option<bool> {
        let settings = self.settings();
        let mut settings = settings.iter();
        let setting = settings.find(|setting| (setting.level, setting.name) == (level, name))?;
        Some(setting.value.iter().any(|byte| *byte != 0))
    }

    /// The options as a node understands them.
    pub(super) fn meanings(&self) -> Vec<Meaning> {
        let settings = self.settings();
        let meanings = settings
            .iter()
            .filter_map(|setting| meaning(setting.level, setting.name, &setting.value).ok());
        meanings.collect()
    }

    /// The settings among those that are not the stack's.
    pub(super) fn other_meanings(&self) -> Vec<Meaning> {
        let mut meanings = self.meanings();
        meanings.retain(|meaning| !matches!(meaning, Meaning::Stack(_)));
        meanings
    }
}

#[cfg(test)]
mod tests;
