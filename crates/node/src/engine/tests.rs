use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::Placement;
use crate::control::{Connection, KeeperPair, enter, keeper_pair};

const PATIENCE: Duration = Duration::from_secs(60);

fn seat(directory: &tempfile::TempDir, node: &str) -> Seat {
    Seat {
        fabric: Fabric::open(directory.path().to_str().unwrap()).unwrap(),
        node: node.to_owned(),
        settings: NodeSettings::default(),
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
    }
}

#[test]
fn an_engine_serves_until_it_is_asked_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(seat(&directory, "web"), StackHost::host).unwrap();
    let record = engine.record().clone();
    let fabric = Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let mut node = Connection::open(&fabric, "web").unwrap();
    node.set_placement(Placement::Engine).unwrap();
    let status = node.status().unwrap();
    assert_eq!((status.node, status.stack.placement), (record, Placement::Engine));
    let running = std::thread::spawn(move || engine.run());
    node.down(PATIENCE).unwrap();
    // Not when the thread has ended, but at once.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    running.join().unwrap();
}

#[test]
fn node_with_keeper_from_the_start_lets_in_by_it_and_lasts_with_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut seat = seat(&directory, "web");
    seat.lifetime = Lifetime::WhileUsed;
    let KeeperPair { end, keeper } = keeper_pair().unwrap();
    let inode = end.inode;
    let _engine = Engine::start_with(Role::Node, Some(end), seat, StackHost::host).unwrap();
    let mut by_keeper = enter(keeper.as_fd(), "web".parse().unwrap()).unwrap();
    assert_eq!(by_keeper.status().unwrap().keepers, [inode]);
    drop((by_keeper, keeper));
    let fabric = Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let mut node = Connection::open(&fabric, "web").unwrap();
    // The engine sees the end of the keeper between two answers at the latest.
    while !node.status().unwrap().keepers.is_empty() {}
    node.status().unwrap();
}

#[test]
fn keeper_of_another_kind_starts_no_node() {
    let directory = tempfile::tempdir().unwrap();
    let (_reader, writer) = io::pipe().unwrap();
    let keeper = KeeperEnd {
        descriptor: writer.into(),
        inode: 1,
    };
    let seat = seat(&directory, "web");
    let started = Engine::start_with(Role::Node, Some(keeper), seat, StackHost::host);
    assert!(matches!(started.map(drop), Err(StartError::Thread(_))));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_dropped_engine_leaves_its_fabric() {
    let directory = tempfile::tempdir().unwrap();
    drop(Engine::start(seat(&directory, "web"), StackHost::host).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_host_that_cannot_be_made_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let failing = |_: &Place, _: &NodeSettings| -> Result<Arc<dyn Host>, HostError> {
        Err(io::Error::other("no memory").into())
    };
    let error = Engine::start(seat(&directory, "web"), failing)
        .map(drop)
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot make the node: no memory");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let mut wrong = seat(&directory, "web");
    wrong.settings.mtu = 1;
    let error = Engine::start(wrong, StackHost::host).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("mtu cannot be"), "{error}");
}

/// The control thread's answer to a panic of its own.
#[test]
fn host_that_begins_anew_serves_and_counts_a_reset() {
    let directory = tempfile::tempdir().unwrap();
    let mut made = None;
    let host = |place: &Place, settings: &NodeSettings| {
        let host = StackHost::host(place, settings)?;
        made = Some(Arc::clone(&host));
        Ok(host)
    };
    let engine = Engine::start(seat(&directory, "web"), host).unwrap();
    let fabric = Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let mut before = Connection::open(&fabric, "web").unwrap();
    before.attach().unwrap();
    made.unwrap().begin_anew();
    let mut after = Connection::open(&fabric, "web").unwrap();
    after.attach().unwrap();
    let counters = after.counters().unwrap();
    let resets = counters
        .iter()
        .find(|counter| counter.name == "node_resets")
        .unwrap();
    assert_eq!(resets.value, 1);
    drop(engine);
}
