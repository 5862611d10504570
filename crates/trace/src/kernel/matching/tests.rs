use super::*;
use crate::kernel::event::{TraceLine, parse_line};
use proptest::prelude::*;

/// A ping-pong of 64 bytes over loopback, recorded on two processors with other load.
const RECORDED: [&str; 2] = [
    include_str!("../../../tests/recorded/cpu0.txt"),
    include_str!("../../../tests/recorded/cpu1.txt"),
];

/// A ping-pong of 64 bytes over a pair of veth devices between two network namespaces.
const RECORDED_VETH: [&str; 2] = [
    include_str!("../../../tests/recorded/veth0.txt"),
    include_str!("../../../tests/recorded/veth1.txt"),
];

/// The two threads of the recording over veth.
const VETH_THREADS: [u32; 2] = [5375, 5308];

/// The two threads of the recording, and their messages.
const THREADS: [u32; 2] = [31155, 31086];
const BYTES: u32 = 64;

fn recorded() -> Vec<KernelEvent> {
    events_of(RECORDED)
}

fn events_of(texts: [&str; 2]) -> Vec<KernelEvent> {
    let mut events = Vec::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        match parse_line(line.as_bytes()) {
            TraceLine::Event(event) => events.push(event),
            TraceLine::Other => {}
            other => panic!("{other:?}: {line}"),
        }
    }
    events.sort_by_key(|event| event.ticks);
    events
}

fn matched(events: &[KernelEvent]) -> (Vec<KernelMessage>, KernelMismatches) {
    let mut matcher = KernelMatcher::new(THREADS, BYTES);
    events.iter().for_each(|event| matcher.add(event));
    matcher.finished()
}

#[test]
fn recorded_ping_pong_gives_every_message_with_all_its_stages() {
    let (messages, mismatches) = matched(&recorded());
    // Ten round trips without the last answer. The one byte that started them is no message.
    assert_eq!(messages.len(), 19);
    assert_eq!(mismatches.total(), 1);
    assert_eq!(mismatches.missing[KernelEdge::Queued.index()], 1);
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(message.sender, number % 2);
        let sum: u64 = message.stage_ticks().iter().sum();
        assert_eq!(sum, message.total_ticks());
        assert!(
            message.at(KernelEdge::SwitchedTo).is_some(),
            "the receivers slept"
        );
    }
    for pair in messages.windows(2) {
        assert_eq!(
            pair[0].at(KernelEdge::NextSend),
            pair[1].at(KernelEdge::SendEntered)
        );
    }
}

#[test]
fn recorded_ping_pong_over_veth_has_the_stages_of_loopback() {
    let mut matcher = KernelMatcher::new(VETH_THREADS, BYTES);
    events_of(RECORDED_VETH)
        .iter()
        .for_each(|event| matcher.add(event));
    let (messages, mismatches) = matcher.finished();
    // Eight round trips without the last answer, and the byte that started them.
    assert_eq!((messages.len(), mismatches.total()), (15, 1));
    for message in messages {
        let stages = message.stage_ticks();
        assert_eq!(stages.iter().sum::<u64>(), message.total_ticks());
        assert!(stages[KernelStage::Device.index()] > 0);
    }
}

#[test]
fn planted_delay_moves_its_own_stage_alone() {
    // 500 ns of this machine's counter.
    const PLANTED: u64 = 1300;
    let events = recorded();
    let (before, _) = matched(&events);
    let mean = |messages: &[KernelMessage], stage: usize| {
        let sum: u64 = messages.iter().map(|message| message.stage_ticks()[stage]).sum();
        sum / messages.len() as u64
    };
    for edge in &KernelEdge::ALL[1..] {
        // Everything from this edge of the first message on happens later.
        let from = before[0].at(*edge).unwrap();
        let mut later = events.clone();
        for event in later.iter_mut().filter(|event| event.ticks >= from) {
            event.ticks += PLANTED * before.len() as u64;
        }
        let (after, mismatches) = matched(&later);
        assert_eq!((after.len(), mismatches.total()), (before.len(), 1));
        let own = KernelStage::from_edge(KernelEdge::ALL[edge.index() - 1], true).unwrap();
        for stage in KernelStage::ALL {
            let moved = mean(&after, stage.index()) - mean(&before, stage.index());
            let expected = if stage == own { PLANTED } else { 0 };
            assert!(moved.abs_diff(expected) <= 1, "{edge:?} moved {stage} by {moved}");
        }
    }
}

#[test]
fn delay_off_the_messages_way_moves_nothing() {
    let events = recorded();
    let mut later = events.clone();
    let mut acknowledgements = 0;
    for event in &mut later {
        let is_acknowledgement = match event.kind {
            Kind::Queued { len, .. } => len < BYTES + LEAST_HEADERS,
            Kind::TcpProbed { bytes, .. } => bytes == 0,
            _ => false,
        };
        if is_acknowledgement {
            event.ticks += 1300;
            acknowledgements += 1;
        }
    }
    assert!(acknowledgements > 1);
    later.sort_by_key(|event| event.ticks);
    assert_eq!(matched(&events), matched(&later));
}

