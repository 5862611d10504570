//! Clients that come in by the door.

use super::*;

#[test]
fn who_comes_by_the_door_is_a_client_like_others() {
    let served = Served::new();
    let mut parent = served.connect();
    let door = parent.attach().unwrap().door;
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    let mut child = door.enter(parent.node()).unwrap().timeout(PATIENCE);
    let attached = child.attach().unwrap();
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    assert_eq!(attached.attachment.process, 2);
    let processes = child.status().unwrap().processes;
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [std::process::id(); 2]);
    // The process that had the door first need not be there any more.
    drop(parent);
    assert_eq!(served.told(), Told::Detached(1));
    let mut grandchild = door.enter(child.node()).unwrap().timeout(PATIENCE);
    grandchild.status().unwrap();
    drop(child);
    assert_eq!(served.told(), Told::Detached(2));
    served.end();
}

#[test]
fn a_child_takes_over_what_its_parent_has() {
    let served = Served::new();
    let mut parent = served.connect();
    let door = parent.attach().unwrap().door;
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    let enter = || door.enter("web".parse().unwrap()).unwrap().timeout(PATIENCE);
    let mut child = enter();
    // Of a life that is over there is nothing left.
    assert!(matches!(child.take_over(6), Err(ControlError::Refused { .. })));
    assert_eq!(child.take_over(7).unwrap(), 2);
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    // It is a process like others, once.
    child.peer(0, 3, 1).unwrap().unwrap();
    assert!(matches!(child.take_over(7), Err(ControlError::Refused { .. })));
    assert!(matches!(child.attach(), Err(ControlError::Refused { .. })));
    drop(child);
    assert_eq!(served.told(), Told::Detached(2));
    let mut other = enter();
    other.take_over(6).unwrap_err();
    assert_eq!(other.attach().unwrap().attachment.process, 3);
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    served.end();
}

#[test]
fn what_is_no_client_is_not_let_in() {
    let served = Served::new();
    let door = served.connect().attach().unwrap().door;
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    assert_eq!(served.told(), Told::Detached(1));
    let flags = SendFlags::empty();
    packet::send(door.way_in.as_fd(), b".", &[], flags).unwrap();
    packet::send(door.way_in.as_fd(), b"", &[], flags).unwrap();
    packet::send(door.way_in.as_fd(), &[0; 1000], &[memory(b"no socket")], flags).unwrap();
    packet::send(door.way_in.as_fd(), b".", &[memory(b"no socket")], flags).unwrap();
    let mut client = door.enter("web".parse().unwrap()).unwrap().timeout(PATIENCE);
    client.status().unwrap();
    served.end();
}

#[test]
fn the_door_of_an_engine_that_has_ended_is_shut() {
    let served = Served::new();
    let door = served.connect().attach().unwrap().door;
    drop(served);
    let entered = door.enter("web".parse().unwrap());
    assert!(matches!(entered, Err(ControlError::HungUp(_))), "{entered:?}");
}

#[test]
fn who_waits_for_a_closing_asks_only_if_there_is_one() {
    let served = Served::new();
    let client = served.connect().attach().unwrap();
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    assert_eq!(served.told(), Told::Detached(1));
    // The host takes it amiss if it is asked in vain.
    client.door.await_closing(PATIENCE);
    served.closings.ring();
    client.door.await_closing(PATIENCE);
    assert!(!served.closings.clear(), "it has not been asked");
    client.door.await_closing(PATIENCE);
    served.end();
}

#[test]
fn nobody_waits_for_an_engine_that_has_ended_or_says_nothing() {
    let served = Served::new();
    let door = served.connect().attach().unwrap().door;
    let closings = served.closings.try_clone().unwrap();
    drop(served);
    closings.ring();
    door.await_closing(PATIENCE);
    let (way_in, _engine) = super::super::door::pair().unwrap();
    let door = Door::new(way_in, closings.into_fd());
    let began = std::time::Instant::now();
    door.await_closing(Duration::from_millis(20));
    assert!(began.elapsed() < PATIENCE);
}
