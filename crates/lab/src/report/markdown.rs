//! A report as Markdown, for pasting into discussions.

use super::difference::Difference;
use super::facts;
use super::figure::{Figure, Panel, Series, panels};
use super::finding::Finding;
use super::findings::findings;
use super::format::digits;
use super::layout::{self, MessageLayout};
use super::saved::Saved;
use super::worst;

/// Lines of a failed candidate's output. The page and the samples have all of it.
const OUTPUT_LINES: usize = 5;

/// Formats runs as Markdown: findings, main figures, doubts.
pub fn markdown(runs: &[Saved]) -> String {
    let mut text = String::new();
    for run in runs {
        if !text.is_empty() {
            text.push('\n');
        }
        of_run(run, &mut text);
    }
    text
}

fn of_run(run: &Saved, text: &mut String) {
    let report = &run.report;
    let panels = panels(report, &run.samples);
    text.push_str(&format!(
        "## {}\n\n{}\n",
        plain(&report.header.plan.title),
        plain(&facts::line(&report.header))
    ));
    worst_first(run, text);
    for layouts in report.layouts_by_cell() {
        laid_out(&layouts, text);
    }
    let findings = findings(report, &panels);
    if !findings.is_empty() {
        text.push('\n');
    }
    for finding in &findings {
        text.push_str(&format!("- {}\n", line(finding)));
    }
    for panel in &panels {
        tables(panel, text);
    }
    let doubts = run.doubts();
    if !doubts.is_empty() {
        text.push_str("\nTo be read with care:\n\n");
    }
    for doubt in doubts {
        text.push_str(&format!("- {}\n", plain(&doubt)));
    }
    failures(run, text);
}

/// Programs with several workers.
fn worst_first(run: &Saved, text: &mut String) {
    let standings = &run.report.worst;
    if standings.is_empty() {
        return;
    }
    text.push_str(&format!("\n### {}\n\n", plain(worst::TITLE)));
    let heads = worst::HEADS.map(plain).join(" | ");
    text.push_str(&format!("| | {heads} |\n| --- | --- | ---: | ---: | ---: |\n"));
    for row in worst::rows(standings) {
        let cells: Vec<_> = row.cells.iter().map(|cell| plain(cell)).collect();
        text.push_str(&format!("| {} | {} |\n", plain(&row.name), cells.join(" | ")));
    }
    text.push_str(&format!("\n{}\n", worst::summary(standings)));
}

/// The layouts of one message side by side.
fn laid_out(layouts: &[&MessageLayout], text: &mut String) {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let heads = layout::heads(layouts);
    let marks = " ---: |".repeat(heads.len() - 2);
    text.push_str(&format!("\n### {}\n\n", plain(&layout::title(layouts))));
    text.push_str(&format!("{}| --- | --- |{marks}\n", line(&heads)));
    for row in layout::stage_rows(layouts) {
        text.push_str(&line(&row));
    }
    text.push('\n');
    let unseen = layouts
        .first()
        .into_iter()
        .flat_map(|layout| layout.blind_spots.clone());
    for remark in layout::remarks(layouts).into_iter().chain(unseen) {
        text.push_str(&format!("- {}\n", plain(&remark)));
    }
}

/// A finding as a line.
fn line(finding: &Finding) -> String {
    let said = |ours: &Difference| {
        let place = ours
            .place
            .as_ref()
            .map_or(String::new(), |place| format!(" at {}", plain(place)));
        format!("**{}** [{}]{place}", ours.text, ours.interval)
    };
    let ours = finding.ours.iter().map(said).collect::<Vec<_>>().join(", ");
    let measured = match &finding.compared {
        Some((candidate, baseline)) => format!("{} against {}: {ours}", plain(candidate), plain(baseline)),
        None => ours,
    };
    let expected = finding.expected.as_ref().map(|expected| {
        let text = plain(&expected.text);
        match expected.verdict.as_str() {
            "" => text,
            verdict => format!("{text}: {verdict}"),
        }
    });
    let parts = [Some(measured), expected].into_iter().flatten();
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    format!("{}: {}", plain(&finding.about), parts.join("; "))
}

