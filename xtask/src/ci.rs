//! `cargo xtask ci`: what every change has to pass.

use crate::shell::{Steps, cargo, command, run as run_shown, target};
use crate::{book, clauses, compatibility, fuzz, links, prose, requirements, test};
use anyhow::{Result, ensure};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave the tests and the fuzzing corpora out, because `cargo xtask test` runs them.
    #[arg(long)]
    skip_tests: bool,
}

/// Runs every check, cheap ones first.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut steps = Steps::default();
    steps.step("formatting", formatting);
    steps.step("spelling", spelling);
    steps.step("licences and sources of dependencies", dependencies);
    steps.step("table of RFC clauses", || {
        clauses::run(&clauses::Arguments::checking())
    });
    steps.step("table of programs", || {
        compatibility::run(&compatibility::Arguments::checking())
    });
    steps.step("rules of prose", || prose::run(&prose::Arguments::checking()));
    steps.step("links of documents", || links::run(&links::Arguments {}));
    steps.step("documentation site", || book::run(&book::Arguments {}));
    steps.step("lints", lints);
    steps.step("documentation", documentation);
    steps.step("interleavings", interleavings);
    if !arguments.skip_tests {
        steps.step("tests", || test::run(&test::Arguments::without_corpora()));
        steps.step("fuzzing corpora", || fuzz::run(&fuzz::Arguments::replaying()));
    }
    steps.finish()
}

fn formatting() -> Result<()> {
    requirements::component("fmt", "rustfmt")?;
    run_shown(&mut cargo(["fmt", "--all", "--check"]))?;
    run_shown(&mut cargo([
        "fmt",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--check",
    ]))
}

fn spelling() -> Result<()> {
    let typos = requirements::typos()?;
    run_shown(&mut command(typos, ["--config", "typos.toml"]))
}

/// Advisories are not checked here: deny.toml says why.
fn dependencies() -> Result<()> {
    let deny = requirements::cargo_deny()?;
    run_shown(&mut command(
        deny,
        ["--log-level", "error", "check", "licenses", "bans", "sources"],
    ))
}

fn lints() -> Result<()> {
    requirements::component("clippy", "clippy")?;
    run_shown(&mut cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    // Beside the workspace. Its code is linked with the doors that are there for it only.
    let mut fuzz = cargo(["clippy", "--manifest-path", "fuzz/Cargo.toml", "--locked"]);
    fuzz.args(["--", "-D", "warnings"]);
    fuzz.env("RUSTFLAGS", "--cfg fuzzing")
        .env("CARGO_TARGET_DIR", target().join("fuzz-lints"));
    run_shown(&mut fuzz)
}

fn documentation() -> Result<()> {
    let mut doc = cargo([
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ]);
    run_shown(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The model checker replaces the atomics, so it has a target directory of its
/// own; without optimisation its searches take minutes.
fn interleavings() -> Result<()> {
    let mut loom = cargo([
        "test",
        "--package",
        "toehold-shm",
        "--package",
        "toehold-trace",
        "--release",
        "--lib",
        "--locked",
        "--",
        "loom",
    ]);
    loom.env("RUSTFLAGS", "--cfg loom -D warnings")
        .env("CARGO_TARGET_DIR", target().join("loom"));
    let counts = test::count(loom.env("CARGO_PROFILE_RELEASE_LTO", "off"))?;
    ensure!(
        counts.all_passed() && counts.passed > 0,
        "an interleaving was found that fails, or no model ran"
    );
    Ok(())
}
