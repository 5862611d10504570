//! Two ranks of an MPI program, one on each side.
//!
//! The program is a file in C, compiled on the measuring machine, since libraries differ. MPI asks
//! the kernel for interfaces. Nodes therefore have one each, in one namespace. A check proves that
//! the ranks' data go over the nodes all the same.

mod said;

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::place::{End, Places, Shape, VETH, Way, succeed};
use super::{Files, On, PATIENCE, read_all, until};
use crate::samples::Side;
use crate::size::Size;
use crate::workload::MpiLibrary;

/// The job of the ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// The MPI library.
    pub(super) library: MpiLibrary,
    /// Windows of messages in place of a ping-pong.
    pub(super) is_stream: bool,
    /// Size of a message.
    pub(super) size: Size,
}

/// The compiler and the launcher of a library.
struct Tools {
    compiler: &'static str,
    launcher: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
    /// The option that names the interface between ranks.
    interface: &'static str,
    /// Options that allow a rank in another namespace than the launcher.
    across: &'static [(&'static str, &'static str)],
}

const OPEN_MPI: Tools = Tools {
    compiler: "mpicc.openmpi",
    launcher: &["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    settings: &[
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "tcp,self"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        // Each rank has a core, so it need not yield between two polls.
        ("OMPI_MCA_mpi_yield_when_idle", "0"),
    ],
    interface: "OMPI_MCA_btl_tcp_if_include",
    across: &[
        ("PMIX_MCA_ptl_base_if_include", VETH),
        ("PMIX_MCA_ptl_base_remote_connections", "1"),
    ],
};

const MPICH: Tools = Tools {
    compiler: "mpicc.mpich",
    launcher: &["mpiexec.mpich"],
    settings: &[("UCX_TLS", "tcp,self")],
    interface: "UCX_NET_DEVICES",
    across: &[],
};

impl Tools {
    fn of(library: MpiLibrary) -> &'static Self {
        match library {
            MpiLibrary::OpenMpi => &OPEN_MPI,
            MpiLibrary::Mpich => &MPICH,
        }
    }
}

/// The counts of the rank on the client's side and of the one on the server's.
pub(super) fn measure(
    job: Job,
    mtu: Option<u16>,
    on: On<'_>,
    stop: &AtomicBool,
) -> Result<(Side, Side), String> {
    let files = Files::make(on.toehold).map_err(|error| error.to_string())?;
    let tools = Tools::of(job.library);
    compile(tools, &files)?;
    let (way, up) = on.way();
    let shape = Shape {
        mtu,
        up,
        has_taps: true,
        ..Shape::default()
    };
    let places = Places::make(on.toehold, &files, on.settings.cores, &shape);
    let places = places.map_err(|error| error.to_string())?;
    let launch = launch(tools, job, &places, way, on);
    let mut launch = launch.map_err(|error| format!("cannot launch ranks: {error}"))?;
    launch.stdout(Stdio::piped()).stderr(Stdio::piped());
    let launched = places.start(launch);
    let mut launched = launched.map_err(|error| format!("cannot launch ranks: {error}"))?;
    let errors = launched.child.stderr.take().map(read_all);
    let output = launched.child.stdout.take().map(read_all);
    let settings = on.settings;
    let span = Duration::from_millis(settings.warm_up_ms + settings.span_ms + settings.patience_ms);
    let said = until(
        Instant::now() + span + PATIENCE,
        stop,
        "the ranks do not come to their end",
        || {
            let said = fs::read_to_string(files.path().join("said")).unwrap_or_default();
            if said.ends_with("end\n") {
                return Ok(Some(Ok(said)));
            }
            // Its output is complete when it has ended.
            Ok(launched.child.try_wait().ok().flatten().map(Err))
        },
    )
    .inspect_err(|_| launched.ask_to_end())?;
    let offloaded = places.offloaded();
    launched.end();
    let said = said.map_err(|status| {
        let text = [output, errors].map(|said| said.and_then(|said| said.join().ok()).unwrap_or_default());
        format!("the launcher ended with {status}: {}", text.concat().trim())
    })?;
    if way == Way::Toehold && offloaded == 0 {
        return Err("nothing of it went over the node".into());
    }
    let sides = said::sides(&said, job.size.bytes() as u64);
    sides.ok_or_else(|| format!("the ranks said: {}", said.lines().next().unwrap_or_default()))
}

fn compile(tools: &Tools, files: &Files) -> Result<(), String> {
    let source = files.path().join("ranks.c");
    fs::write(&source, include_str!("ranks.c")).map_err(|error| error.to_string())?;
    let mut command = Command::new(tools.compiler);
    command
        .arg("-O2")
        .arg("-o")
        .arg(files.path().join("ranks"))
        .arg(&source)
        .stdin(Stdio::null());
    succeed(command, "compile a program of ranks").map_err(|error| error.to_string())
}

/// Starts the launcher, on the client's side, with a rank there and one on the server's.
fn launch(tools: &Tools, job: Job, places: &Places<'_>, way: Way, on: On<'_>) -> io::Result<Command> {
    let engines = places.engines();
    let nanoseconds = |ms: u64| (ms * 1_000_000).to_string();
    let rank = |end: End| {
        let engine = engines.get(end as usize).filter(|_| way == Way::Toehold);
        let mut words = places.rank(way, end, tools.interface);
        words.extend([
            places.file("ranks"),
            if job.is_stream { "stream" } else { "ping-pong" }.into(),
            job.size.bytes().to_string(),
            nanoseconds(on.settings.warm_up_ms),
            nanoseconds(on.settings.span_ms),
            places.file("said"),
            engine.copied().unwrap_or(0).to_string(),
        ]);
        words
    };
    let mut words: Vec<_> = tools.launcher.iter().map(|&word| word.to_owned()).collect();
    for (number, end) in [End::Client, End::Server].into_iter().enumerate() {
        words.extend((number > 0).then(|| ":".to_owned()));
        words.extend(["-n".to_owned(), "1".to_owned()]);
        words.extend(rank(end));
    }
    let mut command = places.launcher(&words)?;
    command.envs(tools.settings.iter().copied());
    if way == Way::Kernel {
        command.envs(tools.across.iter().copied());
    }
    Ok(command)
}