#[test]
fn offset_of_the_clock_changes_no_stage() {
    let events = recorded();
    let mut moved = events.clone();
    moved.iter_mut().for_each(|event| event.ticks += 1 << 60);
    let stages = |events: &[KernelEvent]| {
        let (messages, _) = matched(events);
        messages
            .iter()
            .map(KernelMessage::stage_ticks)
            .collect::<Vec<_>>()
    };
    assert_eq!(stages(&events), stages(&moved));
}

#[test]
fn message_of_another_length_is_left_out_and_counted() {
    let mut events = recorded();
    let probe = events
        .iter_mut()
        .rfind(|event| matches!(event.kind, Kind::TcpProbed { bytes: 64, .. }));
    let probe = probe.unwrap();
    if let Kind::TcpProbed { skb, .. } = probe.kind {
        probe.kind = Kind::TcpProbed { skb, bytes: 65 };
    }
    let returned = events
        .iter_mut()
        .find(|event| event.kind == Kind::ReceiveExited { returned: 64 });
    returned.unwrap().kind = Kind::ReceiveExited { returned: -11 };
    let (_, mismatches) = matched(&events);
    assert_eq!(mismatches.other_length, 1, "the last message has no answer");
}

#[test]
fn message_without_one_event_is_left_out_and_counted_at_that_edge() {
    let events = recorded();
    let (before, usual) = matched(&events);
    for edge in KernelEdge::ALL.into_iter().filter(|edge| !edge.is_optional()) {
        let at = before[4].at(edge).unwrap();
        let mut fewer = events.clone();
        fewer.retain(|event| event.ticks != at);
        let (messages, mismatches) = matched(&fewer);
        assert!(messages.len() < before.len(), "{edge:?}");
        assert!(mismatches.total() > 1, "{edge:?}");
        // A lost send joins two messages, and the later one has no beginning.
        if !matches!(edge, KernelEdge::SendEntered | KernelEdge::NextSend) {
            let more = mismatches.missing[edge.index()] - usual.missing[edge.index()];
            assert_eq!(more, 1, "{edge:?}");
            assert_eq!(messages.len(), before.len() - 1);
        }
    }
}

#[test]
fn receiver_that_did_not_sleep_has_one_busy_stage() {
    let is_wake = |event: &KernelEvent| {
        matches!(
            event.kind,
            Kind::Waking { .. } | Kind::Woken { .. } | Kind::SwitchedTo { .. }
        )
    };
    let mut events = recorded();
    events.retain(|event| !is_wake(event));
    let (messages, _) = matched(&events);
    assert_eq!(messages.len(), 19);
    for message in messages {
        let stages = message.stage_ticks();
        assert!(stages[KernelStage::Busy.index()] > 0);
        assert_eq!(stages[KernelStage::Turn.index()], 0);
        assert_eq!(stages.iter().sum::<u64>(), message.total_ticks());
    }
}

#[test]
fn clocks_that_differ_between_processors_are_counted_as_disorder() {
    let mut events = recorded();
    for event in events.iter_mut().filter(|event| event.cpu == 1) {
        event.ticks -= 40_000_000;
    }
    // The order of the text stays. A message from processor 0 seems to arrive before it was sent.
    let (messages, mismatches) = matched(&events);
    assert_eq!(mismatches.disordered, 10, "{mismatches:?}");
    assert!(messages.iter().all(|message| message.sender == 1));
}

proptest! {
    #[test]
    fn lost_and_repeated_events_cause_no_panic_and_stages_still_add_up(
        changes in proptest::collection::vec((0_usize..300, any::<bool>(), any::<u64>()), 0..60),
    ) {
        let mut events = recorded();
        for (at, is_lost, ticks) in changes {
            let at = at % events.len();
            if is_lost {
                events.remove(at);
            } else {
                let mut event = events[at];
                event.ticks = ticks;
                events.insert(at, event);
            }
        }
        let (messages, _) = matched(&events);
        for message in messages {
            prop_assert_eq!(message.stage_ticks().iter().sum::<u64>(), message.total_ticks());
        }
    }
}

#[test]
fn saved_message_is_read_as_it_was() {
    let mut ticks = [None; KernelEdge::COUNT];
    for (place, at) in [(0, u64::MAX - 5), (1, u64::MAX), (4, 3), (13, 2)] {
        ticks[place] = Some(at);
    }
    for message in [
        KernelMessage::of(1, ticks),
        KernelMessage::of(0, [None; KernelEdge::COUNT]),
    ] {
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(
            serde_json::from_str::<KernelMessage>(&text).unwrap(),
            message,
            "{text}"
        );
    }
}
