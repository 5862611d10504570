//! `toehold capture`: records a node's frames.

mod drain;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_node::control::{CaptureRequest, CaptureSummary, Connection};

use self::drain::Drain;
use super::{Within, positive_span};
use crate::{interrupt, json};

/// Interval at which a wait checks for interrupts. A signal just before the wait is noticed then.
const LOOK: Duration = Duration::from_millis(200);

/// Pause before the node is asked again whether a file is complete.
const AGAIN: Duration = Duration::from_millis(20);

/// The user is told of a file that takes longer than this to complete.
const SILENCE: Duration = Duration::from_secs(1);

/// Record a node's frames in a pcapng file, for Wireshark and tshark
///
/// The capture runs until Ctrl-C, or for a given time. It does not delay the traffic. Frames that
/// the file cannot keep up with are missing in it, and counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold capture web -w web.pcapng --duration 10s
  toehold capture web -w - | tshark -r -")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    /// The file, which is overwritten; - is standard output
    #[arg(short, long = "write", value_name = "FILE")]
    write: PathBuf,

    #[command(flatten)]
    within: Within,

    /// Duration [default: until Ctrl-C]
    #[arg(long, value_name = "SPAN", value_parser = positive_span)]
    duration: Option<Duration>,

    /// Bytes of each frame to keep
    #[arg(long, value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    snap_len: u32,

    /// Print the numbers of frames as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut node = arguments.within.connect(&arguments.node)?;
    let stop = interrupt::flag()?;
    let new = !arguments.write.exists();
    let file = open(&arguments.write)?;
    let (reader, writer) = io::pipe().context("cannot make a pipe for the node")?;
    let settings = CaptureRequest {
        snap_len: arguments.snap_len,
    };
    if let Err(error) = node.start_capture(OwnedFd::from(writer).into(), settings) {
        if new && !is_stdout(&arguments.write) {
            let _ = std::fs::remove_file(&arguments.write);
        }
        return Err(error.into());
    }
    let drain = Drain::start(reader, file)?;
    let ended = wait(&node, &drain, arguments, &stop)?;
    if ended == End::Node {
        drain.finish().with_context(|| cannot_write(arguments))?;
        bail!(
            "{} has ended; {} holds what was recorded until then",
            arguments.node,
            arguments.write.display()
        );
    }
    let summary = end(&mut node, &drain, arguments)?;
    match drain.finish() {
        // The reader of standard output has closed it, as `head` does.
        Err(error) if is_stdout(&arguments.write) && error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.with_context(|| cannot_write(arguments))?,
    }
    say(&summary, arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn cannot_write(arguments: &Arguments) -> String {
    format!(
        "cannot write {}, which ends with the last whole frame",
        arguments.write.display()
    )
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens the file with the rights of this command's user.
fn open(path: &Path) -> Result<File> {
    let opened = if is_stdout(path) {
        io::stdout().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create(path)
    };
    opened.with_context(|| format!("cannot write {}", path.display()))
}

/// The reasons for the end of a capture.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The user, the time, the reader of standard output, or a failed write.
    Asked,
    /// The end of the node.
    Node,
}

/// Waits for the end of the time, of the node, of this command, of the output's reader, or of the
/// file's room.
fn wait(node: &Connection, drain: &Drain, arguments: &Arguments, stop: &AtomicBool) -> Result<End> {
    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    let piped = is_stdout(&arguments.write);
    while !(stop.load(Ordering::Relaxed) || drain.is_over() || piped && is_unread()) {
        let left = deadline.map_or(LOOK, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break;
        }
        if node.wait_for_end(left.min(LOOK))? {
            return Ok(End::Node);
        }
    }
    Ok(End::Asked)
}

/// Ends the capture, and waits until the node has written everything. Another Ctrl-C ends the wait.
fn end(node: &mut Connection, drain: &Drain, arguments: &Arguments) -> Result<CaptureSummary> {
    let began = Instant::now();
    let mut said = false;
    loop {
        let summary = node.stop_capture()?;
        if summary.complete || drain.is_over() {
            return Ok(summary);
        }
        if !said && began.elapsed() >= SILENCE {
            said = true;
            eprintln!(
                "{} has not taken everything yet (Ctrl-C: do not wait for it)",
                arguments.write.display()
            );
        }
        std::thread::sleep(AGAIN);
    }
}

/// Whether standard output is a pipe whose reader has closed it.
fn is_unread() -> bool {
    let stdout = io::stdout();
    let mut state = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut state, Some(&now)).is_ok() && state[0].revents().contains(PollFlags::ERR)
}

fn say(summary: &CaptureSummary, arguments: &Arguments) -> Result<()> {
    if arguments.json && !is_stdout(&arguments.write) {
        return json::print("toehold/capture/1", summary);
    }
    eprintln!(
        "{} frames, {} of them missing in the file",
        summary.frames, summary.lost
    );
    Ok(())
}
