//! Peers that lie about the memory of direct connections. They lose these, and nothing else.

use rustix::event::{EventfdFlags, eventfd};
use toehold_shm::direct::{BellSet, Directory, Half, Signals, bank};

use super::*;
use crate::mq::direct::{DirectMessage, MAX_MESSAGES};
use crate::mq::tests::direct::{Heard, join};

fn directory() -> OwnedFd {
    Directory::create("liar", 1).unwrap().read_only_fd().unwrap()
}

fn half() -> OwnedFd {
    Half::create("liar", 1).unwrap().read_only_fd().unwrap()
}

fn signals() -> OwnedFd {
    let signals = Signals::create("liar", 1).unwrap();
    signals.fd().try_clone_to_owned().unwrap()
}

fn bells() -> Vec<OwnedFd> {
    BellSet::new().unwrap().to_list().unwrap()
}

/// What comes with a bank, and bells of which one is another descriptor.
fn bank_with(other: OwnedFd) -> Vec<OwnedFd> {
    let mut bells = bells();
    bells[7] = other;
    [half(), signals()].into_iter().chain(bells).collect()
}

/// A node with direct connections, another one beside it, and a liar that says it has them.
fn befriend(fabric: &Fabric) -> (Vec<Mesh>, Liar) {
    let mut nodes = vec![join(fabric, "node-0", 0), fabric.join("node-1", 1)];
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    let mut liar = Liar::dial(fabric, "node-0", 9);
    liar.direct = true;
    liar.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    (nodes, liar)
}

fn say(liar: &Liar, message: DirectMessage, descriptors: &[OwnedFd]) {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    control::send(liar.socket(), &message.emit(), &descriptors).unwrap();
}

/// Frames still flow, and nothing is heard of the liar any more.
fn assert_refused(mut nodes: Vec<Mesh>, liar: &Liar, what: &str) {
    let mut turns = 0;
    drive(&mut nodes, |nodes| {
        turns += 1;
        assert!(turns < 10_000, "{what}: {:?}", nodes[0].statistics());
        nodes[0].statistics().direct_refused == 1
    });
    assert_eq!(nodes[0].connected(), 2, "{what}");
    assert_unharmed(&mut nodes);
    // Its messages wake no thread from here on.
    let _ = control::send(liar.socket(), b"more", &[]);
    nodes.iter_mut().for_each(turn);
    assert_eq!(nodes[0].statistics().direct_refused, 1, "{what}");
}

#[test]
fn unsealed_directory_is_refused() {
    let (pipe, _other) = std::io::pipe().unwrap();
    let len = rustix::fs::fstat(directory()).unwrap().st_size as u64;
    let like = |len, seals| {
        let fd = memory(len, seals);
        // It begins as a directory does.
        let mut header = [0; 32];
        rustix::io::pread(directory(), &mut header, 0).unwrap();
        pwrite(&fd, &header, 0).unwrap();
        fd
    };
    let cases: Vec<(&str, Vec<OwnedFd>)> = vec![
        ("none", vec![]),
        ("two", vec![directory(), directory()]),
        ("short", vec![like(len - 4096, SealFlags::SHRINK)]),
        ("long", vec![like(len + 4096, SealFlags::SHRINK)]),
        ("unsealed", vec![like(len, SealFlags::empty())]),
        (
            "zeros",
            vec![memory(len, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)],
        ),
        ("another kind", vec![half()]),
        ("a pipe", vec![pipe.into()]),
        ("a device", vec![std::fs::File::open("/dev/zero").unwrap().into()]),
    ];
    for (what, descriptors) in cases {
        let fabric = Fabric::new();
        let (nodes, liar) = befriend(&fabric);
        say(&liar, DirectMessage::Directory, &descriptors);
        assert_refused(nodes, &liar, what);
    }
}

#[test]
fn messages_out_of_turn_are_refused() {
    type Said = Vec<(DirectMessage, Vec<OwnedFd>)>;
    let met = || (DirectMessage::Directory, vec![directory()]);
    let cases: Vec<(&str, Said)> = vec![
        (
            "a bank before the directory",
            vec![(DirectMessage::Open(0), vec![half(), signals()])],
        ),
        ("the directory twice", vec![met(), met()]),
        (
            "another bank's number",
            vec![met(), (DirectMessage::Open(1), vec![half(), signals()])],
        ),
        (
            "halves that are swapped",
            vec![met(), (DirectMessage::Open(0), vec![signals(), half()])],
        ),
        (
            "a bank without signals",
            vec![met(), (DirectMessage::Open(0), vec![half()])],
        ),
        (
            "an answer about another bank",
            vec![met(), (DirectMessage::Accept(3), vec![half(), signals()])],
        ),
        (
            "two answers",
            vec![
                met(),
                (DirectMessage::Accept(0), vec![half(), signals()]),
                (DirectMessage::Accept(0), vec![half(), signals()]),
            ],
        ),
        (
            "no after yes",
            vec![
                met(),
                (DirectMessage::Accept(0), vec![half(), signals()]),
                (DirectMessage::Decline(0), vec![]),
            ],
        ),
    ];
    for (what, said) in cases {
        let fabric = Fabric::new();
        let (nodes, liar) = befriend(&fabric);
        for (message, descriptors) in &said {
            say(&liar, *message, descriptors);
        }
        assert_refused(nodes, &liar, what);
    }
}

