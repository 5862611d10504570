//! All figures as a table with one figure a line, for spreadsheets.

use super::figure::{Figure, Panel};

/// Medians and intervals of all figures, in the units of the charts.
pub(super) fn table(panels: &[Panel]) -> String {
    let mut text = String::from("figure,unit,workload,place,candidate,median,low,high,runs\r\n");
    for panel in panels {
        for figure in panel.figures.iter().chain(&panel.ratios) {
            lines(panel, figure, &mut text);
        }
    }
    text
}

fn lines(panel: &Panel, figure: &Figure, text: &mut String) {
    let about = field(&format!("{}, {}", panel.title, figure.measure));
    for series in &figure.series {
        for point in &series.points {
            let place = &figure.places[point.place];
            let estimate = &point.estimate;
            let words = [&figure.unit, &place.workload, &place.label, &series.name].map(|word| field(word));
            text.push_str(&format!(
                "{about},{},{},{},{},{}\r\n",
                words.join(","),
                estimate.median,
                estimate.low,
                estimate.high,
                estimate.runs
            ));
        }
    }
}

/// A quoted field that a spreadsheet does not take for a formula.
fn field(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        "'"
    } else {
        ""
    };
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_no_formulas() {
        assert_eq!(field("64B"), "\"64B\"");
        assert_eq!(field("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(field("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
    }
}
