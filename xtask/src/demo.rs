//! `cargo xtask demo`: measures Toehold beside the kernel on this machine.

use crate::requirements::{self, FOR_TESTS};
use crate::shell::{cargo, command, root, run as run_shown, target};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Builds the release binary, runs the short benchmark and prints the path of the
/// result.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    requirements::provide(FOR_TESTS);
    run_shown(&mut cargo(["build", "--release"]))?;
    let results = target().join("demo");
    std::fs::create_dir_all(&results)?;
    let result = results.join("sockets.json");
    let begun = Instant::now();
    let mut toehold = command(
        target().join("release/toehold"),
        ["bench", "sockets", "--quick", "--json"],
    );
    run_shown(toehold.arg(&result).arg("--out").arg(&results))?;
    let size = std::fs::metadata(&result)
        .context("the benchmark left no result")?
        .len();
    if size == 0 {
        bail!("the benchmark left an empty result at {}", result.display());
    }
    let shown = result.strip_prefix(root()).map_or(result.as_path(), Path::new);
    println!(
        "\nMeasured in {:.0} s. The result lies in {}",
        begun.elapsed().as_secs_f64(),
        shown.display()
    );
    Ok(())
}
