//! The last number, port and bank, and one more of each.

use toehold_shm::direct::CONNECTIONS;

use super::*;

/// A direct end of a test.
type Held = (Arc<super::super::Bank>, ConnectionId);

fn close_all(direct: &Direct, thread: ThreadNumber, ends: Vec<Held>) {
    for (bank, connection) in ends {
        direct.close(thread, &bank, connection, false);
    }
}

#[test]
fn bank_full_of_connections_is_followed_by_another_one() {
    let pair = Pair::with_payload(256 << 20);
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let first = ours.towards(pair.at().ip()).pop().unwrap();
    let (mut opened, mut accepted) = (Vec::new(), Vec::new());
    for at in 0..=CONNECTIONS {
        if at == CONNECTIONS {
            // The engine has made it when few numbers were left.
            eventually("there is no other bank", || {
                (ours.towards(pair.at().ip()).len() == 2).then_some(())
            });
        }
        let (bank, connection) = ours.connect(threads[0], pair.at(), None, WINDOW).unwrap().held();
        assert_eq!(bank.slot() == first.slot(), at < CONNECTIONS, "connection {at}");
        opened.push((bank, connection));
        let taken = eventually("it does not come", || theirs.accept(threads[1], listener, WINDOW));
        accepted.push(taken.held());
    }
    assert_eq!(first.ends.in_use(), CONNECTIONS);
    close_all(ours, threads[0], opened);
    close_all(theirs, threads[1], accepted);
    // The closing process makes no further call: the engine frees them.
    eventually("not all comes back", || {
        let banks = ours.towards(pair.at().ip());
        let numbers: usize = banks.iter().map(|bank| bank.ends.in_use()).sum();
        let bytes = [ours, theirs].map(|direct| direct.journal().charged_bytes());
        (numbers == 0 && ours.ports.taken() == 0 && bytes == [0, 0]).then_some(())
    });
}

#[test]
fn last_number_of_the_last_bank_is_followed_by_tcp() {
    /// As many as a node opens to another one.
    const BANKS: usize = 16;
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    pair.listen(pair.at(), 8);
    let connect = || ours.connect(own, pair.at(), None, WINDOW).map(Opened::held);
    for banks in 1..=BANKS {
        let bank = eventually("there is no other bank", || {
            let found = ours.towards(pair.at().ip());
            (found.len() == banks).then(|| found[banks - 1].clone())
        });
        while bank.ends.reserve(ours.process()).is_some() {}
        let failed = connect().map(drop);
        if banks == BANKS {
            assert_eq!(failed, Err(ConnectFailure::UseTcp));
        }
    }
    let counted = counter(pair._directory.path(), "client", "direct_tcp_numbers");
    assert!(counted >= Some(1));
    assert_eq!(ours.towards(pair.at().ip()).len(), BANKS);
    assert_eq!(ours.ports.taken(), 0, "their ports came back");
}

#[test]
fn last_port_is_followed_by_tcp() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    pair.listen(pair.at(), 8);
    let taken: Vec<u16> = std::iter::from_fn(|| ours.ports.take(ours.process())).collect();
    let failed = ours.connect(own, pair.at(), None, WINDOW).map(Opened::held);
    assert_eq!(failed.map(drop), Err(ConnectFailure::UseTcp));
    let counted = counter(pair._directory.path(), "client", "direct_tcp_ports");
    assert_eq!(counted, Some(1));
    let bank = ours.towards(pair.at().ip()).pop().unwrap();
    assert_eq!(bank.ends.in_use(), 0);
    assert!(ours.ports.free(taken[7], ours.process()));
    let opened = ours.connect(own, pair.at(), None, WINDOW).unwrap();
    assert_eq!(opened.local_addr().port(), taken[7]);
    opened.held();
}

#[test]
fn payload_used_up_by_rings_is_followed_by_tcp() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    let (_, listener) = pair.listen(pair.at(), 8);
    let journal = ours.journal();
    let bound = 16 << 20;
    assert!(journal.charge(bound, bound));
    let connect = || ours.connect(own, pair.at(), None, WINDOW).map(Opened::held);
    assert_eq!(connect().map(drop), Err(ConnectFailure::UseTcp));
    let bank = ours.towards(pair.at().ip()).pop().unwrap();
    assert_eq!((bank.ends.in_use(), ours.ports.taken()), (0, 0));
    journal.discharge(bound);
    // The accepting node has none: it refuses, and the number comes back.
    let theirs = pair.server();
    assert!(theirs.journal().charge(bound, bound));
    let (bank, connection) = connect().unwrap();
    assert!(theirs.accept(thread(theirs), listener, WINDOW).is_none());
    let mut buffer = [0; 1];
    let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
    let end = bank.end(connection).unwrap();
    assert_eq!(
        end.receive(own, &mut parts, Take::Remove, u64::MAX),
        Err(ReceiveError::Reset)
    );
    ours.close(own, &bank, connection, false);
    assert_eq!((bank.ends.in_use(), journal.charged_bytes()), (0, 0));
}
