use super::*;
use crate::loopback::{Loopback, LoopbackSettings};
use crate::test_frames::{PARTIAL, frame_to, receive_all, send, tcp_ipv4};
use crate::{Checksum, Offload};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MS: u64 = 1_000_000;

fn impaired(settings: ImpairSettings) -> Impair<Loopback> {
    let loopback = LoopbackSettings {
        frames: 1 << 16,
        ..LoopbackSettings::default()
    };
    Impair::new(Loopback::new(MAC, loopback), settings)
}

fn numbered(number: u16) -> Vec<u8> {
    frame_to(MAC, MAC, &number.to_be_bytes())
}

fn number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[14], frame[15]])
}

/// Sends `count` numbered frames, one a millisecond. Returns the arrival times.
fn run(link: &mut Impair<Loopback>, count: u16) -> Vec<(u64, u16)> {
    let mut arrived = Vec::new();
    for now in 0..u64::from(count) + 200 {
        arrived.extend(
            receive_all(link, now * MS)
                .iter()
                .map(|frame| (now, number(frame))),
        );
        if now < u64::from(count) {
            send(link, &numbered(now as u16), PARTIAL).unwrap();
        }
        link.flush();
    }
    arrived.extend(
        receive_all(link, 1 << 40)
            .iter()
            .map(|frame| (u64::MAX, number(frame))),
    );
    arrived
}

fn bad() -> Impairments {
    Impairments {
        loss: 0.1,
        duplicate: 0.05,
        reorder: 0.05,
        reorder_delay_ns: 5 * MS,
        delay_ns: 10 * MS,
        jitter_ns: 3 * MS,
        ..Impairments::default()
    }
}

#[test]
fn default_settings_have_no_faults() {
    let mut link = impaired(ImpairSettings::default());
    assert_eq!(link.capabilities(), link.inner().capabilities());
    let arrived = run(&mut link, 50);
    assert_eq!(
        arrived.iter().map(|&(_, number)| number).collect::<Vec<_>>(),
        (0..50).collect::<Vec<_>>()
    );
    assert_eq!(link.next_due_ns(), None);
}

#[test]
fn equal_seeds_give_equal_faults() {
    let settings = |seed| ImpairSettings {
        seed,
        transmit: bad(),
        receive: bad(),
        ..ImpairSettings::default()
    };
    let first = run(&mut impaired(settings(1)), 1000);
    assert_eq!(first, run(&mut impaired(settings(1)), 1000));
    assert_ne!(first, run(&mut impaired(settings(2)), 1000));
}

#[test]
fn loss_and_duplication_are_counted_near_their_rates() {
    let mut link = impaired(ImpairSettings {
        seed: 3,
        transmit: Impairments {
            loss: 0.2,
            duplicate: 0.1,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    });
    let arrived = run(&mut link, 5000).len() as u64;
    let ImpairStatistics {
        frames,
        lost,
        duplicated,
        ..
    } = link.transmit_statistics();
    assert_eq!(frames, 5000);
    assert_eq!(arrived, frames - lost + duplicated);
    assert!((900..1100).contains(&lost), "{lost}");
    assert!((330..470).contains(&duplicated), "{duplicated}");
}

#[test]
fn delay_and_jitter_keep_bounds_and_order() {
    let mut link = impaired(ImpairSettings {
        receive: Impairments {
            delay_ns: 10 * MS,
            jitter_ns: 7 * MS,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    });
    let arrived = run(&mut link, 500);
    assert_eq!(arrived.len(), 500);
    let mut later_than_least = 0;
    for (position, &(at, number)) in arrived.iter().enumerate() {
        assert_eq!(position, usize::from(number), "jitter does not reorder");
        // The loopback itself delivers a round later.
        let delay = at - u64::from(number);
        assert!((11..=19).contains(&delay), "frame {number} took {delay} ms");
        later_than_least += u32::from(delay > 12);
    }
    assert!(later_than_least > 100);
}

#[test]
fn reordered_frames_are_overtaken_and_all_arrive() {
    let mut link = impaired(ImpairSettings {
        seed: 9,
        transmit: Impairments {
            reorder: 0.1,
            reorder_delay_ns: 4 * MS,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    });
    let arrived: Vec<u16> = run(&mut link, 1000)
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    let out_of_order = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    assert!((60..140).contains(&out_of_order), "{out_of_order}");
    assert!(link.transmit_statistics().reordered >= out_of_order as u64);
}

#[test]
fn corruption_flips_one_bit_and_completes_checksums_first() {
    let mut link = impaired(ImpairSettings {
        transmit: Impairments {
            corrupt: 1.0,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    });
    let capabilities = link.capabilities();
    assert!(!capabilities.checksum_offload && !capabilities.local);
    assert_eq!(capabilities.super_frame, u32::from(capabilities.mtu));

    let sent = tcp_ipv4(&[0x55; 400]);
    let mut expected = sent.clone();
    crate::checksum::complete(&mut expected, true, &mut PARTIAL.clone());
    send(&mut link, &sent, PARTIAL).unwrap();
    link.flush();
    let mut seen = 0;
    link.receive(0, 10, &mut |frame| {
        assert_eq!(
            frame.offload,
            Offload {
                checksum: Checksum::Complete,
                segment_size: 0
            }
        );
        let bytes = crate::test_frames::whole(frame);
        let flipped: u32 = bytes
            .iter()
            .zip(&expected)
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert_eq!(flipped, 1);
        seen += 1;
    });
    assert_eq!(seen, 1);
}

#[test]
fn rate_spaces_frames_and_limit_drops_others() {
    let mut link = impaired(ImpairSettings {
        // 1000 bits a millisecond: a frame of 125 bytes each.
        transmit: Impairments {
            rate_bps: 1_000_000,
            limit: 10,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    });
    for _ in 0..15 {
        send(&mut link, &[2; 125], PARTIAL).unwrap();
    }
    assert_eq!(link.transmit_statistics().overflowed, 5);
    assert!(!link.prepare_sleep());
    for round in 1..=10 {
        assert_eq!(link.next_due_ns(), Some(round * MS));
        assert!(receive_all(&mut link, round * MS - 1).is_empty());
        assert_eq!(receive_all(&mut link, round * MS).len(), 1);
    }
    assert_eq!(link.next_due_ns(), None);
    assert!(link.prepare_sleep());
}

#[test]
fn full_link_delays_frames_without_loss() {
    let loopback = LoopbackSettings {
        frames: 4,
        ..LoopbackSettings::default()
    };
    let settings = ImpairSettings {
        transmit: Impairments {
            delay_ns: MS,
            ..Impairments::default()
        },
        ..ImpairSettings::default()
    };
    let mut link = Impair::new(Loopback::new(MAC, loopback), settings);
    for index in 0..20 {
        send(&mut link, &numbered(index), PARTIAL).unwrap();
    }
    let mut arrived = Vec::new();
    for _ in 0..10 {
        arrived.extend(receive_all(&mut link, MS).iter().map(|frame| number(frame)));
    }
    assert_eq!(arrived, (0..20).collect::<Vec<_>>());
    assert_eq!(link.transmit_statistics().refused, 0);
}
