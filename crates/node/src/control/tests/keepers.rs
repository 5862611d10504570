//! Nodes that end with their last user.

use std::os::fd::AsFd;

use super::*;
use crate::why::{Reason, Report};

fn while_used(grace: Duration) -> Served {
    let limits = Limits {
        grace,
        ..Limits::default()
    };
    Served::lasting(Lifetime::WhileUsed, 1, limits)
}

/// Returns when the server has ended by itself.
fn wait_for_end(mut served: Served) {
    let server = served.thread.take().unwrap().join().unwrap();
    drop(server);
}

#[test]
fn a_node_ends_with_its_last_keeper() {
    let served = while_used(PATIENCE);
    let first = served.connect().keep().unwrap();
    let mut connection = served.connect();
    let second = connection.keep().unwrap();
    let copy = second.try_clone().unwrap();
    drop((first, second));
    // A client that only asks keeps nothing.
    connection.status().unwrap();
    drop(copy);
    wait_for_end(served);
    assert!(matches!(connection.status(), Err(ControlError::HungUp(_))));
}

#[test]
fn a_node_that_nobody_comes_to_ends() {
    wait_for_end(while_used(Duration::ZERO));
}

#[test]
fn a_node_that_is_to_stay_stays() {
    let served = Served::new();
    drop(served.connect().keep().unwrap());
    served.connect().status().unwrap();
    served.end();
}

#[test]
fn a_process_that_has_attached_uses_the_node_as_long_as_it_lives() {
    let served = while_used(PATIENCE);
    let keeper = served.connect().keep().unwrap();
    for _ in 0..2 {
        let mut connection = served.connect();
        connection.attach().unwrap();
        assert_eq!(served.told(), Told::Attached(std::process::id()));
        drop(connection);
        assert!(matches!(served.told(), Told::Detached(_)));
    }
    drop(keeper);
    // It may attach again.
    served.connect().status().unwrap();
    served.end();
}

#[test]
fn a_node_ends_with_the_last_process_that_has_attached() {
    let served = while_used(PATIENCE);
    let keeper = served.connect().keep().unwrap();
    let mut process = processes::attached_process(&served, |_| {});
    assert!(matches!(served.told(), Told::Attached(_)));
    drop(keeper);
    served.connect().status().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for_end(served);
}

#[test]
fn node_kept_for_life_outlasts_keeper_and_connection_dropped_at_once() {
    let served = while_used(PATIENCE);
    for _ in 0..100 {
        // Here the connection ends first: its answer is not waited for.
        let keeper = served.connect().keep_for_life().unwrap();
        drop(keeper);
    }
    served.connect().status().unwrap();
    served.end();
}

#[test]
fn connection_that_keeps_node_for_life_takes_the_answer_before_later_ones() {
    let served = while_used(PATIENCE);
    let mut connection = served.connect();
    let keeper = connection.keep_for_life().unwrap();
    let kept = connection.status().unwrap().keepers;
    assert_eq!(kept, [rustix::fs::fstat(&keeper).unwrap().st_ino]);
    connection.status().unwrap();
    served.end();
}

#[test]
fn node_kept_for_life_ends_with_the_process() {
    let served = while_used(PATIENCE);
    let keeper = served.connect().keep().unwrap();
    let mut process = processes::attached_process(&served, |command| {
        command.env(processes::KEEPS, "1");
    });
    assert!(processes::lines(&mut process).any(|line| line.contains("kept")));
    drop(keeper);
    served.connect().status().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for_end(served);
}

#[test]
fn only_a_pair_of_sockets_keeps_a_node() {
    let served = Served::new();
    let client = served.raw();
    let keep = br#"{"keep":{"inode":1}}"#;
    client.send(keep);
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    let file = memory(b"file");
    client.send_with(keep, std::slice::from_ref(&file));
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    let (end, _other) = std::io::pipe().unwrap();
    client.send_with(keep, &[end.into()]);
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    served.end();
}

#[test]
fn process_with_the_keeper_is_let_in() {
    let served = Served::new();
    let keeper = served.connect().keep().unwrap();
    assert!(leads_somewhere(keeper.as_fd()));
    let mut client = enter(keeper.as_fd(), "web".parse().unwrap())
        .unwrap()
        .timeout(PATIENCE);
    let own = client.names(Some("web")).unwrap();
    assert_eq!(own, [served._place.record().clone()]);
    assert_eq!(client.names(None).unwrap(), own);
    assert_eq!(client.names(Some("db")).unwrap(), []);
    client.attach().unwrap();
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    // The descriptor lets in, and gives no other right.
    let refused = client.set_placement(Placement::Engine).unwrap_err();
    assert_eq!(refused.reason(), Reason::OtherUser, "{refused}");
    drop(client);
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

#[test]
fn what_comes_by_the_keeper_and_is_no_visitor_is_passed_over() {
    let served = Served::new();
    let keeper = served.connect().keep().unwrap();
    let flags = SendFlags::empty();
    for said in [b".".as_slice(), b"", b"r{}", b"r\xff", &[b'r'; 1000], &[0; 5000]] {
        packet::send(keeper.as_fd(), said, &[], flags).unwrap();
        packet::send(keeper.as_fd(), said, &[memory(b"no socket")], flags).unwrap();
    }
    let status = served.connect().status().unwrap();
    assert_eq!(status.unaccelerated, []);
    assert_eq!(status.keepers, [rustix::fs::fstat(&keeper).unwrap().st_ino]);
    served.end();
}

#[test]
fn program_that_is_not_on_the_node_is_told_of_once() {
    let served = Served::new();
    let keeper = served.connect().keep().unwrap();
    for pid in [7, 8] {
        tell(keeper.as_fd(), &Report::new("./gox", pid, Reason::Go));
    }
    // The reports are taken before this is answered.
    let mut client = enter(keeper.as_fd(), "web".parse().unwrap())
        .unwrap()
        .timeout(PATIENCE);
    let told = client.status().unwrap().unaccelerated;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].reason, told[0].pid, told[0].times), (Reason::Go, 8, 2));
    served.end();
}

#[test]
fn keeper_of_an_engine_that_has_ended_leads_nowhere() {
    let served = Served::new();
    let keeper = served.connect().keep().unwrap();
    drop(served);
    assert!(!leads_somewhere(keeper.as_fd()));
    let entered = enter(keeper.as_fd(), "web".parse().unwrap());
    assert!(matches!(entered, Err(ControlError::HungUp(_))), "{entered:?}");
}
