//! Nonsense in the memory of a port.

use super::*;

/// A process that maps the region may write nonsense there, as it dies or by mistake. The node is
/// lost then. But nothing panics, goes on for ever, or reaches outside of the rings.
#[test]
fn corrupt_state_causes_no_panic() {
    let fabric = Fabric::new();
    let mut random = crate::random::Random::new(7);
    for round in 0..60_u64 {
        let mut node = Node::new(&fabric.settings("node", 0), 2);
        let mut peer = fabric.join("peer", 1);
        node.meet(&mut peer);
        let len = Port::bytes_needed(64);
        let mut scribbler = Cells::open(node.memory.try_clone().unwrap(), 0).unwrap();
        for _ in 0..20 {
            for _ in 0..1 + round % 40 {
                // In the parts that matter, often.
                let place = random.below(if round % 2 == 0 { 1024 } else { len as u64 - 8 });
                let word = match random.below(4) {
                    0 => random.below(256),
                    1 => u64::MAX - random.below(256),
                    2 => random.below(1 << 24) & !63,
                    _ => random.next(),
                };
                scribbler.copy_in(place as usize, &word.to_ne_bytes());
            }
            let _ = send(&mut peer, 0, &[7; 300]);
            take(&mut peer);
            for port in &mut node.ports {
                let _ = frames_of(port, 64);
                let _ = (put(port, 1, &[1; 700]), put(port, 255, b"to all"));
                let _ = crate::test_frames::send(port, &frame_to([0xff; 6], mac(0), &[2; 60]), PARTIAL);
                port.flush();
                let fence = port.fence(mac(1), &flow());
                let _ = (port.passed(fence), port.passed(Fence(random.next())));
                let _ = (port.peers(), port.connected(), port.statistics(), port.unmapped());
                let mut watch = Watch::new();
                let _ = port.watch(&mut watch) && watch.changed();
                if port.prepare_sleep() {
                    port.finish_sleep(0);
                }
                (0..600).for_each(|_| _ = port.next_change());
                let _ = port.departed();
            }
            let slot = random.below(2 * MeshSettings::MAX_PEERS as u64) as u16;
            let _ = node.ports[0].apply(Change::Left {
                slot,
                generation: 1,
                at_once: round % 3 == 0,
            });
        }
    }
}
