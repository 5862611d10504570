//! Cost of matching a message at several depths of both queues, in nanoseconds:
//! `cargo bench -p toehold-msg`.
//!
//! `posted`: so many receives with other tags were posted before. `unexpected`: so many
//! messages with other tags have arrived before. `masked`: as `posted`, and the receive
//! takes any sender and ignores bits of the tag. Strategies take turns in each round.

use std::hint::black_box;
use std::time::Instant;
use toehold_msg::matching::{MatchStrategy, Matcher, Selector, SourceId, TagEnvelope};

const DEPTHS: [u32; 6] = [0, 16, 64, 256, 1024, 4096];
const ROUNDS: usize = 21;
const OPERATIONS: u32 = 400;
/// The tag of the messages that are matched, at no depth a queued one.
const TAG: u64 = 1 << 40;

#[derive(Clone, Copy)]
enum QueueKind {
    Posted,
    Unexpected,
    Masked,
}

impl QueueKind {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Posted, "posted"),
        (Self::Unexpected, "unexpected"),
        (Self::Masked, "masked"),
    ];

    fn selector(self, tag: u64) -> Selector {
        match self {
            Self::Masked => Selector::tagged(tag).ignoring(0xff << 56),
            _ => Selector::tagged(tag).from(SourceId(1)),
        }
    }

    fn envelope(tag: u64) -> TagEnvelope {
        TagEnvelope {
            tag,
            source: SourceId(1),
            is_tagged: true,
        }
    }

    fn filled(self, strategy: MatchStrategy, depth: u32) -> Matcher {
        let mut matcher = Matcher::new(strategy, [0x1234, 0x5678]);
        for place in 0..depth {
            let tag = u64::from(place);
            match self {
                Self::Unexpected => matcher.arrive(place, Self::envelope(tag)),
                _ => matcher.post(place, self.selector(tag)),
            };
        }
        matcher
    }

    /// Queues and matches one pair, behind all others.
    fn pair(self, matcher: &mut Matcher, depth: u32) {
        let found = match self {
            Self::Unexpected => {
                matcher.arrive(depth, black_box(Self::envelope(TAG)));
                matcher.post(depth, black_box(self.selector(TAG)))
            }
            _ => {
                matcher.post(depth, black_box(self.selector(TAG)));
                matcher.arrive(depth, black_box(Self::envelope(TAG)))
            }
        };
        assert_eq!(black_box(found), Some(depth));
    }
}

fn round_ns(queue: QueueKind, matcher: &mut Matcher, depth: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        queue.pair(matcher, depth);
    }
    start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
}

fn main() {
    println!("queue and match one message, median of {ROUNDS} rounds, ns");
    println!("{:<12}{:>8}{:>12}{:>12}", "queue", "depth", "list", "bins");
    for (queue, name) in QueueKind::ALL {
        for depth in DEPTHS {
            let mut matchers = MatchStrategy::ALL.map(|strategy| queue.filled(strategy, depth));
            let mut rounds = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (matcher, rounds) in matchers.iter_mut().zip(&mut rounds) {
                    rounds.push(round_ns(queue, matcher, depth));
                }
            }
            let [list, bins] = rounds.map(|mut rounds| {
                rounds.sort_by(f64::total_cmp);
                rounds[ROUNDS / 2]
            });
            println!("{name:<12}{depth:>8}{list:>12.1}{bins:>12.1}");
        }
    }
}