/// The main figure of a panel and its ratios.
fn tables(panel: &Panel, text: &mut String) {
    text.push_str(&format!("\n### {}\n", plain(&panel.title)));
    for figure in panel.figures.iter().take(1).chain(&panel.ratios) {
        text.push_str(&format!("\n{} ({})\n\n", plain(&figure.measure), figure.unit));
        table(figure, text);
    }
}

fn table(figure: &Figure, text: &mut String) {
    let names = figure.series.iter().map(|series| plain(&series.name));
    let first = plain(figure.axis.as_deref().unwrap_or_default());
    let head = [first].into_iter().chain(names).collect::<Vec<_>>();
    text.push_str(&format!(
        "| {} |\n| --- |{}\n",
        head.join(" | "),
        " ---: |".repeat(figure.series.len())
    ));
    for (index, place) in figure.places.iter().enumerate() {
        let cell = |series: &Series| match figure.at(series, index) {
            Some(it) if series.is_paper => digits(it.median),
            Some(it) => format!("{} [{}–{}]", digits(it.median), digits(it.low), digits(it.high)),
            None => "–".into(),
        };
        let cells = figure.series.iter().map(cell).collect::<Vec<_>>();
        text.push_str(&format!("| {} | {} |\n", plain(&place.label), cells.join(" | ")));
    }
}

fn failures(run: &Saved, text: &mut String) {
    let missing = run.report.candidates.iter();
    let missing = missing.filter_map(|(name, fate)| Some((name, fate.unavailable.as_ref()?)));
    let missing =
        missing.map(|(name, reason)| format!("- {} was not measured: {}\n", plain(name), plain(reason)));
    let failed = run.report.failures.iter().map(|failure| {
        let lines = failure.output.lines().collect::<Vec<_>>();
        let last = lines[lines.len().saturating_sub(OUTPUT_LINES)..].iter();
        // Indented by eight, any text is code within an item.
        let output = last.map(|line| format!("\n        {line}")).collect::<String>();
        let output = if output.is_empty() {
            output
        } else {
            format!("\n{output}")
        };
        format!(
            "- {} failed at {} in round {}: {}{output}\n",
            plain(&failure.candidate),
            plain(&failure.workload),
            failure.round + 1,
            plain(&failure.reason),
        )
    });
    let all = missing.chain(failed).collect::<Vec<_>>();
    if !all.is_empty() {
        text.push_str(&format!("\nNot measured, or failed:\n\n{}", all.concat()));
    }
}

/// Escapes text for Markdown, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => plain.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' | '!' | '@' => {
                plain.extend(['\\', letter]);
            }
            letter => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::difference::Tone;
    use crate::report::finding::Expected;
    use crate::report::tests::saved;

    #[test]
    fn markdown_has_findings_figures_and_failures() {
        let text = markdown(&[saved()]);
        for part in [
            "## Stream sockets between two processes of one machine\n",
            "toehold against kernel-veth: **10.0× lower** [10.0–10.0]",
            "**10.0× higher** [10.0–10.0]",
            "| 64B | 1.00 [0.500–1.50] | 10.0 [5.00–15.0] |",
            "- missing was not measured: install it; not with that MTU\n",
            "- floor failed at stream in round 2: no answer in time\n\n        line 5\n",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
    }

    #[test]
    fn statement_without_figure_stands_alone() {
        let finding = Finding {
            panel: String::new(),
            about: "All of it".into(),
            compared: None,
            ours: Vec::new(),
            expected: Some(Expected {
                text: "paper: it is fast".into(),
                verdict: String::new(),
                tone: Tone::Same,
            }),
        };
        assert_eq!(line(&finding), "All of it: paper: it is fast");
    }

    #[test]
    fn markdown_characters_are_escaped() {
        assert_eq!(plain("a|b\n<b> *x* @all"), "a\\|b \\<b\\> \\*x\\* \\@all");
    }
}
