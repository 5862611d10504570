//! Serves the runner's requests as one side of a candidate.

use std::io;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::control::{Line, Reply, Request};
use crate::samples::Side;
use crate::testbed::{Context, Role, Source, Testbed, TestbedError};
use crate::workload::{self, Pace, Watched, Workload};

/// A side's end of the socket to the runner.
#[derive(Debug)]
pub struct Control(pub(crate) Line);

/// Serves the runner's requests as one side of the testbed `T`.
pub(crate) fn attend<T: Testbed>(control: &mut Control, context: &Context) -> io::Result<()> {
    let mut testbed = match T::enter(context) {
        Ok(testbed) => testbed,
        Err(error) => return control.refuse(error),
    };
    // Entering a user namespace may have reset it.
    set_pdeathsig(Signal::SIGKILL)?;
    control.0.send(&Reply::Ready)?;
    let pace = Pace::from(&context.settings);
    let mut listening: Option<(Workload, T::Listener)> = None;
    while let Some(request) = control.0.receive()? {
        let done = match request {
            Request::Enter { .. } => Err(io::Error::other("a process is a side only once")),
            Request::Join => match testbed.join(context) {
                Ok(()) => {
                    workload::watch(Watched {
                        engines: testbed.engines(),
                        machine: context.role == Role::Client && context.client == 0,
                    });
                    Ok(Reply::Ready)
                }
                Err(error) => return control.refuse(error),
            },
            Request::Listen { workload } => testbed.listen(&workload).map(|(listener, address)| {
                listening = Some((workload, listener));
                Reply::Listening { address }
            }),
            Request::Serve => match listening.take() {
                Some((workload, mut listener)) => measured(&mut testbed, |testbed| {
                    workload.serve(testbed, &mut listener, &pace)
                }),
                None => Err(io::Error::other("asked to serve before it was asked to listen")),
            },
            Request::Drive { workload, address } => {
                measured(&mut testbed, |testbed| workload.drive(testbed, &address, &pace))
            }
        };
        control.0.send(&done.unwrap_or_else(|error| without(&error)))?;
    }
    Ok(())
}

/// The answer to a request that was not carried out. A workload may find a requirement missing only
/// when it begins.
fn without(error: &io::Error) -> Reply {
    let reason = error.to_string();
    let own = error.get_ref().and_then(|inner| inner.downcast_ref());
    match own {
        Some(TestbedError::Unavailable(_)) => Reply::Unavailable { reason },
        _ => Reply::Failed { reason },
    }
}

/// Serves the runner's requests as a source, which has no other side.
pub(crate) fn attend_alone<S: Source>(control: &mut Control, context: &Context) -> io::Result<()> {
    control.0.send(&Reply::Ready)?;
    let mut next: Option<Workload> = None;
    while let Some(request) = control.0.receive()? {
        let done = match request {
            Request::Join => Ok(Reply::Ready),
            Request::Listen { workload } => {
                next = Some(workload);
                let address = String::new();
                Ok(Reply::Listening { address })
            }
            Request::Serve => match next.take() {
                Some(workload) => S::find(&workload, context.seed).map(|side| Reply::Measured { side }),
                None => Err(io::Error::other("asked to begin before it got a workload")),
            },
            Request::Enter { .. } | Request::Drive { .. } => Err(io::Error::other("it has no other side")),
        };
        let reply = done.unwrap_or_else(|error| Reply::Failed {
            reason: error.to_string(),
        });
        control.0.send(&reply)?;
    }
    Ok(())
}

/// The counts of a side in a workload, with the activity of its stack.
fn measured<T: Testbed>(testbed: &mut T, part: impl FnOnce(&mut T) -> io::Result<Side>) -> io::Result<Reply> {
    let before = testbed.retransmits();
    let side = part(testbed)?;
    let after = testbed.retransmits();
    let retransmits = after
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    Ok(Reply::Measured {
        side: Side { retransmits, ..side },
    })
}

impl Control {
    fn refuse(&mut self, error: TestbedError) -> io::Result<()> {
        let reason = error.to_string();
        self.0.send(&match error {
            TestbedError::Unavailable(_) => Reply::Unavailable { reason },
            TestbedError::Failed(_) => Reply::Failed { reason },
        })
    }
}
