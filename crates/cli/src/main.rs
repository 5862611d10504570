//! The `toehold` command. A file a subcommand.

mod bench;
mod interrupt;
mod json;
mod measurement;
mod model;
mod nodes;
mod plans;
mod report;
mod side;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A TCP offload engine in software, and the laboratory that shows what it buys.
#[derive(Debug, Parser)]
#[command(name = "toehold", version = version::LINE, arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  toehold run -- wrk http://web/\n  toehold up web db\n  toehold ps\n  toehold bench sockets --quick"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Arguments),
    List(plans::list::Arguments),
    Reproduce(plans::reproduce::Arguments),
    Sweep(plans::sweep::Arguments),
    Compare(plans::compare::Arguments),
    Report(report::Arguments),
    Model(model::Arguments),
    #[command(flatten)]
    Start(Start),
    Up(nodes::up::Arguments),
    Uplink(nodes::uplink::Arguments),
    Device(nodes::device::Arguments),
    Down(nodes::down::Arguments),
    Ps(nodes::ps::Arguments),
    Placement(nodes::placement::Arguments),
    Sockets(nodes::sockets::Arguments),
    Stat(nodes::stat::Arguments),
    Capture(nodes::capture::Arguments),
    Version(version::Arguments),
    /// One process of a measurement; started by measurements, never by hand.
    #[command(name = side::NAME, hide = true)]
    Side,
    /// The other machine's end of a measurement between two; started by measurements, never by hand.
    #[command(name = toehold_lab::far::NAME, hide = true)]
    FarSide(side::FarSide),
    /// Clients of a web server that is measured; started by measurements, never by hand.
    #[command(name = toehold_lab::programs::web::NAME, hide = true)]
    WebClients(side::WebClients),
    /// Clients of a server with several workers; started by measurements, never by hand.
    #[command(name = toehold_lab::programs::workers::NAME, hide = true)]
    WorkersClients(side::WorkersClients),
}

/// The commands that begin a program or an engine process. A user waits for them at each
/// start, so that [`parse`] builds the command line of these alone.
#[derive(Debug, Subcommand)]
enum Start {
    Run(nodes::run::Arguments),
    /// The engine process of a node; started by `up`, never by hand.
    #[command(name = nodes::engine::NAME, hide = true)]
    Engine(nodes::engine::Arguments),
    /// The engine process of an uplink or a device; started by them, never by hand.
    #[command(name = nodes::forward::NAME, hide = true)]
    Forward(nodes::forward::Arguments),
}

/// The command line of [`Start`] alone: its commands read and say what they do in [`Arguments`].
#[derive(Debug, Parser)]
#[command(name = "toehold", version = version::LINE)]
struct StartArguments {
    #[command(subcommand)]
    command: Start,
}

/// Reads the command line. To build all commands costs more instructions than the rest of
/// a program's start together.
fn parse(line: &[OsString]) -> Result<Command, clap::Error> {
    let named = line.get(1).and_then(|name| name.to_str());
    if named.is_some_and(Start::has_subcommand) {
        let arguments = StartArguments::try_parse_from(line)?;
        return Ok(Command::Start(arguments.command));
    }
    Ok(Arguments::try_parse_from(line)?.command)
}

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let command = match parse(&line) {
        Ok(command) => command,
        Err(said) => {
            // Help that cannot be written is an error, as any other output.
            let status = u8::try_from(said.exit_code()).unwrap_or(1);
            return ExitCode::from(if said.print().is_ok() { status } else { 1 });
        }
    };
    let done = match command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::List(arguments) => plans::list::run(&arguments),
        Command::Reproduce(arguments) => plans::reproduce::run(&arguments),
        Command::Sweep(arguments) => plans::sweep::run(&arguments),
        Command::Compare(arguments) => plans::compare::run(&arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Model(arguments) => model::run(&arguments),
        Command::Start(Start::Run(arguments)) => nodes::run::run(arguments),
        Command::Up(arguments) => nodes::up::run(arguments),
        Command::Uplink(arguments) => nodes::uplink::run(arguments),
        Command::Device(arguments) => nodes::device::run(arguments),
        Command::Start(Start::Forward(arguments)) => nodes::forward::run(arguments),
        Command::Down(arguments) => nodes::down::run(&arguments),
        Command::Ps(arguments) => nodes::ps::run(&arguments),
        Command::Placement(arguments) => nodes::placement::run(&arguments),
        Command::Sockets(arguments) => nodes::sockets::run(&arguments),
        Command::Stat(arguments) => nodes::stat::run(&arguments),
        Command::Capture(arguments) => nodes::capture::run(&arguments),
        Command::Start(Start::Engine(arguments)) => nodes::engine::run(arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Side => return side::run(),
        Command::FarSide(arguments) => arguments.run(),
        Command::WebClients(arguments) => return arguments.run(),
        Command::WorkersClients(arguments) => return arguments.run(),
    };
    done.unwrap_or_else(|error| {
        let is_unread = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
        if error.downcast_ref().is_some_and(is_unread) {
            // Whoever read the output has read enough, as `head` does.
            return ExitCode::SUCCESS;
        }
        toehold_lab::say(&format!("toehold: {error:#}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// What a command line is answered, or nothing if it is understood.
    fn answer<T>(parsed: Result<T, clap::Error>) -> String {
        parsed.map_or_else(|said| said.to_string(), |_| String::new())
    }

    #[test]
    fn command_parsed_alone_answers_as_among_all() {
        for name in ["run", nodes::engine::NAME, nodes::forward::NAME] {
            assert!(Start::has_subcommand(name), "{name}");
            for rest in ["--help", "-h", "--no-such-option", "--mtu=x", ""] {
                let line = ["toehold", name, rest].map(OsString::from);
                let line = &line[..if rest.is_empty() { 2 } else { 3 }];
                let alone = answer(parse(line));
                assert_eq!(alone, answer(Arguments::try_parse_from(line)), "{line:?}");
            }
        }
    }

    #[test]
    fn command_line_of_every_command_is_sound() {
        Arguments::command().debug_assert();
        StartArguments::command().debug_assert();
        assert!(!Start::has_subcommand("up"));
    }
}
