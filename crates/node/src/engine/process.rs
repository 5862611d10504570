//! The engine process itself, from its beginning to its end.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::launch::Report;
use super::{Engine, HostError, Seat, StartError};
use crate::control::{Host, KeeperEnd};
use crate::fabric::{Place, Role, TakeError};
use crate::settings::NodeSettings;

/// Runs an engine process, which [`super::Launch::start`] has made. It starts the node, reports on
/// its standard output, and serves until it is asked to end or gets SIGTERM or SIGINT.
///
/// `seat` is made late so that its errors, too, are reported. `kept`: the process that has
/// started this one keeps the node, see `Launch::start_kept`.
pub fn main(
    kept: Option<u64>,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> ExitCode {
    main_with(Role::Node, kept, seat, host)
}

/// Runs the engine process of a member, which may be no node. It starts the member, reports on its
/// standard output, and serves until it is asked to end or gets SIGTERM or SIGINT.
pub fn main_as(
    role: Role,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> ExitCode {
    main_with(role, None, seat, host)
}

fn main_with(
    role: Role,
    kept: Option<u64>,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> ExitCode {
    // Neither the terminal's signals nor its end concern the node. It fails if the program that
    // started this one has seen to that already.
    let _ = setsid();
    raise_descriptor_limit();
    let reserve = match Reserve::new() {
        Ok(reserve) => reserve,
        Err(error) => {
            // The descriptors of the standard streams are all that there is.
            let _ = serde_json::to_writer(io::stdout(), &Report::Failed(told(&error)));
            return ExitCode::FAILURE;
        }
    };
    match start(role, kept, seat, host) {
        Ok(engine) => {
            // A working directory would keep its file system busy.
            let _ = std::env::set_current_dir("/");
            reserve.report(&Report::Ready(engine.record().clone()));
            engine.run();
            ExitCode::SUCCESS
        }
        Err(error) => {
            let taken = matches!(
                error.downcast_ref(),
                Some(StartError::Take(TakeError::NameInUse(_)))
            );
            let report_of = if taken { Report::NameInUse } else { Report::Failed };
            reserve.report(&report_of(told(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn start(
    role: Role,
    kept: Option<u64>,
    seat: impl FnOnce() -> Result<Seat, HostError>,
    host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
) -> Result<Engine, HostError> {
    let keeper = kept.map(take_keeper).transpose()?;
    let engine = Engine::start_with(role, keeper, seat()?, host)?;
    engine.stop_on(&[SIGTERM, SIGINT])?;
    Ok(engine)
}

/// The node's end of its first keeper, which this process has got as its standard input.
fn take_keeper(inode: u64) -> io::Result<KeeperEnd> {
    let descriptor = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(KeeperEnd { descriptor, inode })
}

/// Descriptors that the first programs of a node need. An engine that has fewer left does not start.
const LEAST_FREE: usize = 16;

/// Descriptors that are taken before the node is made, so that it cannot take the last ones.
struct Reserve {
    /// The pipe to the launcher.
    pipe: OwnedFd,
    null: OwnedFd,
    /// Free once the node is made.
    _free: Vec<OwnedFd>,
}

impl Reserve {
    fn new() -> io::Result<Self> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let null: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into();
        let copies = (0..LEAST_FREE).map(|_| Ok(rustix::io::fcntl_dupfd_cloexec(&null, 3)?));
        let _free = copies.collect::<io::Result<_>>()?;
        Ok(Self { pipe, null, _free })
    }

    /// Writes the report and closes the pipe, for whose end a launcher waits that reads no report.
    /// The standard output is `/dev/null` before the launcher learns anything.
    fn report(self, report: &Report) {
        let _ = rustix::stdio::dup2_stdout(&self.null);
        let mut pipe = io::BufWriter::new(File::from(self.pipe));
        // The launcher may have ended.
        let _ = serde_json::to_writer(&mut pipe, report);
        let _ = pipe.flush();
    }
}

/// An error's text, with advice if the cause is the limit of descriptors.
fn told(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let mut lacks_descriptors = false;
    let mut cause = Some(error);
    while let Some(error) = cause {
        let errno = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        let errno = errno.or(error.downcast_ref::<Errno>().copied());
        lacks_descriptors |= matches!(errno, Some(Errno::MFILE | Errno::NFILE));
        cause = error.source();
    }
    match lacks_descriptors && !text.contains("ulimit") {
        true => format!("{text}; raise the limit of descriptors (`ulimit -n 1024`)"),
        false => text,
    }
}

/// Raises the limit of descriptors to the most that the system allows. Every process and every peer
/// of a node takes descriptors here.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
