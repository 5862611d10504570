use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;

use ipnet::IpNet;
use tempfile::TempDir;
use toehold_wire::Mac;

use super::location::open_named;
use super::{
    CONTROL, Fabric, FabricError, LINK, NodeRecord, Place, RECORD, ResolveError, TakeError, mac_of_name,
};
use crate::settings::NodeSettings;

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("toehold-fabric-")
        .tempdir()
        .unwrap()
}

fn open(directory: &TempDir) -> Fabric {
    Fabric::open(directory.path().to_str().unwrap()).unwrap()
}

fn take_with(
    directory: &TempDir,
    name: &str,
    change: impl FnOnce(&mut NodeSettings),
) -> Result<Place, TakeError> {
    let mut settings = NodeSettings::default();
    change(&mut settings);
    open(directory).take(name, &settings, &[])
}

fn take(directory: &TempDir, name: &str) -> Place {
    take_with(directory, name, |_| {}).unwrap()
}

/// Ends a node as SIGKILL does: its sockets close, its files stay.
fn kill(mut place: Place) {
    place.files.clear();
}

fn addresses(record: &NodeRecord) -> (String, String) {
    (record.ipv4.to_string(), record.ipv6.to_string())
}

fn files(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn nodes_get_the_lowest_free_addresses_and_are_found_by_name() {
    let directory = directory();
    let web = take(&directory, "web");
    let db = take(&directory, "db");
    assert_eq!(
        addresses(web.record()),
        ("10.77.0.1/16".into(), "fd77::1/64".into())
    );
    assert_eq!(
        addresses(db.record()),
        ("10.77.0.2/16".into(), "fd77::2/64".into())
    );
    assert_eq!(web.record().mac, mac_of_name("web"));
    let fabric = open(&directory);
    assert_eq!(fabric.resolve("db").unwrap(), *db.record());
    assert_eq!(fabric.nodes(), [db.record().clone(), web.record().clone()]);
    drop(web);
    assert!(matches!(fabric.resolve("web"), Err(ResolveError::Unknown { .. })));
    assert_eq!(take(&directory, "app").record().ipv4.to_string(), "10.77.0.1/16");
    drop(db);
    assert_eq!(files(&directory), [""; 0]);
}

#[test]
fn given_addresses_are_kept_and_clashes_refused() {
    let directory = directory();
    let web = take_with(&directory, "web", |settings| {
        settings.ipv4 = Some("192.168.7.9/24".parse().unwrap());
        settings.mac = Some("02:00:00:00:00:07".parse().unwrap());
    });
    let web = web.unwrap();
    // Its address is not of the fabric's network, so it has no number there.
    assert_eq!(
        addresses(web.record()),
        ("192.168.7.9/24".into(), "fd77::1/64".into())
    );
    for clash in [
        |settings: &mut NodeSettings| settings.ipv4 = Some("192.168.7.9/16".parse().unwrap()),
        |settings: &mut NodeSettings| settings.ipv6 = Some("fd77::1/64".parse().unwrap()),
        |settings: &mut NodeSettings| settings.mac = Some("02:00:00:00:00:07".parse().unwrap()),
    ] {
        let said = take_with(&directory, "db", clash).unwrap_err().to_string();
        assert!(said.starts_with("node web has the address"), "{said}");
    }
    // 10.77.0.1 would go with fd77::1, which is taken.
    let db = take(&directory, "db");
    assert_eq!(
        addresses(db.record()),
        ("10.77.0.1/16".into(), "fd77::2/64".into())
    );
}

#[test]
fn hardware_addresses_of_names_that_clash_differ_all_the_same() {
    let directory = directory();
    let db = mac_of_name("db");
    let _web = take_with(&directory, "web", |settings| settings.mac = Some(db)).unwrap();
    let given = take(&directory, "db").record().mac;
    assert!(given != db && given.is_unicast());
    assert_eq!(given.0[..4], db.0[..4]);
    assert_ne!(given, Mac::UNSPECIFIED);
}

#[test]
fn the_first_node_chooses_the_networks() {
    let directory = directory();
    let networks: [IpNet; 2] = ["10.9.8.0/30".parse().unwrap(), "fd00:9::/64".parse().unwrap()];
    let settings = NodeSettings::default();
    let a = open(&directory).take("a", &settings, &networks).unwrap();
    assert_eq!(
        addresses(a.record()),
        ("10.9.8.1/30".into(), "fd00:9::1/64".into())
    );
    let b = take(&directory, "b");
    assert_eq!(b.record().ipv4.to_string(), "10.9.8.2/30");
    let full = take_with(&directory, "c", |_| {}).unwrap_err();
    assert!(
        full.to_string()
            .contains("network 10.9.8.0/30 has no address left")
    );
    let other = ["10.1.0.0/16".parse().unwrap()];
    let refused = open(&directory).take("c", &settings, &other).unwrap_err();
    assert!(matches!(refused, TakeError::OtherNetworks(_)), "{refused}");
    drop((a, b));
    let c = open(&directory).take("c", &settings, &other).unwrap();
    assert_eq!(
        addresses(c.record()),
        ("10.1.0.1/16".into(), "fd00:9::1/64".into())
    );
}

#[test]
fn a_name_is_taken_while_its_node_lives() {
    let directory = directory();
    let web = take(&directory, "web");
    let again = take_with(&directory, "web", |_| {}).unwrap_err();
    assert!(matches!(again, TakeError::NameInUse(_)), "{again}");
    for bad in ["", ".", "..", ".hidden", "a/b", "a b", "ä", &"x".repeat(64)] {
        let refused = take_with(&directory, bad, |_| {}).unwrap_err();
        assert!(matches!(refused, TakeError::Name(_)), "{bad}: {refused}");
    }
    drop(web);
    take(&directory, "web");
}

#[test]
fn what_a_killed_node_leaves_is_ignored_and_swept() {
    let directory = directory();
    let places = ["web", "db"].map(|name| take(&directory, name));
    places.into_iter().for_each(kill);
    assert_eq!(files(&directory), ["db.ctl", "db.json", "web.ctl", "web.json"]);
    let fabric = open(&directory);
    assert!(fabric.nodes().is_empty());
    assert!(fabric.resolve("web").is_err());
    let db = take(&directory, "db");
    assert_eq!(db.record().ipv4.to_string(), "10.77.0.1/16");
    fabric.sweep().unwrap();
    assert_eq!(files(&directory), ["db.ctl", "db.json"]);
}

#[test]
fn sweeping_takes_a_dead_link_along_and_leaves_a_living_one() {
    let directory = directory();
    let places = ["dead", "living"].map(|name| take(&directory, name));
    places.into_iter().for_each(kill);
    let fabric = open(&directory);
    let link = |name: &str| {
        let socket = super::socket(rustix::net::SocketFlags::empty()).unwrap();
        rustix::net::bind(&socket, &fabric.address(&name.parse().unwrap(), LINK).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        socket
    };
    let _living = link("living");
    drop(link("dead"));
    fabric.sweep().unwrap();
    assert_eq!(files(&directory), ["living.sock"]);
    let refused = take_with(&directory, "living", |_| {}).unwrap_err();
    assert!(matches!(refused, TakeError::NameInUse(_)), "{refused}");
}

#[test]
fn a_node_that_is_on_its_way_out_is_not_found_but_keeps_its_name() {
    let directory = directory();
    let mut web = take(&directory, "web");
    web.withdraw();
    assert_eq!(files(&directory), ["web.ctl"]);
    assert!(open(&directory).resolve("web").is_err());
    assert!(take_with(&directory, "web", |_| {}).is_err());
}

#[test]
fn another_nodes_files_are_never_removed() {
    let directory = directory();
    let web = take(&directory, "web");
    let record = directory.path().join("web.json");
    fs::remove_file(&record).unwrap();
    fs::write(&record, "another's").unwrap();
    drop(web);
    assert_eq!(files(&directory), ["web.json"]);
}

#[test]
fn hostile_files_are_passed_over() {
    let directory = directory();
    let web = take(&directory, "web");
    let genuine = fs::read(directory.path().join("web.json")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("garbage.json", b"\xff\x00{{{");
    write("nested.json", "[".repeat(4000).as_bytes());
    write("empty.json", b"");
    // A record under another name than its own, with and without a socket.
    write("copy.json", &genuine);
    write("noise.ctl", b"no socket");
    write("noise.json", &genuine);
    let mut large = genuine.clone();
    large.extend([b' '; 8192]);
    write("large.json", &large);
    write(".hidden.json", &genuine);
    write("in valid.json", &genuine);
    symlink("/dev/zero", directory.path().join("zero.json")).unwrap();
    symlink("web.json", directory.path().join("link.json")).unwrap();
    fs::create_dir(directory.path().join("folder.json")).unwrap();
    let fifo = directory.path().join("fifo.json");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let fabric = open(&directory);
    assert_eq!(fabric.nodes(), [web.record().clone()]);
    for name in [
        "garbage", "copy", "noise", "large", "zero", "link", "folder", "fifo", "../web", "",
    ] {
        assert!(fabric.resolve(name).is_err(), "{name}");
    }
    let db = take(&directory, "db");
    assert_eq!(db.record().ipv4.to_string(), "10.77.0.2/16");
    fs::write(directory.path().join(".networks.json"), "{").unwrap();
    let refused = take_with(&directory, "app", |_| {}).unwrap_err();
    assert!(matches!(refused, TakeError::Damaged(_)), "{refused}");
}

#[test]
fn a_directory_with_too_many_entries_is_read_in_part() {
    let directory = directory();
    for number in 0..super::MAX_FILES + 100 {
        fs::write(directory.path().join(format!("n{number}.json")), "").unwrap();
    }
    assert_eq!(open(&directory).names().len(), super::MAX_FILES);
}

/// Files that are no node's do not count.
#[test]
fn directory_with_many_other_files_lists_all_nodes() {
    let directory = directory();
    for number in 0..super::MAX_FILES + 100 {
        fs::write(directory.path().join(format!("{number}.txt")), "").unwrap();
    }
    fs::write(directory.path().join("web.json"), "").unwrap();
    assert_eq!(open(&directory).names(), ["web".parse().unwrap()]);
}

#[test]
fn control_socket_can_be_reached_by_those_who_may_join() {
    for (mode, change, expected) in [
        (0o700, "", 0o600),
        (0o2770, "", 0o660),
        (0o1777, "", 0o666),
        (0o755, "", 0o600),
        (0o755, "1502", 0o666),
        (0o2770, "1502", 0o660),
        (0o2771, "1502", 0o666),
    ] {
        let directory = directory();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        let web = take_with(&directory, "web", |settings| {
            settings.allow_user = change.parse().unwrap();
        });
        let web = web.unwrap();
        let mode_of = |suffix: &str| {
            let metadata = fs::metadata(directory.path().join(format!("web.{suffix}"))).unwrap();
            metadata.mode() & 0o777
        };
        assert_eq!(mode_of(CONTROL), expected, "{mode:o} {change}");
        assert_eq!(mode_of(RECORD), 0o644);
        drop(web);
    }
}

#[test]
fn name_that_every_program_knows_is_refused() {
    let directory = directory();
    for name in ["localhost", "LOCALHOST", "127.0.0.1", "7"] {
        let refused = take_with(&directory, name, |_| {}).unwrap_err();
        assert!(matches!(refused, TakeError::Meant { .. }), "{name}: {refused}");
    }
    assert!(files(&directory).is_empty());
}

#[test]
fn file_of_a_killed_writer_is_swept() {
    let directory = directory();
    fs::write(directory.path().join(".new-0123456789abcdef"), "{").unwrap();
    open(&directory).sweep().unwrap();
    assert!(files(&directory).is_empty());
}

#[test]
fn directories_too_deep_for_a_sockets_address_will_do() {
    let directory = directory();
    let deep = directory.path().join("d".repeat(100)).join("e".repeat(100));
    let fabric = || Fabric::open(deep.to_str().unwrap()).unwrap();
    let web = fabric().take("web", &NodeSettings::default(), &[]).unwrap();
    assert_eq!(fabric().resolve("web").unwrap(), *web.record());
}

#[test]
fn nodes_that_start_together_get_different_addresses() {
    let directory = directory();
    let start = Barrier::new(16);
    let places: Vec<Place> = std::thread::scope(|scope| {
        let node = |number: usize| {
            let (start, directory) = (&start, &directory);
            scope.spawn(move || {
                start.wait();
                take(directory, &format!("n{number}"))
            })
        };
        let nodes: Vec<_> = (0..16).map(node).collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    let mut addresses: Vec<_> = places.iter().map(|place| place.record().ipv4.addr()).collect();
    addresses.sort();
    let expected: Vec<_> = (1..=16)
        .map(|last| std::net::Ipv4Addr::new(10, 77, 0, last))
        .collect();
    assert_eq!(addresses, expected);
}

#[test]
fn of_nodes_that_want_one_name_together_one_gets_it() {
    let directory = directory();
    let start = Barrier::new(8);
    let taken: Vec<_> = std::thread::scope(|scope| {
        let node = |_| {
            scope.spawn(|| {
                start.wait();
                take_with(&directory, "web", |_| {})
            })
        };
        let nodes: Vec<_> = (0..8).map(node).collect();
        nodes.into_iter().map(|node| node.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1);
}

fn named(root: &Path) -> Result<Fabric, FabricError> {
    open_named(root, "default", true)
}

#[test]
fn a_fabric_by_name_is_this_users_alone() {
    let directory = directory();
    let root = directory.path().join("toehold-1000");
    let fabric = named(&root).unwrap();
    assert_eq!(fabric.path(), root.join("default"));
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(fabric.path()).unwrap().mode() & 0o777, 0o700);
    for path in [fabric.path(), &root] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(named(&root), Err(FabricError::Unsafe { .. })));
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    for bad in ["", "..", ".x", "a b"] {
        assert!(
            matches!(open_named(&root, bad, true), Err(FabricError::Name(_))),
            "{bad}"
        );
    }
}

/// Another user has made `/tmp/toehold-UID` before this user did.
#[test]
fn a_link_in_the_place_of_the_fabrics_is_refused() {
    let directory = directory();
    let mine = directory.path().join("mine");
    fs::create_dir(&mine).unwrap();
    let root = directory.path().join("toehold-1000");
    symlink(&mine, &root).unwrap();
    assert!(matches!(named(&root), Err(FabricError::Unsafe { .. })));
    assert!(fs::read_dir(&mine).unwrap().next().is_none());
    fs::remove_file(&root).unwrap();
    fs::create_dir(&root).unwrap();
    symlink(&mine, root.join("default")).unwrap();
    assert!(matches!(named(&root), Err(FabricError::Unsafe { .. })));
}

#[test]
fn a_fabric_that_does_not_exist_is_not_made_by_looking() {
    let directory = directory();
    let path = directory.path().join("none");
    let missing = Fabric::existing(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(missing, FabricError::Missing(_)), "{missing}");
    assert!(!path.exists());
}

#[test]
fn an_empty_fabric_is_removed_and_made_anew() {
    let root = directory();
    let open = || open_named(root.path(), "default", true).unwrap();
    let settings = NodeSettings::default();
    let path = root.path().join("default");
    let place = open().take("web", &settings, &[]).unwrap();
    let late = open();
    late.remove_if_empty().unwrap();
    assert!(path.join("web.ctl").exists());
    kill(place);
    open().remove_if_empty().unwrap();
    assert!(!path.exists(), "a dead node's files keep it");
    // Another one in its place is not the one that was opened.
    open();
    open().remove_if_empty().unwrap();
    open();
    late.remove_if_empty().unwrap();
    assert!(path.exists());
    let place = late.take("web", &settings, &[]).unwrap();
    assert!(path.join("web.ctl").exists());
    assert_eq!(place.fabric().path(), path);
    // What is not a fabric's by its name is not this user's to remove.
    let other = directory();
    super::Fabric::open(other.path().to_str().unwrap())
        .unwrap()
        .remove_if_empty()
        .unwrap();
    assert!(other.path().exists());
}

/// Each `toehold run` in a fabric of its own name left one behind.
#[test]
fn a_fabric_goes_with_its_last_node() {
    let root = directory();
    let take = |name| {
        let fabric = open_named(root.path(), "default", true).unwrap();
        fabric.take(name, &NodeSettings::default(), &[]).unwrap()
    };
    let path = root.path().join("default");
    let [first, last] = ["a", "b"].map(take);
    drop(first);
    assert!(path.exists());
    drop(last);
    assert!(!path.exists());
    drop(take("a"));
    assert!(!path.exists());
}

#[test]
fn a_fabric_that_is_stowed_away_is_opened_again_and_again() {
    let root = directory();
    let fabric = open(&root);
    let _web = take(&root, "web");
    let stowed = fabric.stow().unwrap();
    assert_eq!(stowed.name(), fabric.name());
    let number = fabric.number();
    drop(fabric);
    for _ in 0..3 {
        let fabric = stowed.open().unwrap();
        assert_eq!((fabric.nodes().len(), fabric.number()), (1, number));
    }
}

#[test]
fn nodes_come_and_go_while_the_directory_does() {
    let root = directory();
    let settings = NodeSettings::default();
    std::thread::scope(|scope| {
        let nodes = ["a", "b"].map(|name| {
            let (root, settings) = (root.path(), &settings);
            scope.spawn(move || {
                for _ in 0..300 {
                    let fabric = open_named(root, "default", true)?;
                    let place = fabric.take(name, settings, &[])?;
                    assert!(place.fabric().path().join(format!("{name}.ctl")).exists());
                }
                Ok::<(), TakeError>(())
            })
        });
        while !nodes.iter().all(|node| node.is_finished()) {
            if let Ok(fabric) = open_named(root.path(), "default", false) {
                fabric.remove_if_empty().unwrap();
            }
        }
        for node in nodes {
            node.join().unwrap().unwrap();
        }
    });
}
