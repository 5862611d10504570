//! One memory at two addresses: values made through one set of handles are visible through the
//! other.

use crate::{Access, ByteQueue, Carver, Gather, OutOfMemory, Payload, Region, Slab, Table};

struct Handles {
    table: Table<ByteQueue>,
    slab: Slab<u64>,
    payload: Payload,
    fingerprint: u64,
}

impl Handles {
    fn carve(mut carver: Carver) -> Result<Self, OutOfMemory> {
        let table = carver.table(4)?;
        let slab = carver.slab(100)?;
        let payload = carver.payload(32, 256)?;
        Ok(Self {
            table,
            slab,
            payload,
            fingerprint: carver.fingerprint(),
        })
    }

    fn len() -> usize {
        Table::<ByteQueue>::bytes_needed(4) + Slab::<u64>::bytes_needed(100) + Payload::bytes_needed(32, 256)
    }
}

/// The maker's handles, and those of another mapping of the memory.
fn both() -> [Handles; 2] {
    let region = Region::create("toehold-test", Handles::len()).unwrap();
    let other = Region::open(
        region.fd().unwrap().try_clone_to_owned().unwrap(),
        Access::ReadWrite,
    )
    .unwrap();
    assert_ne!(region.base(), other.base());
    let maker = Carver::new(region).unwrap();
    // SAFETY: one thread uses one set of handles at a time, and holds no references into it while
    // it uses the other.
    let other = unsafe { Carver::attach(other) };
    assert!(maker.is_fresh() && !other.is_fresh());
    let both = [Handles::carve(maker).unwrap(), Handles::carve(other).unwrap()];
    assert_eq!(both[0].fingerprint, both[1].fingerprint);
    both
}

#[test]
fn slabs_continue_in_other_mapping() {
    let [mut here, mut there] = both();
    let first = here.slab.insert(11).unwrap();
    let second = there.slab.insert(22).unwrap();
    assert_ne!(first, second);
    assert_eq!((here.slab[second], there.slab[first]), (22, 11));
    assert!(there.slab.remove(first));
    assert!(!here.slab.is_live(first) && !here.slab.remove(first));
    assert_eq!(here.slab.insert(33), Some(first));
    assert_eq!(there.slab.get(first), Some(&33));
    assert_eq!((here.slab.len(), there.slab.len()), (2, 2));
    assert!(here.slab.iter_live().eq(there.slab.iter_live()));
}

#[test]
fn chains_continue_in_other_mapping() {
    let [mut here, mut there] = both();
    let head = here.payload.allocate().unwrap();
    let next = there.payload.allocate().unwrap();
    assert_ne!(head, next);
    here.payload.set_next(head, next);
    there.payload.bytes_mut(next).fill(5);
    assert_eq!(there.payload.next(head), next);
    assert!(here.payload.bytes(next).iter().all(|&byte| byte == 5));
    let offset = |handles: &Handles| {
        let bytes = handles.payload.bytes(next);
        handles.payload.area().offset_of(bytes.as_ptr(), bytes.len())
    };
    assert_eq!(offset(&here), offset(&there));
    there.payload.free_chain(head);
    assert_eq!(here.payload.free_blocks(), 32);
}

#[test]
fn queues_continue_in_other_mapping() {
    let [mut here, mut there] = both();
    let bytes: Vec<u8> = (0..2000).map(|at| (at / 7) as u8).collect();
    let mut read = Vec::new();
    let mut written = 0;
    let mut turn = 0;
    while read.len() < bytes.len() {
        // Writer and reader change sides all the time.
        let [writer, reader] = if turn % 2 == 0 {
            [&mut here, &mut there]
        } else {
            [&mut there, &mut here]
        };
        let more = &bytes[written..(written + 130).min(bytes.len())];
        let (ahead, now) = more.split_at(more.len() / 2);
        let queue = &mut writer.table[1];
        let at = queue.len() + ahead.len();
        assert_eq!(
            queue.write_at(&mut writer.payload, at, &Gather::from_slice(now), 0, now.len()),
            now.len()
        );
        assert_eq!(queue.append(&mut writer.payload, ahead), ahead.len());
        queue.extend(now.len());
        written += more.len();

        let mut part = [0; 100];
        let queue = &mut reader.table[1];
        let gathered = queue.gather(&reader.payload, 10, 50).len();
        assert_eq!(gathered, 50.min(queue.len() - 10.min(queue.len())));
        let n = queue.read(&mut reader.payload, &mut part);
        read.extend_from_slice(&part[..n]);
        turn += 1;
    }
    assert_eq!(read, bytes);
    assert_eq!(here.table[1], ByteQueue::EMPTY);
    assert_eq!(there.payload.free_blocks(), 32);
}
