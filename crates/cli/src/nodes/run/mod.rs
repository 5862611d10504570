//! `toehold run`: runs an unmodified program on a node.
//!
//! This process prepares the node and then becomes the program. The parent sees the program under
//! the process id it knows, with its terminal, its signals and its exit status. A descriptor that
//! the program inherits keeps the node. With `--stats` a process must report at the end. Then this
//! process stays as the program's parent; the only difference is in [`waiting`].

mod environment;
mod report;
mod waiting;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use ipnet::IpNet;
use toehold_node::engine::{Launch, Lifetime};
use toehold_node::fabric::name_of_user;
use toehold_node::kernel::DEFAULT_DEVICE;
use toehold_node::run::{self, ProgramError, Stay};
use toehold_node::usage::Usage;
use toehold_node::why::Report;

use environment::ShimEnvironment;

use super::settings::Settings;
use super::{Within, engine};
use crate::side;

/// The exit status of a command that cannot run its program, as for `env` and `timeout`.
const FAILED: u8 = 125;

/// Run an unmodified program on a node
///
/// The program's TCP connections to addresses of the fabric, and those it accepts there, bypass the
/// kernel. The node is started if it does not run. It ends when the program and all its descendants
/// have ended and written data are delivered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold run --node web -- nginx -g 'daemon off;'
  toehold run -- wrk -t2 -c16 http://web/          # a node named wrk, or wrk-2, …
  toehold run --node db --placement engine -- redis-server
  toehold run --node web -- bash                   # all that is typed there
  toehold run --net own --stats -- iperf3 -c web

Exit status: the program's; 127 if there is no such program, 126 if it cannot be
executed, 125 if there is no node to run it on.")]
pub(crate) struct Arguments {
    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,

    #[command(flatten)]
    within: Within,

    /// The node, which other programs may share [default: a new one, named after the program]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// The kernel network that the program sees
    #[arg(long, value_name = "NET", default_value = "host")]
    net: Net,

    /// A network for the addresses of the fabric's nodes, IPv4 or IPv6; only with a fabric's first
    /// nodes [default: 10.77.0.0/16 and fd77::/64]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    network: Vec<IpNet>,

    /// Report at the end which traffic used the node, and which did not and why; as JSON in FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,

    /// Whether the program may use io_uring, whose calls bypass the node
    #[arg(long, value_name = "ANSWER", default_value = "refuse")]
    io_uring: Rings,

    /// Do not report what stays with the kernel
    #[arg(long, short)]
    quiet: bool,

    /// Append messages of the engine process to FILE; it writes only about problems
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Net {
    /// The host's network: traffic outside of the fabric stays with the kernel
    Host,
    /// A network of the node: loopback, and a TAP device on the fabric, in a namespace that ends
    /// with the node. It needs root, or user namespaces
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rings {
    /// Refused, as by a kernel without io_uring: programs fall back to other calls
    Refuse,
    /// Allowed; connections of the node must not be used with it
    Allow,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let done = match run::find_program(&arguments.command[0]) {
        Ok(program) => start(&arguments, program),
        Err(error) => Err(error.into()),
    };
    done.or_else(|error| {
        eprintln!("toehold: {error:#}");
        let status = error.downcast_ref().map_or(FAILED, ProgramError::exit_status);
        Ok(ExitCode::from(status))
    })
}

fn start(arguments: &Arguments, program: PathBuf) -> Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program (is /proc mounted?)")?;
    let library = run::find_library(&own)?;
    let obstacle = run::obstacle(&program);
    if !arguments.quiet
        && let Some((path, reason)) = &obstacle
    {
        let (what, word) = (path.display(), reason.word());
        eprintln!("toehold: {what} {reason}: its connections stay with the kernel ({word})");
    }
    let mut stay = stay(arguments, &program)?;
    if !arguments.quiet
        && let Some(user) = stay.other_user()
    {
        let (node, user) = (stay.node(), name_of_user(user));
        eprintln!(
            "toehold: node {node} belongs to user {user}, and that user can see and change what its programs say"
        );
    }
    if let Some((path, reason)) = obstacle {
        stay.tell(&Report::new(&path.to_string_lossy(), std::process::id(), reason));
    }
    if arguments.net == Net::Own {
        stay.enter_network()?;
    }
    let usage = arguments.stats.as_ref().map(|_| Usage::create()).transpose()?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    let environment = ShimEnvironment {
        library: &library,
        stay: &stay,
        is_quiet: arguments.quiet,
        usage: usage.as_ref(),
        allows_io_uring: arguments.io_uring == Rings::Allow,
    };
    environment.set(&mut command);
    let keeper = stay.inherited()?;
    let name = run::name_of_keeper(&keeper).map_err(std::io::Error::from)?;
    command.env(run::KEEPER, name);
    let failed = |error: std::io::Error| failed(&arguments.command[0], &error);
    let (Some(usage), Some(stats)) = (usage, &arguments.stats) else {
        // Descriptors that it does not inherit are closed when it begins.
        return Err(failed(command.exec()).into());
    };
    let child = waiting::Child::start(&mut command).map_err(failed)?;
    drop(keeper);
    let end = child.wait()?;
    let node = stay.node().to_owned();
    drop(stay);
    if let Err(error) = report::show(&usage, &node, stats.as_deref()) {
        // This error is no error of the program.
        let _ = writeln!(std::io::stderr(), "toehold: {error:#}");
    }
    Ok(end.repeat())
}

/// The error of the program's start.
fn failed(command: &OsString, error: &std::io::Error) -> ProgramError {
    let errno = rustix::io::Errno::from_io_error(error);
    match errno.unwrap_or(rustix::io::Errno::NOEXEC) {
        rustix::io::Errno::NOENT => ProgramError::Missing(command.clone()),
        errno => ProgramError::NotExecutable(command.clone(), errno),
    }
}

/// Joins or starts the node.
fn stay(arguments: &Arguments, program: &std::path::Path) -> Result<Stay> {
    let mut settings = arguments.settings.0.clone();
    let own_network = arguments.net == Net::Own;
    if own_network {
        if settings.netns.is_some() {
            bail!("with --net own the namespace has no name: leave --netns out, or take --net host");
        }
        if settings.tap.is_none() {
            settings.tap = Some(DEFAULT_DEVICE.parse()?);
        }
    }
    let launch = Launch {
        program: side::program()?,
        arguments: vec![engine::NAME.into()],
        fabric: arguments.within.fabric.clone(),
        node: arguments.node.clone().unwrap_or_else(|| run::name_of(program)),
        settings,
        networks: arguments.network.clone(),
        lifetime: Lifetime::WhileUsed,
        own_network,
        log: arguments.log.clone(),
    };
    let stay = match arguments.node {
        Some(_) => Stay::on(&launch),
        None => Stay::on_another(launch),
    };
    stay.context(match arguments.net {
        Net::Host => "there is no node to run it on",
        Net::Own => "there is no node with a network of its own (--net host takes no privilege)",
    })
}
