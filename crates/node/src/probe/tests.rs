use std::sync::atomic::{AtomicBool, Ordering};

use toehold_link::Transmitter;
use toehold_link::loopback::{Loopback, LoopbackSettings};

use super::*;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 5);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 5);

fn send(link: &mut Loopback, frame: &[u8]) {
    let frame = Transmit {
        headers: frame,
        payload: &Gather::EMPTY,
        offload: Offload::default(),
    };
    link.transmit(&frame).unwrap();
    link.flush();
}

/// Probes for both addresses on a cable whose other end answers each frame as it likes.
/// Returns what came of it, and how many frames were sent.
fn ask(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Sync) -> (Result<(), AddressTaken>, usize) {
    let (mut near, mut far) = Loopback::pair([OWN.0, OTHER.0], LoopbackSettings::default()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Acquire) {
                let mut frames = Vec::new();
                far.receive(0, 64, &mut |frame| frames.push(frame.private.to_vec()));
                count += frames.len();
                frames
                    .iter()
                    .filter_map(|frame| answer(frame))
                    .for_each(|frame| send(&mut far, &frame));
                std::thread::yield_now();
            }
            count
        });
        let outcome = probe(&mut near, &[V4.into(), V6.into(), Ipv4Addr::UNSPECIFIED.into()]);
        done.store(true, Ordering::Release);
        (outcome, answering.join().unwrap())
    })
}

/// The probe of another machine.
fn other() -> Probe<'static> {
    Probe {
        own: OTHER,
        addresses: &[],
    }
}

fn arp_reply(sender_ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = other().probe_v4(V4);
    let packet = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: OTHER,
        sender_ip,
        target_mac: OWN,
        target_ip: Ipv4Addr::UNSPECIFIED,
    };
    packet.emit(&mut frame[ethernet::HEADER_LEN..]);
    frame
}

fn advertisement(target: Ipv6Addr) -> Vec<u8> {
    let dst = "ff02::1".parse().unwrap();
    let message = ndisc::Message::NeighborAdvertisement {
        router: false,
        solicited: false,
        overrides: true,
        target,
        target_link: Some(OTHER),
    };
    let mut payload = [0; ndisc::MAX_LEN];
    let len = message.emit(target, dst, &mut payload);
    let header = ipv6::Header {
        payload_len: len as u16,
        next_header: protocol::ICMPV6,
        hop_limit: ndisc::HOP_LIMIT,
        ..ipv6::Header::new(target, dst)
    };
    let mut packet = [0; ipv6::HEADER_LEN];
    header.emit(&mut packet);
    [
        &other().ethernet(Mac::BROADCAST, EtherType::IPV6)[..],
        &packet,
        &payload[..len],
    ]
    .concat()
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

//= RFC 5227 §2.1.1
//= RFC 4862 §5.4.3
#[test]
fn an_address_that_nobody_speaks_of_is_free() {
    let elsewhere = "fd77::6".parse().unwrap();
    let (outcome, asked) = ask(|frame| {
        Some(match is_arp(frame) {
            true => arp_reply(Ipv4Addr::new(10, 77, 0, 6)),
            false => advertisement(elsewhere),
        })
    });
    assert_eq!(outcome, Ok(()));
    assert_eq!(asked, 6, "three times for each");
    // A frame that comes back to its sender says nothing, nor does anything damaged.
    let (outcome, _) = ask(|frame| Some(frame.to_vec()));
    assert_eq!(outcome, Ok(()));
    let (outcome, _) = ask(|_| {
        let mut damaged = advertisement(V6);
        *damaged.last_mut().unwrap() ^= 1;
        Some(damaged)
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn whoever_has_an_address_is_named() {
    let taken = |address| Err(AddressTaken { address, by: OTHER });
    let (outcome, _) = ask(|frame| is_arp(frame).then(|| arp_reply(V4)));
    assert_eq!(outcome, taken(V4.into()));
    let (outcome, _) = ask(|frame| (!is_arp(frame)).then(|| advertisement(V6)));
    assert_eq!(outcome, taken(V6.into()));
    assert!(outcome.unwrap_err().to_string().contains("fd77::5 is in use"));
}

/// Two machines that want one address at the same moment: neither has it.
#[test]
fn whoever_wants_the_same_address_is_named() {
    for v4 in [true, false] {
        let (outcome, _) = ask(|frame| {
            let wanted = match v4 {
                true => other().probe_v4(V4),
                false => other().probe_v6(V6),
            };
            (is_arp(frame) == v4).then_some(wanted)
        });
        let address = if v4 { V4.into() } else { V6.into() };
        assert_eq!(outcome, Err(AddressTaken { address, by: OTHER }));
    }
}
