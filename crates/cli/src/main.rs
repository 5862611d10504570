//! The `toehold` command. A file a subcommand.

mod bench;
mod interrupt;
mod side;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A TCP offload engine in software, and the laboratory that shows what it buys.
#[derive(Debug, Parser)]
#[command(name = "toehold", version = version::LINE, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "Example:\n  toehold bench sockets --quick")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Version(version::Arguments),
    /// One process of a measurement; started by `bench`, never by hand.
    #[command(name = side::NAME, hide = true)]
    Side,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Side => return side::run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("toehold: {error:#}");
        ExitCode::FAILURE
    })
}
