//! What the soak says: the first third of its time against the last.

use super::samples::{Kind, Samples};
use serde_json::{Value, json};

/// Median and quartiles of what was measured in a third of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    /// `None` of fewer than three values.
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        if values.len() < 3 {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Some(Spread {
            low: at(1),
            median: at(2),
            high: at(3),
        })
    }

    /// The bound of a later median. It is the upper fence of a box plot, or a quarter more than the
    /// median if that is more. The slack is added to it.
    fn bound(&self, slack: f64) -> f64 {
        let fence = self.high + 1.5 * (self.high - self.low);
        fence.max(self.median * 1.25) + slack
    }
}

/// A quantity of a subject in both thirds.
pub(super) struct Row {
    subject: String,
    kind: Kind,
    first: Spread,
    last: Spread,
    bound: f64,
    /// Whether the run was long enough for this quantity to settle.
    judged: bool,
}

impl Row {
    fn grew(&self) -> bool {
        self.judged && self.last.median > self.bound
    }
}

/// The seconds from which on memory and times are judged. In less, allocators still warm up.
pub(super) const SETTLED_S: f64 = 300.0;

/// Makes the rows of a run of so many seconds, whose first twentieth counts for nothing.
pub(super) fn rows(samples: &Samples, seconds: f64) -> Vec<Row> {
    let within = |values: &[(f64, f64)], from: f64, to: f64| {
        let inside = values
            .iter()
            .filter(|(at, _)| *at >= from * seconds && *at < to * seconds);
        Spread::of(inside.map(|(_, value)| *value).collect())
    };
    let row = |((subject, kind), values): (&(String, Kind), &Vec<(f64, f64)>)| {
        let first = within(values, 0.05, 1.0 / 3.0)?;
        let last = within(values, 2.0 / 3.0, 1.0)?;
        let settles = !matches!(kind, Kind::Descriptors | Kind::Files);
        Some(Row {
            subject: subject.clone(),
            kind: *kind,
            first,
            last,
            bound: first.bound(kind.slack()),
            judged: !settles || seconds >= SETTLED_S,
        })
    };
    samples.0.iter().filter_map(row).collect()
}

/// Says which rows grew.
pub(super) fn growth(rows: &[Row]) -> Vec<String> {
    let grown = rows.iter().filter(|row| row.grew());
    let say = |row: &Row| {
        let (kind, first, last) = (row.kind, row.first.median, row.last.median);
        format!(
            "{} of {} grew from {} to {}, beyond {}",
            kind.name(),
            row.subject,
            shown(kind, first),
            shown(kind, last),
            shown(kind, row.bound)
        )
    };
    grown.map(say).collect()
}

/// Prints the rows as a table.
pub(super) fn print(rows: &[Row]) {
    let head = ["subject", "quantity", "first third", "last third", "bound", ""];
    let cells = rows.iter().map(|row| {
        let spread = |spread: &Spread| {
            let [low, median, high] =
                [spread.low, spread.median, spread.high].map(|value| shown(row.kind, value));
            format!("{median} [{low} - {high}]")
        };
        let verdict = match (row.judged, row.grew()) {
            (false, _) => "not judged",
            (true, false) => "held",
            (true, true) => "GREW",
        };
        [
            row.subject.clone(),
            row.kind
                .name()
                .trim_end_matches("_bytes")
                .trim_end_matches("_ns")
                .replace('_', " "),
            spread(&row.first),
            spread(&row.last),
            shown(row.kind, row.bound),
            verdict.to_owned(),
        ]
    });
    let lines: Vec<[String; 6]> = std::iter::once(head.map(str::to_owned)).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for line in &lines {
        let padded = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    }
}

/// The rows as JSON.
pub(super) fn document(rows: &[Row]) -> Value {
    let spread = |spread: &Spread| {
        let [low, median, high] = [spread.low, spread.median, spread.high].map(|value| value as u64);
        json!({ "median": median, "quartiles": [low, high] })
    };
    rows.iter()
        .map(|row| {
            json!({
                "subject": row.subject,
                "quantity": row.kind.name(),
                "first_third": spread(&row.first),
                "last_third": spread(&row.last),
                "bound": row.bound as u64,
                "judged": row.judged,
                "grew": row.grew(),
            })
        })
        .collect()
}

/// A value with its unit.
fn shown(kind: Kind, value: f64) -> String {
    match kind {
        Kind::Memory | Kind::Shared => format!("{:.1} MiB", value / 1_048_576.0),
        Kind::Median | Kind::Tail => format!("{:.0} us", value / 1000.0),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quantity of one subject, sampled once a second for an hour.
    fn growth_of(kind: Kind, value: impl Fn(usize) -> f64) -> Vec<String> {
        let mut samples = Samples::default();
        let values = (0..3600).map(|second| (second as f64, value(second))).collect();
        samples.0.insert(("it".to_owned(), kind), values);
        growth(&rows(&samples, 3600.0))
    }

    #[test]
    fn quantity_that_stays_in_its_noise_holds() {
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<f64> = (0..3600).map(|_| 1e6 * random.f64()).collect();
        assert_eq!(growth_of(Kind::Tail, |second| noise[second]), [""; 0]);
        assert_eq!(growth_of(Kind::Memory, |_| 1e7), [""; 0]);
    }

    #[test]
    fn descriptor_lost_once_a_minute_is_reported() {
        let grown = growth_of(Kind::Descriptors, |second| (100 + second / 60) as f64);
        assert_eq!(grown, ["descriptors of it grew from 111 to 149, beyond 142"]);
    }

    #[test]
    fn leak_from_the_first_second_on_is_reported() {
        assert_eq!(growth_of(Kind::Memory, |second| second as f64 * 1e5).len(), 1);
    }

    #[test]
    fn tail_that_doubles_beyond_its_noise_is_reported() {
        let slower = |second: usize| if second < 1800 { 1e6 } else { 2e6 };
        assert_eq!(growth_of(Kind::Tail, slower).len(), 1);
    }

    #[test]
    fn short_run_judges_descriptors_and_no_times() {
        let mut samples = Samples::default();
        for kind in [Kind::Descriptors, Kind::Tail] {
            let values = (0..20)
                .map(|second| (f64::from(second), f64::from(second) * 1e9))
                .collect();
            samples.0.insert(("it".to_owned(), kind), values);
        }
        let judged: Vec<bool> = rows(&samples, 20.0).iter().map(|row| row.judged).collect();
        assert_eq!(judged, [true, false]);
    }
}
