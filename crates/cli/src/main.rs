//! The `toehold` command, with a file for each subcommand.

mod bench;
mod disk;
mod interrupt;
mod json;
mod measurement;
mod model;
mod nodes;
mod plans;
mod report;
mod side;
mod site;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A TCP offload engine in software, with a laboratory that measures it
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
    Disk(disk::Arguments),
    Site(site::Arguments),
    #[command(flatten)]
    Run(Run),
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
    #[command(flatten)]
    Engine(Engine),
    #[command(flatten)]
    BridgeEngine(BridgeEngine),
    /// Clears after an emulated disk; started by `disk` only.
    #[command(name = disk::KEEPER_NAME, hide = true)]
    DiskKeeper(disk::Clearing),
    /// The process that holds a site; started by `site up` only.
    #[command(name = toehold_lab::site::RUNNER_NAME, hide = true)]
    SiteRunner(site::SiteRunner),
    /// A request that shows whether a site works; started by the process that holds it only.
    #[command(name = toehold_lab::site::FETCH_NAME, hide = true)]
    SiteFetch(site::SiteFetch),
    /// One process of a measurement; started by measurements only.
    #[command(name = side::NAME, hide = true)]
    Side,
    /// The other machine's end of a measurement between two; started by measurements only.
    #[command(name = toehold_lab::far::NAME, hide = true)]
    FarSide(side::FarSide),
    /// Clients of a web server under measurement; started by measurements only.
    #[command(name = toehold_lab::programs::web::NAME, hide = true)]
    WebClients(side::WebClients),
    /// Clients of a server with several workers; started by measurements only.
    #[command(name = toehold_lab::programs::workers::NAME, hide = true)]
    WorkersClients(side::WorkersClients),
}

/// The `run` command as a set of one command, like [`Engine`] and [`BridgeEngine`]. The command line of
/// each can be built alone, because a user waits for these three at each start.
#[derive(Debug, Subcommand)]
enum Run {
    Run(nodes::run::Arguments),
}

/// See [`Run`].
#[derive(Debug, Subcommand)]
enum Engine {
    /// The engine process of a node; started by `up` only.
    #[command(name = nodes::engine::NAME, hide = true)]
    Engine(nodes::engine::Arguments),
}

/// See [`Run`].
#[derive(Debug, Subcommand)]
enum BridgeEngine {
    /// The engine process of an uplink or a device; started by their commands only.
    #[command(name = nodes::bridge_engine::NAME, hide = true)]
    BridgeEngine(nodes::bridge_engine::Arguments),
}

/// The command line of one set of commands, which describe themselves in [`Arguments`].
#[derive(Debug, Parser)]
#[command(name = "toehold", version = version::LINE)]
struct Alone<C: Subcommand> {
    #[command(subcommand)]
    command: C,
}

/// Reads the command line. Building all commands would cost more instructions than the rest of a
/// program's start.
fn parse(line: &[OsString]) -> Result<Command, clap::Error> {
    fn alone<C: Subcommand>(line: &[OsString]) -> Result<C, clap::Error> {
        Ok(Alone::try_parse_from(line)?.command)
    }
    match line.get(1).and_then(|name| name.to_str()) {
        Some(name) if Run::has_subcommand(name) => alone(line).map(Command::Run),
        Some(name) if Engine::has_subcommand(name) => alone(line).map(Command::Engine),
        Some(name) if BridgeEngine::has_subcommand(name) => alone(line).map(Command::BridgeEngine),
        _ => Ok(Arguments::try_parse_from(line)?.command),
    }
}

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let command = match parse(&line) {
        Ok(command) => command,
        Err(said) => {
            // Help that cannot be written is an error, like any other output.
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
        Command::Disk(arguments) => disk::run(&arguments),
        Command::DiskKeeper(arguments) => disk::keep(&arguments),
        Command::Site(arguments) => site::run(&arguments),
        Command::SiteRunner(arguments) => arguments.run(),
        Command::SiteFetch(arguments) => return arguments.run(),
        Command::Run(Run::Run(arguments)) => nodes::run::run(arguments),
        Command::Up(arguments) => nodes::up::run(arguments),
        Command::Uplink(arguments) => nodes::uplink::run(arguments),
        Command::Device(arguments) => nodes::device::run(arguments),
        Command::BridgeEngine(BridgeEngine::BridgeEngine(arguments)) => nodes::bridge_engine::run(arguments),
        Command::Down(arguments) => nodes::down::run(&arguments),
        Command::Ps(arguments) => nodes::ps::run(&arguments),
        Command::Placement(arguments) => nodes::placement::run(&arguments),
        Command::Sockets(arguments) => nodes::sockets::run(&arguments),
        Command::Stat(arguments) => nodes::stat::run(&arguments),
        Command::Capture(arguments) => nodes::capture::run(&arguments),
        Command::Engine(Engine::Engine(arguments)) => nodes::engine::run(arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Side => return side::run(),
        Command::FarSide(arguments) => arguments.run(),
        Command::WebClients(arguments) => return arguments.run(),
        Command::WorkersClients(arguments) => return arguments.run(),
    };
    done.unwrap_or_else(|error| {
        let is_unread = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
        if error.downcast_ref().is_some_and(is_unread) {
            // The reader of the output has closed it, as `head` does.
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

    /// The answer to a command line, empty if it is valid.
    fn answer<T>(parsed: Result<T, clap::Error>) -> String {
        parsed.map_or_else(|said| said.to_string(), |_| String::new())
    }

    #[test]
    fn command_parsed_alone_answers_as_among_all() {
        for name in ["run", nodes::engine::NAME, nodes::bridge_engine::NAME] {
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
        Alone::<Run>::command().debug_assert();
        Alone::<Engine>::command().debug_assert();
        Alone::<BridgeEngine>::command().debug_assert();
    }
}
