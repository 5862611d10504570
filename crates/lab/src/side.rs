//! One of the two processes of a candidate: this program, run again.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

pub use crate::attend::Control;
use crate::control::{Line, Reply, Request};
use crate::host::pin;
use crate::testbed::{Candidate, EngineOrder};

/// Serves the requests of the runner at the other end of standard input until the runner is gone.
///
/// `candidates` must be the runner's list. The program that a [`crate::Launcher`] starts must call
/// this function before it has a second thread.
pub fn main(candidates: &[Candidate]) -> ExitCode {
    // The process has no purpose without its parent.
    let bound = set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from);
    if let Some(order) = EngineOrder::received() {
        return order.carry_out();
    }
    match bound.and_then(|()| converse(candidates)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("a side of a measurement, not to be run by hand: {error}");
            ExitCode::FAILURE
        }
    }
}

fn converse(candidates: &[Candidate]) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut control = Control(Line::new(socket));
    let (context, cores) = match control.0.receive()? {
        Some(Request::Enter { context, cores }) => (context, cores),
        Some(_) => return Err(io::Error::other("the first request is to enter a testbed")),
        None => return Ok(()),
    };
    if let Err(error) = pin(&cores) {
        let reason =
            format!("cannot run on cores {cores:?} only ({error}): choose cores this process may use");
        return control.0.send(&Reply::Failed { reason });
    }
    match candidates
        .iter()
        .find(|candidate| candidate.name == context.candidate)
    {
        Some(candidate) => (candidate.attend)(&mut control, &context),
        None => control.0.send(&Reply::Failed {
            reason: format!("no candidate `{}`", context.candidate),
        }),
    }
}
