//! The first rank's report on both ranks.

use crate::samples::{CpuUse, Recorder, Side};

/// Parses the counts of both ranks, for messages of `size` bytes. Returns `None` for an invalid
/// text.
pub(super) fn sides(text: &str, size: u64) -> Option<(Side, Side)> {
    let mut ranks = Vec::new();
    let (mut messages, mut span_ns) = (None, None);
    let mut times = Recorder::new();
    let mut timed = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let what = words.next()?;
        let numbers = words
            .map(|word| word.parse().ok())
            .collect::<Option<Vec<u64>>>()?;
        match (what, &numbers[..]) {
            ("messages", [count]) => messages = Some(*count),
            ("span_ns", [span]) => span_ns = Some(*span),
            (
                "rank",
                &[
                    user_us,
                    system_us,
                    voluntary_switches,
                    involuntary_switches,
                    engine_ns,
                ],
            ) => {
                let cpu = CpuUse {
                    user_ns: user_us.checked_mul(1000)?,
                    system_ns: system_us.checked_mul(1000)?,
                    voluntary_switches,
                    involuntary_switches,
                };
                ranks.push((cpu, engine_ns));
            }
            ("time", [time]) => {
                times.record(*time);
                timed = true;
            }
            ("end", []) => {}
            _ => return None,
        }
    }
    let (messages, span_ns) = (messages?, span_ns?);
    let side = |(cpu, engine_ns): &(CpuUse, u64)| {
        Some(Side {
            messages,
            bytes: messages.checked_mul(size)?,
            span_ns,
            cpu: *cpu,
            engine_ns: *engine_ns,
            ..Side::default()
        })
    };
    let [first, other] = &ranks[..] else { return None };
    let (first, other) = (side(first)?, side(other)?);
    let durations = timed.then(|| times.counts());
    Some((Side { durations, ..first }, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_both_ranks_is_parsed() {
        let text = "messages 4\nspan_ns 9000\nrank 2 3 4 5 6\nrank 7 0 0 1 0\ntime 100\ntime 300\nend\n";
        let (first, other) = sides(text, 64).unwrap();
        assert_eq!((first.messages, first.bytes, first.span_ns), (4, 256, 9000));
        assert_eq!(
            (first.cpu.user_ns, first.cpu.system_ns, first.engine_ns),
            (2000, 3000, 6)
        );
        assert_eq!(first.durations.unwrap().0, [(100, 1), (300, 1)]);
        assert_eq!((other.cpu.user_ns, other.durations), (7000, None));
    }

    #[test]
    fn incomplete_report_is_refused() {
        assert_eq!(sides("messages 4\nspan_ns 9000\nrank 2 3 4 5 6\nend\n", 64), None);
        assert_eq!(
            sides("messages 4\nrank 2 3 4 5 6\nrank 2 3 4 5 6\nend\n", 64),
            None
        );
        assert_eq!(sides("messages -4\n", 64), None);
        assert_eq!(sides("messages 4\nsomething else\n", 64), None);
    }
}
