//! Nodes that lie, stop, or talk nonsense. Each of these tests has an honest
//! pair beside the liar, to which nothing must happen.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};

use super::*;
use crate::mq::control::{self, Packet};
use crate::mq::message::{Introduction, MESSAGE_LEN, Message};
use crate::mq::name::MemberName;
use crate::mq::record::{HEADER_LEN, MAX_FRAME};
use crate::mq::{BadRecord, Loss, Refusal};
use crate::steering::Steering;
use toehold_shm::ring::{Corrupt, VERSION};

// The ring's layout, as `shm` documents it.
const CONSUMED: u64 = 128;
const SLEEPING: u64 = 256;
const STARVING: u64 = 384;
const RECORDS: u64 = 4096;
const CAPACITY: u64 = 64 << 10;

const INCARNATION: u64 = 0xbad;

/// A process that knows the protocol and has no manners.
pub(super) struct Liar {
    name: NodeName,
    number: u8,
    steering: Steering,
    section: OwnedFd,
    bell: UnixDatagram,
    /// What rings it.
    doorbell: UnixDatagram,
    /// What makes the name its own.
    _listener: OwnedFd,
    socket: OwnedFd,
    /// Where its next record goes.
    position: u64,
}

fn memory(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn section(capacity: u64, incarnation: u64) -> OwnedFd {
    let fd = memory(RECORDS + capacity, SealFlags::SHRINK);
    let mut header = b"toehold\n".to_vec();
    header.extend(VERSION.to_ne_bytes());
    header.extend(0u16.to_ne_bytes());
    header.extend((RECORDS as u32).to_ne_bytes());
    header.extend(incarnation.to_ne_bytes());
    header.extend(capacity.to_ne_bytes());
    pwrite(&fd, &header, 0).unwrap();
    fd
}

impl Liar {
    /// Dials `node`, and has said nothing yet.
    pub(super) fn dial(fabric: &Fabric, node: &str, number: u8) -> Liar {
        Self::dial_as(fabric, node, number, Steering::SOLE)
    }

    /// The same, as one of its shards.
    pub(super) fn dial_as(fabric: &Fabric, node: &str, number: u8, steering: Steering) -> Liar {
        let own = name(&format!("liar-{number}"));
        let member = MemberName {
            node: own,
            shard: steering.index,
        };
        let path = fabric.path().join(format!("{member}.sock"));
        let _ = std::fs::remove_file(&path);
        let (bell, doorbell) = UnixDatagram::pair().unwrap();
        Liar {
            bell,
            doorbell,
            name: own,
            number,
            steering,
            section: section(CAPACITY, INCARNATION),
            _listener: control::listen(&path).unwrap(),
            socket: control::dial(&fabric.path().join(format!("{node}.sock"))).unwrap(),
            position: 0,
        }
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            incarnation: INCARNATION,
            name: MemberName {
                node: self.name,
                shard: self.steering.index,
            },
            mac: mac(self.number),
            steering: self.steering,
            payload: None,
        }
    }

    fn say(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) {
        control::send(self.socket.as_fd(), &message.emit(), descriptors).unwrap();
    }

    pub(super) fn hello(&self) {
        self.say(
            &Message::Hello(self.introduction()),
            &[self.section.as_fd(), self.doorbell.as_fd()],
        );
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes the connection, and keeps the section.
    pub(super) fn hang_up(&mut self) {
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        self.socket = other.into();
    }

    /// Why it is refused; `None` if the node just hangs up.
    pub(super) fn refusal(&self, nodes: &mut [Mesh]) -> Option<Refusal> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = [0; MESSAGE_LEN];
        loop {
            nodes.iter_mut().for_each(turn);
            match control::receive(self.socket.as_fd(), &mut buffer) {
                Packet::Nothing => assert!(Instant::now() < deadline, "no answer"),
                Packet::HungUp => return None,
                Packet::Message(len, _) => match Message::parse(&buffer[..len]) {
                    Ok(Message::Refusal(reason)) => return Some(reason),
                    other => panic!("{other:?}"),
                },
                Packet::Oversized => panic!("oversized"),
            }
        }
    }

    /// A proper handshake; the lies come later.
    fn befriend(fabric: &Fabric, nodes: &mut [Mesh], number: u8) -> Liar {
        let liar = Liar::dial(fabric, "node-0", number);
        let connected = nodes[0].connected();
        liar.hello();
        drive(nodes, |nodes| nodes[0].connected() == connected + 1);
        liar
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.section, bytes, offset), Ok(bytes.len()));
    }

    fn word(&self, offset: u64, word: u64) {
        self.write(offset, &word.to_ne_bytes());
    }

    /// A record with any header: true length, kind and sequence if not told otherwise.
    pub(super) fn record(&mut self, kind: u16, body: &[u8]) {
        let size = (body.len() as u64 + 8).next_multiple_of(64);
        let place = RECORDS + self.position % CAPACITY;
        self.word(RECORDS + (self.position + size) % CAPACITY, 0);
        self.write(place + 8, body);
        self.word(place, self.header(body.len() as u32, kind));
        self.position += size;
    }

    /// A record of a kind that there is not.
    pub(super) fn break_the_ring(&mut self) {
        self.record(77, &body(0, 0, 0, &[0; 20]));
    }

    /// Says that it has the address of another one.
    pub(super) fn steal_address(&mut self, number: u8) {
        self.number = number;
    }

    fn header(&self, len: u32, kind: u16) -> u64 {
        u64::from(len) | u64::from(kind) << 32 | u64::from((self.position / 64) as u16) << 48
    }
}

