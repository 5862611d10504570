//! `cargo xtask vm-test`: what takes machines of its own, in virtual ones. Two that have only
//! memory in common (`memory`), and two with a network card whose driver hands frames over
//! where they lie (`card`).
//!
//! What the machines say lies in `target/vm-test/`. Every wait has an end.

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

/// What it needs on top of what the tests do.
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
        purpose: "shortens what the machines load",
    },
    Program {
        name: "xz",
        package: "xz-utils",
        purpose: "unpacks what the machines load",
    },
];

/// Bytes of a file that goes through TCP.
const FILE: u64 = 4 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// What is there to build on.
pub(crate) struct Means {
    /// Where everything goes.
    work: PathBuf,
}

/// Builds, boots, shows.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    run_with(&means()?)
}

/// Installs what it takes. An error says what is not to be had here.
pub(crate) fn means() -> Result<Means> {
    let missing = requirements::provide(FOR_MACHINES);
    let names: Vec<_> = missing.iter().map(|program| program.name).collect();
    ensure!(names.is_empty(), "{} not to be had here", names.join(" and "));
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

/// Builds, boots, shows.
pub(crate) fn run_with(Means { work }: &Means) -> Result<()> {
    let begun = Instant::now();
    // A test beside it, so that the features are those of a build of all tests: cargo would
    // make everything anew for others.
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

/// Copies a file that one machine makes to another one, which fetches it from an address. The
/// command in front of the fetching program's name may print something first.
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
