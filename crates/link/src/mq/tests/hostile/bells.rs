//! Peers that do not read, ring without end, or cannot be rung.

use super::*;

#[test]
fn peer_without_reads_fills_its_own_ring_only() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let liar = Liar::befriend(&fabric, &mut nodes, 9);
    let mut sent = 0;
    while send(&mut nodes[0], 9, &[1; 1400]).is_ok() {
        sent += 1;
    }
    assert!(sent > 100 && nodes[0].connected() == 2);
    for _ in 0..1000 {
        assert_eq!(send(&mut nodes[0], 9, &[1; 1400]), Err(TransmitError::Full));
    }
    assert_unharmed(&mut nodes);
    // The sleeper waits for room at the liar's; that may take for ever, but
    // whatever else happens wakes it.
    nodes.iter_mut().for_each(turn);
    assert!(nodes[0].prepare_sleep());
    drop(liar);
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    assert_eq!(send(&mut nodes[0], 9, b"?"), Err(TransmitError::Unreachable));
}

/// The descriptor that a node gave a liar to ring it.
fn doorbell_of_node(liar: &Liar) -> OwnedFd {
    let mut buffer = [0; MESSAGE_LEN];
    let Packet::Message(_, descriptors) = control::receive(liar.socket.as_fd(), &mut buffer) else {
        panic!("no welcome")
    };
    descriptors.into_iter().nth(1).unwrap()
}

fn shout(doorbell: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(doorbell, bytes, rustix::net::SendFlags::DONTWAIT)
}

#[test]
fn rings_without_end_do_not_keep_a_node_from_its_work() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let liar = Liar::befriend(&fabric, &mut nodes, 9);
    let doorbell = doorbell_of_node(&liar);
    // The end it was given is blocking now, and says nothing to any other process.
    rustix::io::ioctl_fionbio(&doorbell, false).unwrap();
    let mut rung = 0;
    while shout(&doorbell, b"!!!!!!!!!!!!").is_ok() {
        rung += 1;
    }
    assert!(rung > 5);
    for _ in 0..50 {
        while shout(&doorbell, &[7; 3000]).is_ok() {}
        // A full queue of rings is a ring for all: every sleeper wakes up.
        assert_unharmed(&mut nodes);
        if nodes[0].prepare_sleep() {
            send(&mut nodes[1], 0, b"wake up").unwrap();
            super::sleep::sleep_on(&mut nodes[0]);
            assert_eq!(take(&mut nodes[0]), [b"wake up"]);
        }
    }
    // Nor does a connection that should be silent, with descriptors that must not
    // become the node's.
    let (reader, _writer) = std::io::pipe().unwrap();
    while control::send(liar.socket.as_fd(), b"!", &[reader.as_fd()]).is_ok() {}
    nodes.iter_mut().for_each(turn);
    assert_unharmed(&mut nodes);
    assert!(nodes[0].prepare_sleep());
    assert!(
        !super::sleep::wait(&nodes[0], Duration::from_millis(20)),
        "nothing happened"
    );
    nodes[0].finish_sleep(next_ms());
    assert_eq!(nodes[0].connected(), 2);
    // The node rings a liar that says it sleeps and never takes its rings.
    liar.word(SLEEPING, 1);
    for sleep in 0..2000 {
        liar.word(SLEEPING, sleep * 2 + 1);
        let _ = send(&mut nodes[0], 9, b"wake up");
    }
    let mut rings = 0;
    liar.bell.set_nonblocking(true).unwrap();
    while liar.bell.recv(&mut [0; 8]).is_ok() {
        rings += 1;
    }
    assert!(rings > 5, "rung {rings} times");
    assert_unharmed(&mut nodes);
}

#[test]
fn unconnected_doorbell_harms_its_owner_only() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    // Not connected; connected to a socket that is gone; to one that is full.
    let (full, _sleeper) = UnixDatagram::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send(b"!").is_ok() {}
    full.set_nonblocking(false).unwrap();
    let gone = UnixDatagram::pair().unwrap().0;
    for doorbell in [UnixDatagram::unbound().unwrap(), gone, full] {
        liar.socket = control::dial(&fabric.path().join("node-0.sock")).unwrap();
        liar.section = section(CAPACITY, INCARNATION);
        liar.doorbell = doorbell;
        liar.hello();
        drive(&mut nodes, |nodes| nodes[0].connected() == 2);
        for sleep in 0..100 {
            liar.word(SLEEPING, sleep * 2 + 1);
            send(&mut nodes[0], 9, b"wake up").unwrap();
        }
        assert_unharmed(&mut nodes);
        liar.hang_up();
        drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    }
}

/// A peer hands over what leads to a socket of a third process. It gets no more than a number, which
/// the peer itself could have sent.
#[test]
fn doorbell_of_a_third_process_gets_a_number_and_no_more() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let place = fabric.path().join("third.socket");
    let third = UnixDatagram::bind(&place).unwrap();
    third.set_nonblocking(true).unwrap();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    let doorbell = UnixDatagram::unbound().unwrap();
    doorbell.connect(&place).unwrap();
    liar.doorbell = doorbell;
    liar.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    for sleep in 0..20 {
        liar.word(SLEEPING, sleep * 2 + 1);
        send(&mut nodes[0], 9, b"secret").unwrap();
    }
    let mut heard = 0;
    let mut buffer = [0; 100];
    while let Ok(len) = third.recv(&mut buffer) {
        assert_eq!(len, 2);
        heard += 1;
    }
    assert!(heard > 0);
    assert_unharmed(&mut nodes);
}