/// Body of a record: its header, then the rest.
fn body(segment_size: u16, checksum: u8, references: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = segment_size.to_ne_bytes().to_vec();
    body.extend([checksum, references, 0, 0, 0, 0]);
    assert_eq!(body.len(), HEADER_LEN);
    body.extend(rest);
    body
}

fn reference(offset: u64, len: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..12].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// The honest pair goes on as if nothing was.
fn assert_unharmed(nodes: &mut [Mesh]) {
    for (from, to) in [(0, 1), (1, 0)] {
        send(&mut nodes[from], to as u8, b"unharmed").unwrap();
        assert_eq!(take(&mut nodes[to]), [b"unharmed"]);
    }
}

/// A liar does `lie` once it is a peer; it must be cut off for `reason`.
fn assert_cut_off(reason: impl Fn(NodeName) -> Loss, lie: impl FnOnce(&mut Liar)) {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    lie(&mut liar);
    let deadline = Instant::now() + PATIENCE;
    while nodes[0].statistics().corrupt == 0 {
        assert!(Instant::now() < deadline, "not noticed: {:?}", describe(&nodes));
        let _ = send(&mut nodes[0], 9, &[0; 1000]);
        take(&mut nodes[0]);
    }
    assert_eq!(nodes[0].last_loss(), Some(reason(liar.name)));
    assert_eq!((nodes[0].connected(), nodes[0].statistics().corrupt), (1, 1));
    assert_eq!(send(&mut nodes[0], 9, b"?"), Err(TransmitError::Unreachable));
    assert_unharmed(&mut nodes);
    // Whoever lied waits before it may try again, and then may.
    liar.socket = control::dial(&fabric.path().join("node-0.sock")).unwrap();
    liar.hello();
    assert_eq!(liar.refusal(&mut nodes), Some(Refusal::TryLater));
    drive(&mut nodes, |nodes| {
        if nodes[0].connected() < 2 && nodes[0].membership.handshakes.is_empty() {
            liar.socket = control::dial(&fabric.path().join("node-0.sock")).unwrap();
            liar.section = section(CAPACITY, INCARNATION);
            liar.hello();
        }
        nodes[0].connected() == 2
    });
    assert_unharmed(&mut nodes);
}

#[test]
fn lies_in_a_records_header() {
    let ring = |corrupt: Corrupt| move |name| Loss::Ring(name, corrupt);
    assert_cut_off(ring(Corrupt::RecordKind), |liar| {
        liar.word(RECORDS, liar.header(100, 0))
    });
    assert_cut_off(ring(Corrupt::RecordSequence), |liar| {
        liar.word(RECORDS, liar.header(100, 1) | 1 << 48)
    });
    assert_cut_off(ring(Corrupt::RecordLength), |liar| {
        liar.word(RECORDS, liar.header(u32::MAX, 1))
    });
    assert_cut_off(ring(Corrupt::RecordLength), |liar| {
        liar.word(RECORDS, liar.header(CAPACITY as u32 / 2, 1))
    });
    assert_cut_off(ring(Corrupt::Padding), |liar| {
        liar.word(RECORDS, liar.header(100, u16::MAX))
    });
    assert_cut_off(ring(Corrupt::RecordSequence), |liar| liar.word(RECORDS, u64::MAX));
    // Good records up to near the end, then one that crosses it.
    assert_cut_off(ring(Corrupt::RecordCrossesEnd), |liar| {
        for _ in 0..3 {
            liar.record(1, &body(0, 0, 0, &[0; 16_000]));
        }
        liar.word(RECORDS + liar.position, liar.header(30_000, 1));
    });
}

