//! Sockets get the options that are noted.

use core::time::Duration;

use toehold_socket::SocketOption;

use super::setting::LEVELS;
use super::*;

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
