use toehold_trace::kernel::{KernelBlock, KernelBlockUse, KernelBlocks, KernelEdge, KernelMessage};

use super::*;
use crate::report::tests::saved_of;
use crate::report::{Saved, markdown, page, text};
use crate::samples::{Followed, Outcome, Recorder, Sample};
use crate::workload::Workload;

/// Ticks from each edge to the next without tracepoints; a tick is a nanosecond.
const STEPS: [u64; KernelEdge::COUNT - 1] =
    [2000, 60, 90, 120, 300, 500, 900, 200, 1500, 1800, 500, 700, 400];

/// Ticks that one recording takes.
const RECORDING: u64 = 100;

/// A round of blocks in which tracing costs `disturbance` ticks a message besides.
fn round(disturbance: u64) -> KernelBlocks {
    let mut now = 1000;
    let mut blocks = Vec::new();
    for block in 0..KernelBlockUse::BLOCKS_OF_ROUND {
        let block_use = KernelBlockUse::of(block);
        let recordings = block_use.recordings() as u64;
        let mut found = KernelBlock {
            block,
            block_use,
            round_trips_ns: Vec::new(),
            messages: Vec::new(),
            mismatches: KernelMismatches::default(),
            lost_events: 0,
            malformed_lines: 0,
        };
        for _ in 0..20 {
            let began = now;
            for sender in [0, 1] {
                let mut ticks = [Some(now); KernelEdge::COUNT];
                for (step, at) in STEPS.iter().zip(&mut ticks[1..]) {
                    now += step + RECORDING * recordings;
                    *at = Some(now);
                }
                if recordings > 0 {
                    now += disturbance;
                    ticks[KernelEdge::NextSend.index()] = Some(now);
                    found.messages.push(KernelMessage::of(sender, ticks));
                }
            }
            found.round_trips_ns.push(now - began);
        }
        blocks.push(found);
    }
    KernelBlocks {
        blocks,
        ns_per_tick: 1.0,
    }
}

fn sample(round_number: u32, candidate: &str, blocks: KernelBlocks) -> Sample {
    let cell = Workload::Layout {
        size: "64".parse().unwrap(),
        trips: 20,
    };
    let mut recorder = Recorder::new();
    blocks.blocks[0]
        .round_trips_ns
        .iter()
        .for_each(|ns| recorder.record(*ns));
    let side = Side {
        durations: Some(recorder.counts()),
        followed: Some(Box::new(Followed {
            clock: "a clock".into(),
            blocks,
        })),
        ..Side::default()
    };
    Sample::of_test(round_number, candidate, cell.into(), Outcome::of_both(side))
}

/// A run in which one candidate's stages add up and another one's do not.
pub(in crate::report) fn saved() -> Saved {
    let rounds = 0..9;
    let samples = rounds.flat_map(|number| {
        [
            sample(number, "kernel-loopback", round(0)),
            sample(number, "kernel-veth", round(2000)),
        ]
    });
    saved_of(&["kernel-loopback", "kernel-veth"], samples.collect())
}

#[test]
fn stages_that_add_up_close_and_others_say_that_they_do_not() {
    let run = saved();
    let [loopback, veth] = &run.report.layouts[..] else {
        panic!("{:?}", run.report.layouts);
    };
    assert!(loopback.closes, "{loopback:?}");
    let account = loopback.account.as_ref().unwrap();
    assert!(account.error.abs() < 1e-3, "{account:?}");
    let send = &account.stages[0];
    assert_eq!(
        (send.stage.as_str(), send.actor.as_str()),
        ("kernel.send", "sender")
    );
    assert!(
        (send.mean_ns - 2000.0).abs() < 1.0 && (send.cost_ns - 100.0).abs() < 1.0,
        "{send:?}"
    );
    let shares: f64 = account.stages.iter().map(|stage| stage.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");

    assert!(!veth.closes);
    assert!(veth.verdict.starts_with("does not close: "), "{}", veth.verdict);
    assert!(veth.account.as_ref().unwrap().error > 0.05);
}

#[test]
fn layout_is_in_every_form_of_a_report_and_only_a_closing_one_is_drawn() {
    let run = saved();
    let table = text(&run.report, crate::report::Look::default());
    let both = std::slice::from_ref(&run);
    let (markdown, page) = (markdown(both).replace('\\', ""), page(both));
    for form in [&table, &markdown, &page] {
        let parts = [
            "Where the time of a message of 64B goes",
            "kernel.send",
            "closing error",
            "does not close",
            "ksoftirqd",
        ];
        for part in parts {
            assert!(form.contains(part), "{part} in {form}");
        }
    }
    let data = page
        .split("<script type=\"application/json\" id=\"layouts\">")
        .nth(1)
        .unwrap();
    let data: serde_json::Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
    let drawn: Vec<_> = data[0]["bars"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bar| &bar["name"])
        .collect();
    assert_eq!(drawn, ["kernel-loopback"]);
}

#[test]
fn report_with_layouts_is_read_as_it_was_saved() {
    let report = saved().report;
    let text = serde_json::to_vec(&report).unwrap();
    let read = crate::report::Report::read("report.json".as_ref(), &text).unwrap();
    assert_eq!(read.layouts, report.layouts);
    let untraced = report.layouts[0].untraced.unwrap();
    let one_way: u64 = STEPS.iter().sum();
    assert!(untraced.p50_ns.abs_diff(one_way) < one_way / 500, "{untraced:?}");
}

#[test]
fn lost_events_and_malformed_lines_are_counted_and_shown() {
    let mut blocks = round(0);
    blocks.blocks[1].lost_events = 7;
    blocks.blocks[1].malformed_lines = 3;
    blocks.blocks[2].mismatches.missing[KernelEdge::SoftirqEntered.index()] = 5;
    let run = saved_of(&["kernel-loopback"], vec![sample(0, "kernel-loopback", blocks)]);
    let losses = &run.report.layouts[0].losses;
    assert_eq!(
        (losses.lost_events, losses.malformed_lines, losses.unfollowed),
        (7, 3, 5)
    );
    let table = text(&run.report, crate::report::Look::default());
    let parts = [
        "7 events were dropped",
        "3 lines of the trace were malformed",
        "5 messages could not be followed",
        "softirq_entry 5",
    ];
    for part in parts {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn trace_without_messages_has_a_layout_without_stages() {
    let mut blocks = round(0);
    blocks.blocks.iter_mut().for_each(|block| block.messages.clear());
    let run = saved_of(&["kernel-loopback"], vec![sample(0, "kernel-loopback", blocks)]);
    let layout = &run.report.layouts[0];
    assert!(!layout.closes && layout.account.is_none(), "{layout:?}");
    assert!(
        layout.verdict.contains("no round trip has both"),
        "{}",
        layout.verdict
    );
    let table = text(&run.report, crate::report::Look::default());
    assert!(table.contains("does not close"), "{table}");
}
