//! Both strategies against two plain vectors.

use super::*;
use proptest::prelude::*;

/// Posted receives and unexpected messages, in order.
#[derive(Default)]
struct Oracle {
    posted: Vec<(u32, Selector)>,
    unexpected: Vec<(u32, TagEnvelope)>,
}

impl Oracle {
    fn post(&mut self, place: u32, selector: Selector) -> Option<u32> {
        let found = self.claim(&selector);
        if found.is_none() {
            self.posted.push((place, selector));
        }
        found
    }

    fn arrive(&mut self, place: u32, envelope: TagEnvelope) -> Option<u32> {
        let at = self
            .posted
            .iter()
            .position(|(_, selector)| selector.takes(&envelope));
        match at {
            Some(at) => Some(self.posted.remove(at).0),
            None => {
                self.unexpected.push((place, envelope));
                None
            }
        }
    }

    fn peek(&self, selector: &Selector) -> Option<u32> {
        let found = self
            .unexpected
            .iter()
            .find(|(_, envelope)| selector.takes(envelope));
        found.map(|(place, _)| *place)
    }

    fn claim(&mut self, selector: &Selector) -> Option<u32> {
        let place = self.peek(selector)?;
        self.unexpected.retain(|(other, _)| *other != place);
        Some(place)
    }

    fn cancel(&mut self, place: u32) -> bool {
        let before = self.posted.len();
        self.posted.retain(|(other, _)| *other != place);
        self.posted.len() < before
    }

    /// The least place that is not queued.
    fn free<T>(queue: &[(u32, T)]) -> u32 {
        (0..)
            .find(|place| queue.iter().all(|(other, _)| other != place))
            .unwrap()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Post(Selector),
    Arrive(TagEnvelope),
    Cancel(u32),
    Peek(Selector),
    Claim(Selector),
}

fn envelope() -> impl Strategy<Value = TagEnvelope> {
    (0u64..4, 0u64..3, 0u8..8).prop_map(|(tag, source, tagged)| TagEnvelope {
        tag,
        source: SourceId(source),
        is_tagged: tagged > 0,
    })
}

fn selector(most_masks: u64) -> impl Strategy<Value = Selector> {
    (envelope(), 0..most_masks, any::<bool>()).prop_map(|(envelope, ignore, is_directed)| Selector {
        tag: envelope.tag,
        // Higher bits differ in no tag: they only make more classes.
        ignore,
        source: is_directed.then_some(envelope.source),
        is_tagged: envelope.is_tagged,
    })
}

fn step(most_masks: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => selector(most_masks).prop_map(Step::Post),
        4 => envelope().prop_map(Step::Arrive),
        1 => (0u32..12).prop_map(Step::Cancel),
        1 => selector(most_masks).prop_map(Step::Peek),
        1 => selector(most_masks).prop_map(Step::Claim),
    ]
}

fn run(strategy: MatchStrategy, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut matcher, mut oracle) = (Matcher::new(strategy, [5, 6]), Oracle::default());
    for step in steps {
        match step {
            Step::Post(selector) => {
                let place = Oracle::free(&oracle.posted);
                prop_assert_eq!(matcher.post(place, *selector), oracle.post(place, *selector));
            }
            Step::Arrive(envelope) => {
                let place = Oracle::free(&oracle.unexpected);
                prop_assert_eq!(matcher.arrive(place, *envelope), oracle.arrive(place, *envelope));
            }
            Step::Cancel(place) => prop_assert_eq!(matcher.cancel(*place), oracle.cancel(*place)),
            Step::Peek(selector) => prop_assert_eq!(matcher.peek(selector), oracle.peek(selector)),
            Step::Claim(selector) => prop_assert_eq!(matcher.claim(selector), oracle.claim(selector)),
        }
        prop_assert_eq!(matcher.posted() as usize, oracle.posted.len());
        prop_assert_eq!(matcher.unexpected() as usize, oracle.unexpected.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_strategies_equal_model_with_few_classes(steps in proptest::collection::vec(step(4), 0..200)) {
        for strategy in MatchStrategy::ALL {
            run(strategy, &steps)?;
        }
    }

    #[test]
    fn both_strategies_equal_model_with_more_classes_than_keys(steps in proptest::collection::vec(step(64), 0..300)) {
        for strategy in MatchStrategy::ALL {
            run(strategy, &steps)?;
        }
    }
}

fn message(tag: u64) -> TagEnvelope {
    TagEnvelope {
        tag,
        source: SourceId(1),
        is_tagged: true,
    }
}

#[test]
fn index_that_is_being_filled_finds_oldest_message() {
    // More messages than one search fills in, some taken out at the cursor.
    const COUNT: u32 = 10_000;
    let mut matcher = Matcher::new(MatchStrategy::Bins, [1, 2]);
    for place in 0..COUNT {
        assert_eq!(matcher.arrive(place, message(u64::from(place) % 5000)), None);
    }
    let any = Selector::tagged(0).ignoring(u64::MAX);
    assert_eq!(matcher.peek(&Selector::tagged(4999)), Some(4999));
    for place in 4090..4100 {
        assert!(matcher.discard(place));
    }
    assert_eq!(matcher.peek(&Selector::tagged(4095)), Some(9095));
    assert_eq!(matcher.arrive(4090, message(4095)), None);
    for place in (0..4090).chain(4100..COUNT) {
        assert_eq!(matcher.claim(&any), Some(place));
    }
    assert_eq!(matcher.claim(&any), Some(4090));
    assert_eq!(matcher.claim(&any), None);
}

#[test]
fn deep_queues_cost_bins_no_more_than_shallow_ones() {
    let mut matcher = Matcher::new(MatchStrategy::Bins, [1, 2]);
    for place in 0..4096 {
        assert_eq!(
            matcher.post(place, Selector::tagged(u64::from(place)).ignoring(1 << 63)),
            None
        );
    }
    let before = matcher.examined();
    assert_eq!(matcher.arrive(0, message(4095)), Some(4095));
    assert!(matcher.examined() - before <= 32);
    let mut list = Matcher::new(MatchStrategy::List, [1, 2]);
    for place in 0..4096 {
        assert_eq!(list.post(place, Selector::tagged(u64::from(place))), None);
    }
    assert_eq!(list.arrive(0, message(4095)), Some(4095));
    assert_eq!(list.examined(), 4096);
}

#[test]
fn unqueued_place_is_neither_cancelled_nor_discarded() {
    for strategy in MatchStrategy::ALL {
        let mut matcher = Matcher::new(strategy, [1, 2]);
        assert!(!matcher.cancel(0) && !matcher.discard(u32::MAX));
        assert_eq!(matcher.post(3, Selector::tagged(1)), None);
        assert!(!matcher.cancel(2) && matcher.cancel(3) && !matcher.cancel(3));
        assert_eq!(matcher.posted(), 0);
    }
}