#[test]
fn wrong_descriptors_for_bells_are_refused() {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let device = std::fs::File::options().read(true).write(true).open("/dev/null");
    let bank: fn() -> Vec<OwnedFd> = || vec![half(), signals()];
    let few = bank().into_iter().chain(bells().into_iter().skip(1)).collect();
    let cases: Vec<(&str, DirectMessage, Vec<OwnedFd>)> = vec![
        (
            "a pipe",
            DirectMessage::OpenWithBells(0),
            bank_with(writer.into()),
        ),
        (
            "its other end",
            DirectMessage::OpenWithBells(0),
            bank_with(reader.into()),
        ),
        (
            "a device",
            DirectMessage::OpenWithBells(0),
            bank_with(device.unwrap().into()),
        ),
        ("memory", DirectMessage::AcceptWithBells(0), bank_with(half())),
        (
            "an eventfd that blocks",
            DirectMessage::AcceptWithBells(0),
            bank_with(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        ),
        ("too few", DirectMessage::OpenWithBells(0), few),
        ("none", DirectMessage::OpenWithBells(0), bank()),
        (
            "too many",
            DirectMessage::Open(0),
            bank().into_iter().chain(bells()).collect(),
        ),
    ];
    for (what, message, descriptors) in cases {
        let fabric = Fabric::new();
        let (nodes, liar) = befriend(&fabric);
        say(&liar, DirectMessage::Directory, &[directory()]);
        say(&liar, message, &descriptors);
        assert_refused(nodes, &liar, what);
    }
}

/// A peer without bells, as one of another user, or one that has no descriptors left, has no bank.
#[test]
fn bank_with_peer_without_bells_has_none() {
    let fabric = Fabric::new();
    let (mut nodes, liar) = befriend(&fabric);
    say(&liar, DirectMessage::Directory, &[directory()]);
    say(&liar, DirectMessage::Accept(0), &[half(), signals()]);
    say(&liar, DirectMessage::Open(0), &[half(), signals()]);
    let mut heard = Heard::default();
    drive(&mut nodes, |nodes| {
        heard.hear(&mut nodes[0]);
        heard.banks.len() == 2
    });
    assert!(heard.banks.iter().all(|(.., memory)| memory.bells.is_none()));
    let mut buffer = [0; MESSAGE_LEN];
    let mut accepted = false;
    while let Packet::Message(len, given) = control::receive(liar.socket(), &mut buffer) {
        if DirectMessage::parse(&buffer[..len]) == Some(DirectMessage::Accept(0)) {
            assert_eq!(given.len(), 2);
            accepted = true;
        }
    }
    assert!(accepted && nodes[0].statistics().direct_refused == 0);
}

#[test]
fn nonsense_after_the_welcome_is_refused() {
    let mut other = DirectMessage::Directory.emit();
    other[16..].copy_from_slice(&u64::from(bank::VERSION + 1).to_ne_bytes());
    for bytes in [&b"nonsense"[..], &[0; 24], &other, &[7; 4096], &[]] {
        let fabric = Fabric::new();
        let (nodes, liar) = befriend(&fabric);
        rustix::net::send(&liar.socket, bytes, rustix::net::SendFlags::DONTWAIT).unwrap();
        assert_refused(nodes, &liar, &format!("{} bytes", bytes.len()));
    }
}

#[test]
fn endless_requests_for_banks_are_refused() {
    let fabric = Fabric::new();
    let (mut nodes, liar) = befriend(&fabric);
    say(&liar, DirectMessage::Directory, &[directory()]);
    let mut heard = Heard::default();
    for number in 0..MAX_MESSAGES {
        let said = [half(), signals()];
        say(&liar, DirectMessage::Open(number), &said);
        nodes.iter_mut().for_each(turn);
        heard.hear(&mut nodes[0]);
    }
    assert_eq!(heard.banks.len(), crate::mq::MAX_BANKS.into());
    assert_eq!(heard.parted, 1);
    assert_refused(nodes, &liar, "banks");
}

/// A peer says what an older node says, and hears no more than an older node does.
#[test]
fn peer_without_direct_connections_hears_nothing_after_the_welcome() {
    let fabric = Fabric::new();
    let mut nodes = vec![join(&fabric, "node-0", 0), fabric.join("node-1", 1)];
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    let liar = Liar::befriend(&fabric, &mut nodes, 9);
    let mut buffer = [0; MESSAGE_LEN];
    let welcome = control::receive(liar.socket(), &mut buffer);
    assert!(matches!(welcome, Packet::Message(MESSAGE_LEN, descriptors) if descriptors.len() == 2));
    for _ in 0..10 {
        nodes.iter_mut().for_each(turn);
        let more = control::receive(liar.socket(), &mut buffer);
        assert!(matches!(more, Packet::Nothing), "{more:?}");
    }
}
