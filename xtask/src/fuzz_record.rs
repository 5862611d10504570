//! `docs/fuzzing.md`: the results of the last recorded round of fuzzing.

use crate::fuzz::Outcome;
use crate::shell::{command, output, root};
use anyhow::Result;
use std::fmt::Write as _;

const HEAD: &str = "\
# Fuzzing

Written by `cargo xtask fuzz --keep --record`. A round is no proof: it says that
nothing was found in this time, with address checks, debug assertions and checked
arithmetic. A later round begins with the inputs kept in `fuzz/corpus`, which
`cargo xtask ci` tries on every change.

";

/// Writes the record of a round in which no target failed.
pub(crate) fn write(passed: &[(&str, Outcome)]) -> Result<()> {
    let date = output(&mut command("date", ["-u", "+%Y-%m-%d"]))?;
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism()?;
    let mut text = HEAD.to_owned();
    writeln!(
        text,
        "Round of {}, one target after the other on one of {cores} cores ({model}):\n",
        date.trim()
    )?;
    writeln!(
        text,
        "| target | runs | seconds | edges reached | inputs kept | found |"
    )?;
    writeln!(text, "| --- | ---: | ---: | ---: | ---: | --- |")?;
    for (name, outcome) in passed {
        let Outcome {
            runs,
            seconds,
            edges,
            inputs,
        } = outcome;
        writeln!(
            text,
            "| `{name}` | {runs} | {seconds} | {edges} | {inputs} | nothing |"
        )?;
    }
    std::fs::write(root().join("docs/fuzzing.md"), text)?;
    println!("docs/fuzzing.md written");
    Ok(())
}