#[test]
fn lies_in_the_consumers_position() {
    let ring = |corrupt: Corrupt| move |name| Loss::Ring(name, corrupt);
    assert_cut_off(ring(Corrupt::ConsumedAhead), |liar| liar.word(CONSUMED, 1 << 40));
    assert_cut_off(ring(Corrupt::ConsumedAhead), |liar| {
        liar.word(CONSUMED, u64::MAX - 63)
    });
    assert_cut_off(ring(Corrupt::ConsumedUnaligned), |liar| liar.word(CONSUMED, 7));
}

#[test]
fn lies_in_a_record() {
    let bad = |bad: BadRecord| move |name| Loss::Record(name, bad);
    assert_cut_off(bad(BadRecord::TooShort), |liar| liar.record(1, &[]));
    assert_cut_off(bad(BadRecord::TooShort), |liar| {
        liar.record(1, &body(0, 0, 0, &[0; 13]))
    });
    assert_cut_off(bad(BadRecord::Unknown), |liar| {
        liar.record(1, &body(0, 3, 0, &[0; 60]))
    });
    assert_cut_off(bad(BadRecord::Unknown), |liar| {
        liar.record(3, &body(0, 0, 0, &[0; 60]))
    });
    // No payload memory was handed over, whatever the references say.
    let referenced = [reference(0, 1000).to_vec(), vec![0; 60]].concat();
    assert_cut_off(bad(BadRecord::OutOfBounds), |liar| {
        liar.record(2, &body(0, 0, 1, &referenced))
    });
    assert_cut_off(bad(BadRecord::TooLong), |liar| {
        liar.record(2, &body(0, 0, 1, &[0; 5000]))
    });
}

