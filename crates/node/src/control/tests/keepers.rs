//! Nodes that end with their last user.

use super::*;

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
    // Those who only ask keep nothing.
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
fn a_process_can_use_a_node_as_long_as_it_lives() {
    let served = while_used(PATIENCE);
    let keeper = served.connect().keep().unwrap();
    served.connect().keep_for_life().unwrap();
    drop(keeper);
    served.connect().status().unwrap();
    served.end();
}

#[test]
fn only_a_pipe_keeps_a_node() {
    let served = Served::new();
    let client = served.raw();
    client.send(br#""keep""#);
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    let file = memory(b"file");
    client.send_with(br#""keep""#, std::slice::from_ref(&file));
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    served.end();
}
