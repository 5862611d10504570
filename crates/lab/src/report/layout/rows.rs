//! Layouts as rows of tables, for terminals, Markdown and pages.

use super::{LayoutAccount, MessageLayout};

/// The title of the layouts of one message.
pub(in crate::report) fn title(layouts: &[&MessageLayout]) -> String {
    let message = layouts.first().map_or("", |layout| &layout.message);
    format!("Where the time of a message of {message} goes, one way")
}

/// The cells of a candidate in a row: the mean with its interval, the median, and the share.
type Cells = [String; 3];

/// The heads of the columns: the stage, what happens in it, and those of each candidate.
pub(in crate::report) fn heads(layouts: &[&MessageLayout]) -> Vec<String> {
    let fixed = ["stage", "what happens"].map(str::to_owned);
    let candidates = layouts
        .iter()
        .flat_map(|layout| [format!("{} (ns)", layout.candidate), "median".into(), "%".into()]);
    fixed.into_iter().chain(candidates).collect()
}

/// A row for each stage of any candidate, then the sum, the time without tracepoints, the error,
/// and the verdict.
pub(in crate::report) fn stage_rows(layouts: &[&MessageLayout]) -> Vec<Vec<String>> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for order in toehold_trace::kernel::KernelStage::ALL {
        let accounts = layouts.iter().filter_map(|layout| layout.account.as_ref());
        let mut stages = accounts.flat_map(|account| &account.stages);
        if let Some(stage) = stages.find(|stage| stage.stage == order.name()) {
            names.push((&stage.stage, &stage.about));
        }
    }
    let mut rows: Vec<Vec<String>> = names
        .iter()
        .map(|(name, about)| row(layouts, name, about))
        .collect();
    let summary = |name: &str, about: &str, cells: &dyn Fn(&MessageLayout) -> Cells| {
        let fixed = [name, about].map(str::to_owned);
        fixed
            .into_iter()
            .chain(layouts.iter().flat_map(|layout| cells(layout)))
            .collect()
    };
    let none = || ["-", "", ""].map(str::to_owned);
    let of_account = |layout: &MessageLayout, figure: fn(&LayoutAccount) -> Cells| {
        layout.account.as_ref().map_or_else(none, figure)
    };
    rows.push(summary("all stages", "their sum", &|layout| {
        of_account(layout, |account| {
            [format!("{:.0}", account.sum_ns), String::new(), "100".into()]
        })
    }));
    rows.push(summary("measured", "without tracepoints", &|layout| {
        of_account(layout, |account| {
            [
                format!("{:.0}", account.untraced_ns),
                String::new(),
                String::new(),
            ]
        })
    }));
    rows.push(summary("closing error", "sum against measured", &|layout| {
        of_account(layout, |account| {
            [
                format!("{:+.0}", account.sum_ns - account.untraced_ns),
                format!("{:+.1} %", account.typical_error * 100.0),
                format!("{:+.1}", account.error * 100.0),
            ]
        })
    }));
    rows.push(summary("verdict", "", &|layout| {
        let word = if layout.closes { "closes" } else { "does not close" };
        [word.to_owned(), String::new(), String::new()]
    }));
    rows
}

fn row(layouts: &[&MessageLayout], name: &str, about: &str) -> Vec<String> {
    let cells = |layout: &&MessageLayout| {
        let mut stages = layout.account.iter().flat_map(|account| &account.stages);
        match stages.find(|stage| stage.stage == name) {
            Some(stage) => [
                format!(
                    "{:.0} [{:.0} to {:.0}]",
                    stage.mean_ns, stage.low_ns, stage.high_ns
                ),
                format!("{:.0}", stage.median_ns),
                format!("{:.1}", stage.share * 100.0),
            ],
            None => ["-", "", ""].map(str::to_owned),
        }
    };
    let fixed = [name, about].map(str::to_owned);
    fixed.into_iter().chain(layouts.iter().flat_map(cells)).collect()
}

/// Sentences below the table: verdicts, and the parts of traces that are not in the stages.
pub(in crate::report) fn remarks(layouts: &[&MessageLayout]) -> Vec<String> {
    let mut remarks = Vec::new();
    for layout in layouts {
        let MessageLayout {
            candidate,
            verdict,
            losses,
            ..
        } = layout;
        let error = layout.account.as_ref().map(|account| {
            let [error, low, high] =
                [account.error, account.error_low, account.error_high].map(|share| share * 100.0);
            let (rounds, samples) = (account.rounds, account.samples);
            format!(
                " (error {error:+.1} % [{low:+.1} to {high:+.1}], {rounds} rounds, {samples} round trips)"
            )
        });
        remarks.push(format!("{candidate}: {verdict}{}", error.unwrap_or_default()));
        let lost = [
            (losses.unfollowed, "messages could not be followed"),
            (losses.lost_events, "events were dropped by the kernel"),
            (losses.malformed_lines, "lines of the trace were malformed"),
        ];
        let lost = lost.iter().filter(|(count, _)| *count > 0);
        remarks.extend(lost.map(|(count, what)| format!("{candidate}: {count} {what}")));
        let missing = losses.missing.iter();
        let missing: Vec<_> = missing.map(|(name, count)| format!("{name} {count}")).collect();
        if !missing.is_empty() {
            remarks.push(format!(
                "{candidate}: missing tracepoints: {}",
                missing.join(", ")
            ));
        }
    }
    remarks
}