/// A liar that hands over payload memory and sends records with references.
fn refer(references: u8, places: &[[u8; 16]], headers: usize) -> Result<usize, BadRecord> {
    const PAYLOAD: u64 = 1 << 20;
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    let payload = memory(PAYLOAD + 4096, SealFlags::SHRINK);
    let introduction = Introduction {
        payload: Some((4096, PAYLOAD)),
        ..liar.introduction()
    };
    liar.say(
        &Message::Hello(introduction),
        &[liar.section.as_fd(), liar.doorbell.as_fd(), payload.as_fd()],
    );
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    assert_eq!(ftruncate(&payload, 4096), Err(Errno::PERM), "sealed");

    let rest = [places.concat(), vec![0; headers]].concat();
    liar.record(2, &body(1448, 1, references, &rest));
    let mut arrived = None;
    let deadline = Instant::now() + PATIENCE;
    while arrived.is_none() && nodes[0].statistics().corrupt == 0 {
        assert!(Instant::now() < deadline);
        nodes[0].receive(0, 8, &mut |frame| arrived = Some(whole(frame).len()));
    }
    assert_unharmed(&mut nodes);
    match (arrived, nodes[0].last_loss()) {
        (Some(len), None) => Ok(len),
        (None, Some(Loss::Record(_, bad))) => Err(bad),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lies_in_references() {
    const END: u64 = (1 << 20) + 4096;
    assert_eq!(refer(1, &[reference(4096, 1000)], 66), Ok(1066));
    assert_eq!(refer(2, &[reference(END - 1, 1), reference(4096, 5)], 66), Ok(72));
    assert_eq!(refer(8, &[reference(5000, 8000); 8], 66), Ok(64_066));
    let out_of_bounds = Err(BadRecord::OutOfBounds);
    assert_eq!(refer(1, &[reference(4095, 1000)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(0, 10)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(END - 9, 10)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(END, 1)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(u64::MAX, 1)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(u64::MAX - 3, u32::MAX)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(4096, u32::MAX)], 66), out_of_bounds);
    assert_eq!(refer(0, &[reference(4096, 10)], 66), Err(BadRecord::References));
    assert_eq!(
        refer(9, &[reference(4096, 10); 9], 66),
        Err(BadRecord::References)
    );
    assert_eq!(
        refer(255, &[reference(4096, 10); 20], 66),
        Err(BadRecord::References)
    );
    assert_eq!(refer(1, &[reference(4096, 0)], 66), Err(BadRecord::References));
    assert_eq!(refer(8, &[reference(4096, 10); 2], 20), Err(BadRecord::TooShort));
    assert_eq!(refer(2, &[reference(4096, 10); 2], 13), Err(BadRecord::TooShort));
    assert_eq!(refer(8, &[reference(4096, 9000); 8], 66), Err(BadRecord::TooLong));
    let longest = (MAX_FRAME - 66) as u32;
    assert_eq!(refer(1, &[reference(4096, longest)], 66), Ok(MAX_FRAME));
    assert_eq!(
        refer(1, &[reference(4096, longest + 1)], 66),
        Err(BadRecord::TooLong)
    );
}

#[test]
fn a_frame_longer_than_any_is_no_frame() {
    // A ring that is large enough for such a record.
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    liar.section = section(16 << 20, INCARNATION);
    liar.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    let frame = vec![0; MAX_FRAME + 1];
    liar.write(RECORDS + 8, &body(1448, 1, 0, &frame));
    liar.word(RECORDS, liar.header((HEADER_LEN + frame.len()) as u32, 1));
    drive(&mut nodes, |nodes| {
        take(&mut nodes[0]);
        nodes[0].last_loss() == Some(Loss::Record(liar.name, BadRecord::TooLong))
    });
}

#[test]
fn any_record_at_all_is_a_frame_or_a_cut() {
    let mut random = crate::random::Random::new(42);
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    for round in 0..200 {
        let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
        for _ in 0..1 + random.below(4) {
            let len = random.below(300) as usize;
            let noise: Vec<u8> = (0..len)
                .map(|_| (random.next() as u8) & if round % 2 == 0 { 3 } else { 255 })
                .collect();
            liar.record(1 + random.below(3) as u16, &noise);
        }
        for word in [CONSUMED, SLEEPING, STARVING] {
            liar.word(word, random.below(1 << 20) * random.below(2));
        }
        send(&mut nodes[0], 9, b"to a liar").unwrap();
        let deadline = Instant::now() + PATIENCE;
        drop(liar);
        while nodes[0].connected() == 2 {
            assert!(Instant::now() < deadline);
            take(&mut nodes[0]);
            let _ = send(&mut nodes[0], 9, b"to a liar");
            turn(&mut nodes[0]);
        }
        // Forget the offence: every round has its chance.
        nodes[0].membership.acquaintances = crate::mq::acquaintance::Acquaintances::new(1);
    }
    assert_unharmed(&mut nodes);
}

/// What a node answers to a hello with these descriptors.
fn hello_with(change: impl FnOnce(&mut Introduction), descriptors: &[BorrowedFd<'_>]) -> Option<Refusal> {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let liar = Liar::dial(&fabric, "node-0", 9);
    let mut introduction = liar.introduction();
    change(&mut introduction);
    liar.say(&Message::Hello(introduction), descriptors);
    let refusal = liar.refusal(&mut nodes);
    assert_eq!((nodes[0].connected(), nodes[0].statistics().refused), (1, 1));
    assert_unharmed(&mut nodes);
    refusal
}

#[test]
fn descriptors_that_are_no_section_are_refused() {
    let unchanged = |_: &mut Introduction| {};
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let none = hello_with(unchanged, &[]);
    assert_eq!(none, Some(Refusal::Malformed));
    let good = section(CAPACITY, INCARNATION);
    assert_eq!(
        hello_with(unchanged, &[good.as_fd(), bell.as_fd(), good.as_fd()]),
        Some(Refusal::Malformed)
    );

    let mut bad: Vec<(&str, OwnedFd)> = Vec::new();
    let (reader, _writer) = std::io::pipe().unwrap();
    bad.push(("a pipe", reader.into()));
    bad.push(("a device", std::fs::File::open("/dev/zero").unwrap().into()));
    bad.push(("a directory", std::fs::File::open("/").unwrap().into()));
    let file = std::env::temp_dir().join(format!("toehold-liar-{}", std::process::id()));
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    bad.push(("a file", std::fs::File::open(&file).unwrap().into()));
    std::fs::remove_file(&file).unwrap();
    bad.push(("memory of zeros", memory(RECORDS + CAPACITY, SealFlags::SHRINK)));
    bad.push(("empty memory", memory(0, SealFlags::SHRINK)));
    bad.push(("a page of memory", memory(4096, SealFlags::SHRINK)));
    bad.push(("another node's", section(CAPACITY, INCARNATION + 1)));
    bad.push(("too large a ring", section(32 << 20, INCARNATION)));
    bad.push(("an odd ring", section(CAPACITY + 4096, INCARNATION)));
    let unsealed = memory(RECORDS + CAPACITY, SealFlags::GROW);
    pwrite(&unsealed, b"toehold\n", 0).unwrap();
    bad.push(("unsealed memory", unsealed));
    let short = section(CAPACITY, INCARNATION);
    pwrite(&short, &(CAPACITY * 2).to_ne_bytes(), 24).unwrap();
    bad.push(("memory shorter than it says", short));
    for (what, descriptor) in &bad {
        assert_eq!(
            hello_with(unchanged, &[descriptor.as_fd(), bell.as_fd()]),
            Some(Refusal::BadMemory),
            "{what}"
        );
    }
    let newer = section(CAPACITY, INCARNATION);
    pwrite(&newer, &99u16.to_ne_bytes(), 8).unwrap();
    assert_eq!(
        hello_with(unchanged, &[newer.as_fd(), bell.as_fd()]),
        Some(Refusal::Version)
    );

    // What is to be rung has to be a Unix datagram socket.
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let event = toehold_shm::Doorbell::new().unwrap();
    for doorbell in [good.as_fd(), stream.as_fd(), udp.as_fd(), event.as_fd()] {
        let refused = hello_with(unchanged, &[good.as_fd(), doorbell]);
        assert_eq!(refused, Some(Refusal::BadDoorbell));
    }

    // Payload memory has to be what it is said to be, too.
    let payload =
        |offset, len| move |introduction: &mut Introduction| introduction.payload = Some((offset, len));
    let good_payload = memory(1 << 20, SealFlags::SHRINK);
    let unsealed = memory(1 << 20, SealFlags::GROW);
    assert_eq!(
        hello_with(payload(0, 1 << 20), &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::Malformed)
    );
    assert_eq!(
        hello_with(
            payload(0, 1 << 20),
            &[good.as_fd(), bell.as_fd(), unsealed.as_fd()]
        ),
        Some(Refusal::BadMemory)
    );
    for (offset, len) in [(0, (1 << 20) + 1), (1, 1 << 20), (u64::MAX, 2), (2, u64::MAX)] {
        let refused = hello_with(
            payload(offset, len),
            &[good.as_fd(), bell.as_fd(), good_payload.as_fd()],
        );
        assert_eq!(refused, Some(Refusal::BadMemory), "{offset} {len}");
    }
}

#[test]
fn false_names_and_addresses_are_refused() {
    let good = section(CAPACITY, INCARNATION);
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let own = |introduction: &mut Introduction| introduction.name = name("node-0").into();
    assert_eq!(
        hello_with(own, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::Malformed)
    );
    let nobodys = |introduction: &mut Introduction| introduction.name = name("nobody").into();
    assert_eq!(
        hello_with(nobodys, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::NotOwner)
    );
    for taken in [0, 1] {
        let address = |introduction: &mut Introduction| introduction.mac = mac(taken);
        assert_eq!(
            hello_with(address, &[good.as_fd(), bell.as_fd()]),
            Some(Refusal::DuplicateAddress)
        );
    }
    let group = |introduction: &mut Introduction| introduction.mac = [0xff; 6];
    assert_eq!(
        hello_with(group, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::BadAddress)
    );
}

#[test]
fn nonsense_instead_of_a_hello_is_refused() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let good = section(CAPACITY, INCARNATION);
    let hello = Message::Hello(Introduction {
        incarnation: INCARNATION,
        name: name("liar-9").into(),
        mac: mac(9),
        steering: Steering::SOLE,
        payload: None,
    });
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let many = [good.as_fd(); 2];
    let long = [hello.emit().to_vec(), vec![0]].concat();
    let says: [(&[u8], &[BorrowedFd<'_>]); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", &[]),
        (&hello.emit()[..50], &[good.as_fd(), bell.as_fd()]),
        (&long, &[good.as_fd(), bell.as_fd()]),
        (&[0; MESSAGE_LEN], &many),
        (&Message::Refusal(Refusal::Version).emit(), &[]),
        (
            &Message::Welcome(Introduction {
                name: name("x").into(),
                incarnation: 1,
                mac: mac(7),
                steering: Steering::SOLE,
                payload: None,
            })
            .emit(),
            &many,
        ),
    ];
    for (bytes, descriptors) in says {
        let liar = Liar::dial(&fabric, "node-0", 9);
        control::send(liar.socket.as_fd(), bytes, descriptors).unwrap();
        let refusal = liar.refusal(&mut nodes);
        assert!(matches!(refusal, None | Some(Refusal::Malformed)), "{refusal:?}");
        assert!(nodes[0].membership.handshakes.is_empty());
    }
    assert_unharmed(&mut nodes);
}

#[test]
fn silent_callers_are_hung_up_on_and_do_not_keep_others_out() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    let silent: Vec<OwnedFd> = (0..200)
        .map(|_| {
            nodes.iter_mut().for_each(turn);
            control::dial(&fabric.path().join("node-0.sock")).unwrap()
        })
        .collect();
    nodes.push(fabric.join("node-2", 2));
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 2));
    assert!(nodes[0].membership.handshakes.len() <= crate::mq::handshake::MAX_HANDSHAKES);
    drive(&mut nodes, |nodes| nodes[0].membership.handshakes.is_empty());
    assert_eq!(nodes[0].statistics().timed_out, 200);
    drop(silent);
    assert_unharmed(&mut nodes);
}

#[test]
fn a_call_that_ends_anywhere_leaves_nothing() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    for stage in 0..30 {
        let liar = Liar::dial(&fabric, "node-0", 9);
        if stage % 3 > 0 {
            nodes.iter_mut().for_each(turn);
        }
        if stage % 3 > 1 {
            liar.hello();
        }
        drop(liar);
        drive(&mut nodes, |nodes| {
            nodes[0].connected() == 1 && nodes[0].membership.handshakes.is_empty()
        });
    }
    assert_unharmed(&mut nodes);
}

