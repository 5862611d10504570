use core::sync::atomic::Ordering::Relaxed;
use std::fs::File;
use std::path::PathBuf;

use proptest::prelude::*;

use super::layout::HEAD;
use super::*;
use crate::Gather;
use crate::ring::Corrupt;

/// A temporary file.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let directory = std::env::temp_dir().join(format!("toehold-segment-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Place(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("segment")
    }

    fn open(&self) -> Segment {
        Segment::open(&self.path(), Some(1 << 16), 2, Part::ALL).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LIVES: [u64; 2] = [17, 18];

/// Both ends of the way from member 0 to member 1, in a session.
fn connected(place: &Place) -> (Outbound, Inbound) {
    let [here, there] = [place.open(), place.open()];
    let (mut sender, mut receiver) = (here.outbound(0, 1), there.inbound(0, 1));
    receiver.offer(9, LIVES[1], LIVES[0]);
    assert!(sender.attend(LIVES[0], LIVES[1]) && sender.is_open());
    receiver.attend();
    assert!(receiver.is_open());
    (sender, receiver)
}

fn take(receiver: &mut Inbound) -> Result<Option<Vec<u8>>, Corrupt> {
    let mut consumer = receiver.consumer().expect("a session");
    let Some(record) = consumer.peek()? else {
        return Ok(None);
    };
    let mut bytes = vec![0; record.len()];
    record.copy_to(0, &mut bytes);
    consumer.advance();
    let _ = consumer.release();
    Ok(Some(bytes))
}

#[test]
fn invalid_segments_are_refused_with_reason() {
    let place = Place::new("refused");
    let open = |make, members| {
        Segment::open(&place.path(), make, members, Part::ALL)
            .err()
            .unwrap()
    };
    assert_eq!(open(None, 2), SegmentError::Missing(place.path()));
    File::create(place.path()).unwrap();
    assert_eq!(open(None, 2), SegmentError::NoLength(place.path()));
    assert!(matches!(
        open(Some(4096), 2),
        SegmentError::TooShort { len: 4096, .. }
    ));
    assert_eq!(
        Segment::open(&std::env::temp_dir(), None, 2, Part::ALL)
            .err()
            .unwrap(),
        SegmentError::Open {
            path: std::env::temp_dir(),
            errno: Errno::ISDIR
        }
    );
    assert!(matches!(
        Segment::open("/dev/null".as_ref(), None, 2, Part::ALL),
        Err(SegmentError::NoLength(_))
    ));
    std::fs::write(place.path(), [1; 8192]).unwrap();
    assert_eq!(open(None, 2), SegmentError::NotASegment);
    std::fs::write(place.path(), [0; 5]).unwrap();
    assert!(matches!(open(None, 2), SegmentError::TooShort { len: 5, .. }));
}

#[test]
fn first_member_determines_geometry() {
    let place = Place::new("first");
    let first = Segment::open(&place.path(), Some(1 << 20), 4, Part::ALL).unwrap();
    let second = Segment::open(&place.path(), Some(1 << 10), 2, Part::ALL).unwrap();
    assert_eq!((second.members(), second.max_record()), (4, first.max_record()));
    assert_eq!(std::fs::metadata(place.path()).unwrap().len(), 1 << 20);
}

/// A record lies in its own part, and each part has its own number of members.
#[test]
fn parts_are_separate_segments() {
    let place = Place::new("parts");
    let part = |index, count| Segment::open(&place.path(), Some(1 << 18), 2, Part { index, count });
    let parts = [0, 1, 2].map(|index| [part(index, 3).unwrap(), part(index, 3).unwrap()]);
    let mut ways = parts.each_ref().map(|[here, there]| {
        let (mut sender, mut receiver) = (here.outbound(0, 1), there.inbound(0, 1));
        receiver.offer(9, LIVES[1], LIVES[0]);
        assert!(sender.attend(LIVES[0], LIVES[1]));
        receiver.attend();
        (sender, receiver)
    });
    let longest = vec![7; parts[0][0].max_record()];
    for number in 0..3 {
        ways[number].0.send(1, [&longest, b""], &Gather::EMPTY).unwrap();
        ways[number].0.publish();
        for (other, (_, receiver)) in ways.iter_mut().enumerate() {
            let expected = (other == number).then_some(longest.clone());
            assert_eq!(take(receiver), Ok(expected));
        }
    }
    for (there, wanted, index) in [(3, 1, 0), (3, 2, 0), (3, 16, 0)] {
        let refused = part(index, wanted).err().unwrap();
        assert_eq!(refused, SegmentError::Parts { there, wanted });
    }
    std::fs::remove_file(place.path()).unwrap();
    let whole = place.open();
    assert_eq!(
        part(0, 2).err().unwrap(),
        SegmentError::Parts { there: 1, wanted: 2 }
    );
    drop(whole);
}

#[test]
fn slot_has_one_owner() {
    let place = Place::new("slot");
    let [here, there] = [place.open(), place.open()];
    assert!(here.slot(0).claim(0, 17, 170));
    assert!(!there.slot(0).claim(0, 18, 180), "it is taken");
    let seen = there.slot(0).look();
    assert_eq!((seen.owner, seen.present, seen.identity), (17, 17, 170));
    here.slot(0).beat(17, 170);
    assert_ne!(there.slot(0).look().beat, seen.beat);

    // The dead member's successor claims it, and then the dead member, which was only asleep.
    assert!(there.slot(0).claim(17, 18, 180));
    assert!(!here.slot(0).belongs_to(17));
    here.slot(0).leave(17);
    assert!(there.slot(0).belongs_to(18));
    there.slot(0).leave(18);
    assert_eq!((here.slot(0).look().owner, here.slot(0).look().present), (0, 0));
}

#[test]
fn offers_of_other_lives_are_ignored() {
    let place = Place::new("lives");
    let [here, there] = [place.open(), place.open()];
    let (mut sender, mut receiver) = (here.outbound(0, 1), there.inbound(0, 1));
    assert!(!sender.attend(17, 18), "nothing is offered");
    assert_eq!(sender.send(1, [b"", b""], &Gather::EMPTY), Err(SendError::Closed));
    receiver.offer(9, 18, 16);
    assert!(!sender.attend(17, 18), "to an earlier life");
    receiver.offer(9, 17, 17);
    assert!(!sender.attend(17, 18), "by an earlier life");
    receiver.attend();
    assert!(receiver.consumer().is_none());
    receiver.offer(9, 18, 17);
    assert!(sender.attend(17, 18) && !sender.attend(17, 18));
}

#[test]
fn restarted_sender_ignores_its_leftovers() {
    let place = Place::new("restart");
    let (mut sender, mut receiver) = connected(&place);
    for _ in 0..3 {
        sender.send(1, [b"old", b""], &Gather::EMPTY).unwrap();
    }
    sender.publish();
    assert_eq!(take(&mut receiver), Ok(Some(b"old".to_vec())));
    drop(sender);
    let mut sender = place.open().outbound(0, 1);
    assert!(!sender.attend(27, LIVES[1]), "the offer was to its former life");
    receiver.offer(10, LIVES[1], 27);
    assert!(sender.attend(27, LIVES[1]));
    sender.send(1, [b"new", b""], &Gather::EMPTY).unwrap();
    sender.publish();
    receiver.attend();
    assert_eq!(take(&mut receiver), Ok(Some(b"new".to_vec())));
    assert_eq!(take(&mut receiver), Ok(None));
}

#[test]
fn lying_receiver_gets_nothing_until_new_offer() {
    let place = Place::new("liar");
    let (mut sender, mut receiver) = connected(&place);
    let lies = place.open();
    let (ring, _) = lies.way(0, 1);
    use super::super::protocol::Words;
    ring.words.consumed().store(64 * 1000, Relaxed);
    let full = std::iter::repeat_with(|| sender.send(1, [&[0; 1000], b""], &Gather::EMPTY))
        .take(1000)
        .find_map(Result::err);
    assert_eq!(full, Some(SendError::Closed));
    assert!(!sender.attend(LIVES[0], LIVES[1]), "the offer it had taken up");
    receiver.attend();
    assert!(!receiver.is_open(), "the sender is in no session");
    receiver.offer(11, LIVES[1], LIVES[0]);
    assert!(sender.attend(LIVES[0], LIVES[1]));
    assert_eq!(sender.send(1, [b"", b""], &Gather::EMPTY), Ok(()));
}

/// Writes to every place of a way that both ends read.
fn scribble(place: &Place, at: usize, word: u64) {
    let segment = place.open();
    let way = segment.geometry.way(0, 1);
    let words = HEAD + segment.geometry.capacity as usize;
    let at = way + at * 8 % words;
    // SAFETY: a word of a mapping that lives as long as `segment`, accessed as an atomic only.
    unsafe { words::word(&segment.region, at).as_ref() }.store(word, Relaxed);
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Receive,
    Offer,
    Attend,
    Scribble(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let word = prop_oneof![any::<u64>(), (0_u64..40).prop_map(|n| n * 64), (0_u64..1 << 20)];
    prop_oneof![
        4 => (0_usize..9000).prop_map(Step::Send),
        4 => Just(Step::Receive),
        1 => Just(Step::Offer),
        2 => Just(Step::Attend),
        // Mostly the words before the ring and the first headers.
        2 => (prop_oneof![0_usize..32, (0_usize..16).prop_map(|n| HEAD / 8 + n * 8), any::<usize>().prop_map(|n| n >> 4)], word)
            .prop_map(|(at, word)| Step::Scribble(at, word)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Records arrive unchanged and in order while no other process overwrites them. After that any
    /// record may arrive, but both ends continue, and a new session repairs them.
    #[test]
    fn honest_traffic_is_exact_and_nonsense_harmless(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let place = Place::new("model");
        let (mut sender, mut receiver) = connected(&place);
        let (mut sent, mut honest, mut number) = (std::collections::VecDeque::new(), true, 100);
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send(len) => {
                    let bytes = vec![at as u8; len];
                    let (head, tail) = bytes.split_at(len / 3);
                    if sender.send(1, [head, &[]], &Gather::from_slice(tail)).is_ok() {
                        sent.push_back(bytes);
                    }
                    sender.publish();
                }
                Step::Receive if receiver.is_open() => match take(&mut receiver) {
                    Ok(bytes) if honest => prop_assert_eq!(bytes, sent.pop_front()),
                    Ok(_) => {}
                    Err(_) => {
                        prop_assert!(!honest);
                        receiver.end();
                    }
                },
                Step::Receive => {}
                Step::Offer => {
                    number += 1;
                    receiver.offer(number, LIVES[1], LIVES[0]);
                    sent.clear();
                    sender.attend(LIVES[0], LIVES[1]);
                    receiver.attend();
                    sent.clear();
                    honest = sender.is_open() && receiver.is_open();
                    prop_assert!(honest);
                }
                Step::Attend => {
                    if sender.attend(LIVES[0], LIVES[1]) {
                        prop_assert!(!honest);
                    }
                    receiver.attend();
                }
                Step::Scribble(at, word) => {
                    scribble(&place, at, word);
                    honest = false;
                }
            }
        }
        // A new session repairs any damage.
        receiver.offer(99, LIVES[1], LIVES[0]);
        sender.attend(LIVES[0], LIVES[1]);
        receiver.attend();
        sender.send(1, [b"well", b""], &Gather::EMPTY).unwrap();
        sender.publish();
        prop_assert_eq!(take(&mut receiver), Ok(Some(b"well".to_vec())));
    }
}
