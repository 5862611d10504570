//! The liar, and what it says.

use super::*;

// The ring's layout, as `shm` documents it.
pub(super) const CONSUMED: u64 = 128;
pub(super) const SLEEPING: u64 = 256;
pub(super) const STARVING: u64 = 384;
pub(super) const RECORDS: u64 = 4096;
pub(super) const CAPACITY: u64 = 64 << 10;

pub(super) const INCARNATION: u64 = 0xbad;

/// A process that knows the protocol and has no manners.
pub(in crate::mq::tests) struct Liar {
    pub(super) name: NodeName,
    pub(super) number: u8,
    pub(super) steering: Steering,
    gateway: Gateway,
    /// Says that it has direct connections.
    pub(super) direct: bool,
    pub(super) section: OwnedFd,
    pub(super) bell: UnixDatagram,
    /// The socket that rings the liar.
    pub(super) doorbell: UnixDatagram,
    /// The listener that makes the name the liar's.
    _listener: OwnedFd,
    pub(super) socket: OwnedFd,
    /// Where its next record goes.
    pub(super) position: u64,
}

pub(super) fn memory(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

pub(super) fn section(capacity: u64, incarnation: u64) -> OwnedFd {
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
    pub(in crate::mq::tests) fn dial(fabric: &Fabric, node: &str, number: u8) -> Liar {
        Self::dial_as(fabric, node, number, Steering::SOLE)
    }

    /// Dials `node` as one shard of its own node, and has said nothing yet.
    pub(in crate::mq::tests) fn dial_as(fabric: &Fabric, node: &str, number: u8, steering: Steering) -> Liar {
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
            gateway: Gateway::None,
            direct: false,
            section: section(CAPACITY, INCARNATION),
            _listener: control::listen(&path).unwrap(),
            socket: control::dial(&fabric.path().join(format!("{node}.sock"))).unwrap(),
            position: 0,
        }
    }

    pub(super) fn introduction(&self) -> Introduction {
        Introduction {
            incarnation: INCARNATION,
            name: MemberName {
                node: self.name,
                shard: self.steering.index,
            },
            mac: mac(self.number),
            steering: self.steering,
            payload: None,
            gateway: self.gateway,
            direct: self.direct,
        }
    }

    pub(super) fn say(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) {
        control::send(self.socket.as_fd(), &message.emit(), descriptors).unwrap();
    }

    pub(in crate::mq::tests) fn hello(&self) {
        self.say(
            &Message::Hello(self.introduction()),
            &[self.section.as_fd(), self.doorbell.as_fd()],
        );
    }

    pub(in crate::mq::tests) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes the connection, and keeps the section.
    pub(in crate::mq::tests) fn hang_up(&mut self) {
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        self.socket = other.into();
    }

    /// Why it is refused; `None` if the node just hangs up.
    pub(in crate::mq::tests) fn refusal(&self, nodes: &mut [Mesh]) -> Option<Refusal> {
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
    pub(in crate::mq::tests) fn befriend(fabric: &Fabric, nodes: &mut [Mesh], number: u8) -> Liar {
        let liar = Liar::dial(fabric, "node-0", number);
        let connected = nodes[0].connected();
        liar.hello();
        drive(nodes, |nodes| nodes[0].connected() == connected + 1);
        liar
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.section, bytes, offset), Ok(bytes.len()));
    }

    pub(super) fn word(&self, offset: u64, word: u64) {
        self.write(offset, &word.to_ne_bytes());
    }

    /// A record with any header: true length, kind and sequence if not told otherwise.
    pub(in crate::mq::tests) fn record(&mut self, kind: u16, body: &[u8]) {
        let size = (body.len() as u64 + 8).next_multiple_of(64);
        let place = RECORDS + self.position % CAPACITY;
        self.word(RECORDS + (self.position + size) % CAPACITY, 0);
        self.write(place + 8, body);
        self.word(place, self.header(body.len() as u32, kind));
        self.position += size;
    }

    /// A record of a kind that there is not.
    pub(in crate::mq::tests) fn break_the_ring(&mut self) {
        self.record(77, &body(0, 0, 0, &[0; 20]));
    }

    /// Changes what its section says of itself.
    pub(in crate::mq::tests) fn spoil_header(&mut self) {
        self.write(0, b"T");
    }

    /// Makes its section longer than the ring in it.
    pub(in crate::mq::tests) fn lengthen(&mut self) {
        ftruncate(&self.section, 1 << 40).unwrap();
    }

    /// Says that it is a gateway.
    pub(in crate::mq::tests) fn lead(&mut self) {
        self.gateway = Gateway::Uplink;
    }

    /// A frame in one piece, as an honest node would write it.
    pub(in crate::mq::tests) fn frame(&mut self, bytes: &[u8]) {
        self.record(1, &body(0, 1, 0, bytes));
    }

    /// Says that it has the address of another one.
    pub(in crate::mq::tests) fn steal_address(&mut self, number: u8) {
        self.number = number;
    }

    pub(super) fn header(&self, len: u32, kind: u16) -> u64 {
        u64::from(len) | u64::from(kind) << 32 | u64::from((self.position / 64) as u16) << 48
    }
}

/// Body of a record: its header, then the rest.
pub(super) fn body(segment_size: u16, checksum: u8, references: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = segment_size.to_ne_bytes().to_vec();
    body.extend([checksum, references, 0, 0, 0, 0]);
    assert_eq!(body.len(), HEADER_LEN);
    body.extend(rest);
    body
}

pub(super) fn reference(offset: u64, len: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..12].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// The honest pair goes on as if nothing was.
pub(super) fn assert_unharmed(nodes: &mut [Mesh]) {
    for (from, to) in [(0, 1), (1, 0)] {
        send(&mut nodes[from], to as u8, b"unharmed").unwrap();
        assert_eq!(take(&mut nodes[to]), [b"unharmed"]);
    }
}