#[test]
fn a_peer_that_stops_reading_fills_its_own_ring_only() {
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

/// What a node gave a liar to ring it.
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
    // The end it was given is blocking now, and says nothing to anybody else.
    rustix::io::ioctl_fionbio(&doorbell, false).unwrap();
    let mut rung = 0;
    while shout(&doorbell, b"!!!!!!!!!!!!").is_ok() {
        rung += 1;
    }
    assert!(rung > 5);
    for _ in 0..50 {
        while shout(&doorbell, &[7; 3000]).is_ok() {}
        // A full queue of rings is a ring for everybody: whoever sleeps wakes up.
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
fn a_doorbell_that_leads_nowhere_harms_its_owner_only() {
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

#[test]
fn nothing_is_heard_of_refused_welcomes() {
    // A node dials whoever has a socket in the directory; this one answers nonsense.
    let fabric = Fabric::new();
    std::fs::create_dir(fabric.path()).unwrap();
    let listener = control::listen(&fabric.path().join("liar-9.sock")).unwrap();
    let mut nodes = Vec::from(fabric.pair());
    let section = section(CAPACITY, INCARNATION);
    let welcome = |name: &str| {
        let name = name.parse().unwrap();
        Message::Welcome(Introduction {
            incarnation: INCARNATION,
            name,
            mac: mac(9),
            steering: Steering::SOLE,
            payload: None,
        })
        .emit()
    };
    let answers: [(&[u8], &[BorrowedFd<'_>]); 4] = [
        (b"hello yourself", &[]),
        (&welcome("liar-9"), &[]),
        (&welcome("liar-8"), &[section.as_fd()]),
        (&[], &[]),
    ];
    for (bytes, descriptors) in answers {
        let mut calls = Vec::new();
        drive(&mut nodes, |_| {
            calls.extend(control::accept(listener.as_fd()).unwrap());
            calls.len() == 2
        });
        for call in calls {
            if !bytes.is_empty() {
                control::send(call.as_fd(), bytes, descriptors).unwrap();
            }
        }
    }
    drive(&mut nodes, |nodes| {
        nodes.iter().all(|node| node.membership.handshakes.is_empty())
    });
    assert_eq!((nodes[0].connected(), nodes[1].connected()), (1, 1));
    assert_unharmed(&mut nodes);
}
