use std::time::Instant;

use proptest::prelude::*;
use toehold_shm::Doorbell;

use super::conflicts::{MAX_CONFLICTS, between};
use super::fuzzing::Listener;
use super::*;
use crate::fabric::mac_of_name;

fn identity(name: &str, number: u8) -> Identity {
    Identity {
        name: name.parse().unwrap(),
        mac: mac_of_name(name),
        ipv4: [10, 77, 0, number].into(),
        ipv6: [0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number)].into(),
    }
}

fn record(name: &str) -> NodeRecord {
    let text = format!(
        r#"{{"name": "{name}", "mac": "{}", "ipv4": "0.0.0.0/0", "ipv6": "::/0", "mtu": 1500, "pid": 1,
            "started": 0}}"#,
        mac_of_name(name)
    );
    serde_json::from_str(&text).unwrap()
}

/// The pages of an uplink whose fabric has so many members.
fn pages(members: u8) -> Vec<Page> {
    let members: Vec<_> = (0..members)
        .map(|number| identity(&format!("n{number}"), number))
        .collect();
    let frames = page::frames(7, "alpha", &record("wan"), &members, 1500);
    frames.iter().map(|frame| Page::parse(frame).unwrap()).collect()
}

fn known_members(known: &Known) -> usize {
    known.list().iter().map(|beyond| beyond.members.len()).sum()
}

#[test]
fn members_are_known_once_all_pages_came_and_forgotten_with_their_uplink() {
    let (mut known, now) = (Known::default(), Instant::now());
    let first = pages(40);
    assert!(first.len() > 2);
    for (number, page) in first.iter().enumerate() {
        assert_eq!(known.take(page.clone(), now), number == 0);
        let all = number + 1 == first.len();
        assert_eq!(known_members(&known), if all { 40 } else { 0 });
    }
    // One of the next ones is lost: what was known stays so.
    for page in pages(39).into_iter().skip(1) {
        known.take(page, now);
    }
    assert_eq!(known_members(&known), 40);
    for page in pages(3) {
        known.take(page, now + PERIOD);
    }
    assert_eq!(known_members(&known), 3);
    known.expire(now + PERIOD * 4);
    assert_eq!(known.list().len(), 1);
    known.expire(now + PERIOD * 5);
    assert!(known.list().is_empty());
}

#[test]
fn whoever_makes_up_uplinks_and_members_fills_no_memory() {
    let (mut known, now) = (Known::default(), Instant::now());
    let page = pages(1).remove(0);
    for fabric in 0..1000 {
        known.take(
            Page {
                fabric,
                ..page.clone()
            },
            now,
        );
    }
    assert_eq!(known.list().len(), 256);
    for number in 0..100_000 {
        let pages = u32::MAX;
        known.take(
            Page {
                fabric: 0,
                number,
                pages,
                ..page.clone()
            },
            now,
        );
    }
    let last = Page {
        fabric: 0,
        number: 100_000,
        pages: 100_001,
        ..page
    };
    known.take(last, now);
    assert_eq!(known.list()[0].members.len(), 1024);
}

#[test]
fn a_name_or_an_address_on_both_sides_is_told() {
    let beyond = |member| Beyond {
        host: "beta".to_owned(),
        uplink: "wan".parse().unwrap(),
        fabric: 9,
        members: vec![member],
    };
    let own = [identity("web", 1), identity("db", 2)];
    let told = |member| between(&own, &[beyond(member)]);
    assert_eq!(told(identity("mail", 3)), Vec::<String>::new());
    assert!(told(identity("web", 3))[0].starts_with("a node named web is running here and on host beta"));
    let same = told(identity("mail", 2));
    assert!(
        same[0].starts_with("db and mail on host beta both have the address 10.77.0.2"),
        "{same:?}"
    );
    let far = Identity {
        mac: mac_of_name("db"),
        ..identity("mail", 3)
    };
    assert!(told(far)[0].contains(&mac_of_name("db").to_string()));
    let far = Identity {
        ipv6: own[0].ipv6,
        ..identity("mail", 3)
    };
    assert!(told(far)[0].contains("fd77::1"));
    // Uplinks have no addresses, which is not the same one.
    let none = |name| Identity {
        ipv4: [0; 4].into(),
        ipv6: [0; 16].into(),
        ..identity(name, 0)
    };
    assert!(between(&[none("a")], &[beyond(none("b"))]).is_empty());
}

#[test]
fn made_up_conflicts_are_told_up_to_a_bound() {
    let own: Vec<_> = (0..=255)
        .map(|number| identity(&format!("n{number}"), number))
        .collect();
    let beyond = |fabric: u64| Beyond {
        host: format!("host-{fabric}"),
        uplink: "wan".parse().unwrap(),
        fabric,
        members: own.iter().cycle().take(1024).cloned().collect(),
    };
    let everybody: Vec<_> = (0..256).map(beyond).collect();
    let told = between(&own, &everybody);
    assert_eq!(told.len(), MAX_CONFLICTS);
    assert_eq!(between(&own[..3], &everybody[..1]).len(), 3, "each is told once");
}

#[test]
fn pages_that_nobody_reads_fill_no_memory() {
    let bell = Arc::new(Doorbell::new().unwrap());
    let long = Exchange::new(&bell);
    (0..1000).for_each(|_| long.hear(vec![0; 65_000]));
    let heard = long.wait(Instant::now()).unwrap();
    assert_eq!(heard.pages.len(), (4 << 20) / 65_000);
    let short = Exchange::new(&bell);
    for _ in 0..2 {
        (0..5000).for_each(|_| short.hear(vec![0; 14]));
        assert_eq!(
            short.wait(Instant::now()).unwrap().pages.len(),
            1024,
            "and again when they are read"
        );
    }
}

/// Bytes that may stand in a page, whole or damaged.
fn almost_pages() -> impl Strategy<Value = Vec<u8>> {
    let frames = page::frames(
        7,
        "alpha",
        &record("wan"),
        &[identity("web", 1), identity("db", 2)],
        1500,
    );
    let whole = frames[0].clone();
    let damages = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..4);
    (damages, prop::collection::vec(any::<u8>(), 0..300)).prop_map(move |(damages, noise)| {
        if damages.len() == 3 {
            return noise;
        }
        let mut bytes = whole.clone();
        for (at, byte, kind) in damages {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn whatever_comes_is_heard_or_not_and_bounded(
        frames in prop::collection::vec(almost_pages(), 0..20),
        pages in prop::collection::vec((0..3_u64, any::<[u8; 3]>(), [0..4_u32, 0..4_u32], 0..30_000_u64), 0..40),
    ) {
        let mut listener = Listener::new();
        frames.iter().for_each(|frame| listener.frame(frame));
        for (fabric, [uplink, first, members], place, span) in pages {
            listener.page(fabric, uplink % 3, place, [first, members]);
            listener.pass(Duration::from_millis(span));
        }
    }
}
