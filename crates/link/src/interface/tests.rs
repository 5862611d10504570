use std::path::Path;

use super::*;

#[test]
fn impossible_names_return_error() {
    for name in [
        "",
        "a-name-too-long-by-far",
        "a/b",
        "a b",
        "..",
        "ü",
        "a%d",
        "a\0b",
    ] {
        assert!(
            matches!(check_name(name), Err(InterfaceError::BadName(_))),
            "{name}"
        );
    }
    for name in ["lo", "toe0", "a-b_c.15", "exactly-fifteen"] {
        assert!(check_name(name).is_ok(), "{name}");
    }
}

#[test]
fn loopback_device_is_visible_without_privilege() {
    let mut loopback = Interface::open(&Namespace::Own, "lo").unwrap();
    assert_eq!(loopback.index(), 1);
    let state = loopback.state().unwrap();
    assert_eq!(state.address, [0; 6]);
    assert!(state.mtu > 1500);
}

#[test]
fn missing_interface_and_namespace_are_named_in_error() {
    let error = Interface::open(&Namespace::Own, "no-such-device").unwrap_err();
    assert!(matches!(error, InterfaceError::Missing(_)));
    assert!(error.to_string().contains("no-such-device"));
    let error = Namespace::at(Path::new("/run/netns/no-such-namespace")).unwrap_err();
    assert!(error.to_string().contains("/run/netns/no-such-namespace"));
    // The file exists, but is no namespace.
    let file = Namespace::at(Path::new("/proc/self/status")).unwrap();
    let error = Interface::open(&file, "lo").unwrap_err();
    assert!(matches!(
        error,
        InterfaceError::Namespace(NamespaceError::Enter(_))
    ));
}

#[test]
#[ignore = "needs namespaces"]
fn interface_in_other_namespace_is_configured() {
    let namespace = Namespace::create().unwrap();
    let mut loopback = Interface::open(&namespace, "lo").unwrap();
    assert!(!loopback.state().unwrap().up);
    loopback.set_up(true).unwrap();
    loopback.set_mtu(4000).unwrap();
    for _ in 0..2 {
        loopback.add_address("10.1.2.3".parse().unwrap(), 24).unwrap();
        loopback.add_address("fd00::3".parse().unwrap(), 64).unwrap();
        loopback.add_route("10.9.0.0".parse().unwrap(), 16, None).unwrap();
        loopback
            .add_route("0.0.0.0".parse().unwrap(), 0, Some("10.1.2.4".parse().unwrap()))
            .unwrap();
        loopback.add_route("fd01::".parse().unwrap(), 32, None).unwrap();
    }
    let state = loopback.state().unwrap();
    assert_eq!((state.up, state.mtu), (true, 4000));
    let bound = namespace
        .run(|| std::net::UdpSocket::bind("10.1.2.3:0").map(drop))
        .unwrap();
    assert!(bound.is_ok(), "{bound:?}");
    let routed = namespace.run(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    assert_eq!(
        routed.unwrap().unwrap().ip(),
        "10.1.2.3".parse::<IpAddr>().unwrap()
    );
    let unreachable = loopback.add_route(
        "10.10.0.0".parse().unwrap(),
        16,
        Some("10.77.0.1".parse().unwrap()),
    );
    assert!(
        matches!(unreachable, Err(InterfaceError::Refused { .. })),
        "{unreachable:?}"
    );
    assert!(matches!(loopback.delete(), Err(InterfaceError::Refused { .. })));
}

#[test]
#[ignore = "needs namespaces"]
fn named_namespace_is_created_once_and_removed_by_its_id() {
    let name: NamespaceName = format!("toehold-test-{}", std::process::id()).parse().unwrap();
    let (namespace, made) = name.open_or_create().unwrap();
    assert!(made);
    assert_eq!(Interface::open(&namespace, "lo").unwrap().index(), 1);
    let (same, made) = name.open_or_create().unwrap();
    assert!(!made);
    assert_eq!(same.id(), namespace.id());
    let other = Namespace::create().unwrap();
    name.remove(other.id().unwrap()).unwrap();
    assert_eq!(
        name.open().unwrap().id(),
        namespace.id(),
        "another one's name stays"
    );
    name.remove(namespace.id().unwrap()).unwrap();
    assert!(matches!(
        name.open(),
        Err(NamespaceError::Missing(_, rustix::io::Errno::NOENT))
    ));
    name.remove(namespace.id().unwrap()).unwrap();
}

#[test]
#[ignore = "needs namespaces"]
fn namespace_at_path_is_neither_created_nor_removed() {
    let namespace = Namespace::create().unwrap();
    let Namespace::Open(descriptor) = &namespace else {
        unreachable!("the namespace was created");
    };
    let own = format!("/proc/{}", std::process::id());
    let name = |rest: &str| format!("{own}/{rest}").parse::<NamespaceName>().unwrap();
    let path = name(&format!("fd/{}", std::os::fd::AsRawFd::as_raw_fd(descriptor)));
    let (same, made) = path.open_or_create().unwrap();
    assert!(!made);
    assert_eq!(same.id(), namespace.id());
    path.remove(namespace.id().unwrap()).unwrap();
    assert_eq!(path.open().unwrap().id(), namespace.id());

    let missing = name("fd/999999").open_or_create();
    assert!(matches!(missing, Err(NamespaceError::Missing(..))));
    // Another kind of namespace, and no namespace at all.
    for rest in ["ns/mnt", "status"] {
        assert!(
            matches!(name(rest).open(), Err(NamespaceError::NotOne(_))),
            "{rest}"
        );
    }
    // A FIFO without a writer.
    let fifo = std::env::temp_dir().join(format!("toehold-fifo-{}", std::process::id()));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let opened = fifo.to_str().unwrap().parse::<NamespaceName>().unwrap().open();
    std::fs::remove_file(&fifo).unwrap();
    assert!(matches!(opened, Err(NamespaceError::NotOne(_))));
}

#[test]
fn path_must_mean_the_same_to_all_processes() {
    for path in ["/proc/1/ns/net", "/run/docker/netns/default", "/proc/selfish"] {
        assert_eq!(path.parse::<NamespaceName>().unwrap().path(), Path::new(path));
    }
    let long = format!("/{}", "a".repeat(4095));
    for path in [
        "a/b",
        "/proc/self/ns/net",
        "/proc//thread-self/ns/net",
        "/dev/fd/3",
        "/a\0b",
        &long,
    ] {
        assert!(path.parse::<NamespaceName>().is_err(), "{path:?}");
    }
}
