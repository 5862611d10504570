//! Cost of the operations on a message's path, in nanoseconds each, on one core with all data in
//! the cache: `cargo bench -p toehold-shm`.

use std::hint::black_box;
use std::time::Instant;

use toehold_shm::ring::{ConsumerState, PeerSection, ProducerState, Rings, Section, connect};
use toehold_shm::{
    ByteQueue, Carver, Lease, LeaseGuard, Leased, Parking, Payload, Region, Rest, Slab, Table,
};

/// Operations a round, and rounds; the median of the rounds is printed.
const OPERATIONS: u32 = 20_000;
const ROUNDS: usize = 51;

fn measure(name: &str, mut operation: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..OPERATIONS).for_each(|_| operation());
            start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name:<44} {:>8.1} ns   (least {:.1})",
        rounds[ROUNDS / 2],
        rounds[0]
    );
}

fn payload() -> Payload {
    let region = Region::create("toehold-bench", Payload::bytes_needed(256, 16384)).expect("memory");
    let mut carver = Carver::new(region).expect("fresh");
    carver.payload(256, 16384).expect("room")
}

fn ring() -> [Rings; 2] {
    let sections =
        [1, 2].map(|incarnation| Section::create("toehold-bench", 1 << 20, incarnation).expect("memory"));
    let [peer_of_there, peer_of_here] = sections.each_ref().map(|section| {
        let fd = section.read_only_fd().expect("descriptor");
        PeerSection::open(fd, 1 << 20).expect("a section")
    });
    let [here, there] = sections;
    [connect(here, peer_of_here), connect(there, peer_of_there)]
}

fn byte_queues() {
    let (mut payload, mut queue) = (payload(), ByteQueue::EMPTY);
    let (bytes, mut into) = ([7_u8; 64], [0_u8; 64]);
    measure("queue: append and read 64 B, else empty", || {
        queue.append(&mut payload, black_box(&bytes));
        queue.read(&mut payload, &mut into);
        black_box(&into);
    });
    queue.append(&mut payload, &[1; 100_000]);
    measure("queue: append and read 64 B, 100 kB in it", || {
        queue.append(&mut payload, black_box(&bytes));
        queue.read(&mut payload, &mut into);
        black_box(&into);
    });
    let long = vec![7_u8; 1_000_000];
    queue.append(&mut payload, &long);
    let mut offset = 0;
    measure("queue: gather of 1448 B, walking through 1 MB", || {
        let gather = queue.gather(&payload, offset, 1448);
        offset = if gather.len() < 1448 { 0 } else { offset + 1448 };
        black_box(gather.len());
    });
    queue.clear(&mut payload);
    let (long, mut into) = (vec![7_u8; 65_536], vec![0_u8; 65_536]);
    measure("queue: append, gather, copy, consume 64 kB", || {
        queue.append(&mut payload, black_box(&long));
        let gather = queue.gather(&payload, 0, 65_536);
        gather.copy_to(0, &mut into);
        black_box(&into);
        queue.consume(&mut payload, 65_536);
    });
    // The destination begins a little behind the source modulo 4 KiB: libc's worst case.
    let mut into = vec![0_u8; 65_536 + 8192];
    let start = into.as_ptr().align_offset(4096) + 10;
    queue.append(&mut payload, &long);
    measure("queue: peek 64 kB to an awkward address", || {
        queue.peek(&payload, 0, &mut into[start..start + 65_536]);
        black_box(&into);
    });
}

fn rings() {
    let [here, there] = ring();
    // As in a node, the state of the ends lies in shared memory.
    let len = Table::<ProducerState>::bytes_needed(1) + Table::<ConsumerState>::bytes_needed(1);
    let mut carver = Carver::new(Region::create("toehold-bench", len).expect("memory")).expect("fresh");
    let mut sent_state = carver.table::<ProducerState>(1).expect("room");
    let mut received_state = carver.table::<ConsumerState>(1).expect("room");
    let (bytes, mut into) = ([7_u8; 128], [0_u8; 128]);
    let send = |state: &mut ProducerState| {
        let mut producer = here.producer(state);
        let mut record = producer.reserve(1, 128).expect("room");
        record.copy_from_slice(black_box(&bytes));
        record.commit();
    };
    let mut drain = || {
        let mut consumer = there.consumer(&mut received_state[0]);
        while let Some(record) = consumer.peek().expect("honest") {
            record.copy_to(0, &mut into);
            black_box(&into);
            consumer.advance();
        }
        let _ = consumer.release();
    };
    let sent_state = &mut sent_state[0];
    measure("ring: 128 B there and consumed, each published", || {
        send(sent_state);
        let _ = here.producer(sent_state).publish();
        drain();
    });
    measure("ring: 128 B there and consumed, bursts of 16", || {
        send(sent_state);
        if (sent_state.position() / 192).is_multiple_of(16) {
            let _ = here.producer(sent_state).publish();
            drain();
        }
    });
    let _ = here.producer(sent_state).publish();
    drain();
    let mut sent = 0;
    measure("ring: reserve, fill, commit, publish 128 B", || {
        send(sent_state);
        let _ = here.producer(sent_state).publish();
        sent += 1;
        if sent == 4000 {
            sent = 0;
            drain();
        }
    });
}

fn slabs() {
    let region = Region::private(Slab::<[u64; 32]>::bytes_needed(1000)).expect("memory");
    let mut slab = Carver::new(region)
        .expect("fresh")
        .slab::<[u64; 32]>(1000)
        .expect("room");
    measure("slab: insert and remove 256 B", || {
        let index = slab.insert(black_box([7; 32])).expect("room");
        black_box(&slab[index]);
        slab.remove(index);
    });
    let mut payload = payload();
    measure("payload: allocate and free a block", || {
        let block = payload.allocate().expect("room");
        payload.free(black_box(block));
    });
}

fn leases() {
    let len = Lease::BYTES_NEEDED + Parking::bytes_needed(1);
    let region = Region::create("toehold-bench", len).expect("memory");
    let mut carver = Carver::new(region).expect("fresh");
    let lease = carver.lease().expect("room");
    let parking = carver.parking(1).expect("room");
    measure("lease: acquire and release", || {
        lease.acquire().expect("open");
        lease.release();
    });
    let leased = Leased::new(lease, 0_u64);
    measure("lease: lock what is leased, change it, unlock", || {
        *leased.lock().expect("open") += 1;
    });
    let mut guard = leased.lock().expect("open");
    measure("lease: change what is leased, is it wanted?", || {
        *guard += 1;
        black_box(LeaseGuard::is_wanted(&guard));
    });
    measure("lease: give way to nobody", || {
        LeaseGuard::give_way(&mut guard).expect("open");
    });
    measure("parking: begin, is it resting?, notify, end", || {
        parking.begin(0, Rest::Seated);
        black_box(parking.is_resting(0) && parking.mark(0).is_some());
        black_box(parking.end(0));
    });
}

fn main() {
    // `cargo test` runs this too; there is nothing to test.
    if std::env::args().any(|argument| argument == "--bench") {
        byte_queues();
        rings();
        slabs();
        leases();
    }
}
