//! The engine process itself, from its first word to its last.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::launch::Report;
use super::{Engine, HostError, Seat, StartError};
use crate::control::Host;
use crate::fabric::{Place, Role, TakeError};
use crate::settings::NodeSettings;

/// What an engine process does, after [`super::Launch::start`] has made it: starts
/// the node, reports on its standard output, and serves until it is asked to end
/// or gets SIGTERM or SIGINT.
///
/// `seat` is made late so that its errors, too, are reported.
pub fn main(
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> ExitCode {
    main_as(Role::Node, seat, host)
}

/// The same for a member of the fabric that may be no node.
pub fn main_as(
    role: Role,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> ExitCode {
    // Neither the terminal's signals nor its end concern the node. It fails if
    // somebody has seen to that already.
    let _ = setsid();
    raise_descriptor_limit();
    match start(role, seat, host) {
        Ok(engine) => {
            // A working directory would keep its file system busy.
            let _ = std::env::set_current_dir("/");
            report(&Report::Ready(engine.record().clone()));
            engine.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            let taken = matches!(
                error.downcast_ref(),
                Some(StartError::Take(TakeError::NameInUse(_)))
            );
            let report_of = if taken { Report::NameInUse } else { Report::Failed };
            report(&report_of(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn start(
    role: Role,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> Result<Engine, HostError> {
    let engine = Engine::start_as(role, seat()?, host)?;
    engine.stop_on(&[SIGTERM, SIGINT])?;
    Ok(engine)
}

/// Starts this program once more, with its arguments but for one that has brought it here,
/// and ends. The other one is nobody's child then: whoever has started this one may become
/// another program, which would wonder at a child that it did not start.
pub fn start_apart(argument: &str) -> io::Result<ExitCode> {
    let arguments = std::env::args_os().skip(1);
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args(arguments.filter(|given| given != argument))
        .spawn()?;
    Ok(ExitCode::SUCCESS)
}

/// Says the one thing and closes the pipe: whoever has started this process
/// waits for its end, not for a line's.
fn report(report: &Report) {
    let mut stdout = io::stdout().lock();
    // If nobody listens any more, nobody needs to know.
    let _ = serde_json::to_writer(&mut stdout, report);
    let _ = stdout.flush();
    drop(stdout);
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Every process and every peer of a node takes descriptors here; what the
/// system allows at most is what it is for.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
