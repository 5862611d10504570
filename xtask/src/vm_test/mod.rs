//! `cargo xtask vm-test`: tests with virtual machines. Two have only memory in
//! common (`memory`). Two have a network card with a driver that passes frames in
//! place (`card`).
//!
//! The machines' logs are in `target/vm-test/`. Every wait has an end.

mod card;
mod guest;
mod image;
mod kernel;
mod memory;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::guest::Guest;
use crate::requirements::{self, Program};
use crate::shell::{cargo, run as run_shown, target};

/// Further requirements beyond those of the tests.
const FOR_MACHINES: &[Program] = &[
    Program {
        name: "qemu-system-x86_64",
        package: "qemu-system-x86",
        purpose: "runs virtual machines",
    },
    Program {
        name: "tipc",
        package: "iproute2",
        purpose: "sets TIPC up",
    },
    Program {
        name: "busybox",
        package: "busybox-static",
        purpose: "is the machines' shell",
    },
    Program {
        name: "strip",
        package: "binutils",
        purpose: "strips the machines' programs",
    },
    Program {
        name: "xz",
        package: "xz-utils",
        purpose: "unpacks the machines' kernel modules",
    },
];

/// Length in bytes of a file that is sent over TCP.
const FILE: u64 = 4 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// The prepared surroundings of the test.
pub(crate) struct Means {
    /// Directory of all files.
    work: PathBuf,
}

/// Prepares, builds, boots and tests.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    run_with(&means()?)
}

/// Installs the requirements. The error names those that are not available.
pub(crate) fn means() -> Result<Means> {
    let missing = requirements::provide(FOR_MACHINES);
    let names: Vec<_> = missing.iter().map(|program| program.name).collect();
    ensure!(names.is_empty(), "{} not available here", names.join(" and "));
    let work = target().join("vm-test");
    std::fs::create_dir_all(&work)?;
    for entry in std::fs::read_dir(&work)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(Means { work })
}

/// Builds, boots and tests.
pub(crate) fn run_with(Means { work }: &Means) -> Result<()> {
    let begun = Instant::now();
    // A test is built with the program, so that its features are those of a build
    // of all tests. Otherwise Cargo would rebuild everything.
    run_shown(&mut cargo([
        "build",
        "--workspace",
        "--bin",
        "toehold",
        "--lib",
        "--test",
        "nodes",
    ]))?;
    memory::run(work).context("machines with common memory")?;
    let with_cards = card::run(work).context("machines with cards")?;
    println!(
        "\nping, TCP, VLANs, bonds and TIPC between virtual machines through memory that they share{}, in {:.0} s; \
         what they said lies in {}",
        if with_cards {
            ", and TCP through cards without copies"
        } else {
            ""
        },
        begun.elapsed().as_secs_f64(),
        work.display()
    );
    Ok(())
}

fn told(begun: Instant, what: &str) {
    println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
}

/// Creates a file on one machine, which another one fetches from `address`. `with`
/// precedes the fetching program and may print something first.
fn copy(from: &mut Guest, to: &mut Guest, address: &str, with: &str) -> Result<String> {
    let make = format!("head -c {FILE} /dev/urandom >/srv/file && sha256sum </srv/file");
    let made = from.does(&make)?;
    let fetch = format!("{with} perl /fetch.pl {address} 8080 /file | sha256sum");
    let fetched = to.does(&fetch)?;
    match fetched.strip_suffix(&made) {
        Some(said) if made.len() >= 64 => Ok(said.to_owned()),
        _ => bail!("a file of {FILE} bytes was {made:?}, and came as {fetched:?}"),
    }
}
