//! Peers that come and go leave nothing behind.

use super::*;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of shared memory. Others come and go with the allocator.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains("memfd:"))
        .count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn thousand_restarts_leak_nothing() {
    if elsewhere("mq::tests::restarts::thousand_restarts_leak_nothing") {
        return;
    }
    let fabric = Fabric::new();
    let settings = |payload: &Payload, name, number| MeshSettings {
        payload: Some(payload.arenas().clone()),
        ..fabric.settings(name, number)
    };
    let mut steady = shared_payload(16);
    let mut nodes = vec![Mesh::join(&settings(&steady, "steady", 0)).unwrap()];
    let mut before = None;
    for life in 0..1000 {
        let mut payload = shared_payload(16);
        nodes.push(Mesh::join(&settings(&payload, "mortal", 1)).unwrap());
        drive(&mut nodes, |nodes| {
            nodes[1].connected() == 1 && nodes[0].connected() == 1
        });
        let headers = frame_to(mac(0), mac(1), &[life as u8; 50]);
        let block = block_for(&mut payload, &nodes[1].port);
        let gather = Gather::from_slice(&payload.bytes(block)[..4096]);
        let offload = Offload {
            checksum: Checksum::Partial,
            segment_size: 1448,
        };
        nodes[1]
            .transmit(&Transmit {
                headers: &headers,
                payload: &gather,
                offload,
            })
            .unwrap();
        nodes[1].flush();
        // Some die before, some after the frame was taken, some with frames on the way back.
        if life % 3 != 0 {
            assert_eq!(take(&mut nodes[0]).len(), 1);
        }
        if life % 2 == 0 {
            send(&mut nodes[0], 1, b"to the dead").unwrap();
        }
        nodes.pop();
        drop(payload);
        if life % 3 == 0 {
            assert_eq!(take(&mut nodes[0]).len(), 1);
        }
        if life % 5 != 0 {
            drive(&mut nodes, |nodes| nodes[0].connected() == 0);
        }
        if life == 100 {
            drive(&mut nodes, |nodes| nodes[0].connected() == 0);
            steady.discard_unused();
            before = Some((descriptors(), mappings(), resident_kib()));
        }
    }
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 0 && nodes[0].membership.handshakes.is_empty()
    });
    steady.discard_unused();
    let (descriptors_before, mappings_before, resident_before) = before.unwrap();
    assert_eq!(descriptors(), descriptors_before);
    assert_eq!(mappings(), mappings_before);
    assert!(
        resident_kib() < resident_before + 1024,
        "{resident_before} KiB before, {} after",
        resident_kib()
    );
    let statistics = nodes[0].statistics();
    assert_eq!(
        (statistics.connected, statistics.lost + statistics.replaced),
        (1000, 1000)
    );
    assert_eq!((statistics.corrupt, statistics.refused), (0, 0));
}

/// With no descriptors left a node accepts no peer, does not spin, and recovers.
#[test]
fn node_without_descriptors_recovers() {
    if elsewhere("mq::tests::restarts::node_without_descriptors_recovers") {
        return;
    }
    let fabric = Fabric::new();
    let mut nodes = fabric.nodes(2);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit {
        current: Some(descriptors() as u64 + 40),
        ..limit
    };
    let third = fabric.join("node-2", 2);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    nodes.push(third);
    for _ in 0..50 {
        nodes.iter_mut().for_each(turn);
    }
    assert_eq!(nodes[2].connected(), 0);
    send(&mut nodes[0], 1, b"still here").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"still here"]);
    // A caller that got through, and cannot be accepted.
    hoard.pop();
    let _call = super::super::control::dial(&fabric.path().join("node-0.sock")).unwrap();
    turn(&mut nodes[0]);
    assert!(nodes[0].statistics().accept_errors > 0);
    assert!(nodes[0].membership.listening_from_ns.is_some());
    hoard.clear();
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 2));
    assert!(nodes[0].membership.listening_from_ns.is_none());
}
