//! Unmodified programs, compared between the kernel's TCP in two namespaces and two nodes.
//!
//! A row of [`ROWS`] is a server, a client and a parser of the client's figure. Each round runs all
//! rows in an order drawn anew, and each row over both, one directly after the other. The report
//! has the median of the rounds' ratios.

mod candidate;
mod cells;
mod error;
mod files;
mod find;
mod generators;
mod mpi;
mod outputs;
mod place;
mod report;
mod rows;
mod running;
pub mod web;
pub mod workers;

pub(crate) use candidate::On;
pub(crate) use cells::{is_of_nodes, measure as measure_cell};
pub use error::ProgramsError;
pub use files::Files;
pub use find::find;
pub(crate) use find::path;
pub(crate) use generators::Generator;
pub(crate) use place::succeed;
pub use report::{Report, RowReport};
pub use rows::{ROWS, Row};
pub(crate) use running::Running;
pub(crate) use workers::Stock;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use place::{End, Places, Shape, Tier, Way};
use serde::Serialize;

use crate::samples::Store;

/// Additional time before a program is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time for a server to listen: Varnish compiles its configuration first.
const BEGINNING: Duration = Duration::from_secs(60);

/// Interval of checks on a program.
const LOOK: Duration = Duration::from_millis(20);

/// Options for the measurement of rows.
#[derive(Debug, Clone)]
pub struct Options {
    /// The rows' names; empty means all.
    pub rows: Vec<String>,
    /// Number of rounds.
    pub rounds: u32,
    /// Determines the order within each round.
    pub seed: u64,
    /// Duration of each client that has such an option.
    pub seconds: u32,
    /// The server's and the client's core.
    pub cores: [usize; 2],
}

/// The results of a row: the figures of the ratios by round, and failures.
#[derive(Debug, Default)]
struct Gathered {
    /// The kernel's figure and Toehold's.
    figures: BTreeMap<u32, [f64; 2]>,
    failure: Option<String>,
}

/// A client's measurement, as saved.
#[derive(Debug, Serialize)]
struct Measurement {
    round: u32,
    row: &'static str,
    way: Way,
    /// The figure, in the row's unit.
    figure: Option<f64>,
    /// The reason for a missing figure.
    failure: Option<String>,
    /// The client's output.
    output: String,
}

/// Runs the measurements. Each is appended to `store` at the end of its row's round. `say` receives
/// progress and failures; `stop` ends the run early.
///
/// # Errors
///
/// If there is no place for the programs, or measurements cannot be saved.
pub fn run(
    options: &Options,
    toehold: &Path,
    files: &Files,
    store: &mut Store,
    stop: &AtomicBool,
    mut say: impl FnMut(&str),
) -> Result<Report, ProgramsError> {
    let places = Places::make(toehold, files, options.cores, &Shape::default())?;
    let wanted = |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|name| name == row.name);
    let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
    let mut gathered: BTreeMap<&str, Gathered> = BTreeMap::new();
    for row in &rows {
        let missing = row.programs.iter().find(|(program, _)| find(program).is_none());
        let failure =
            missing.map(|(program, package)| format!("{program} is missing: install the package {package}"));
        gathered.insert(
            row.name,
            Gathered {
                failure,
                ..Gathered::default()
            },
        );
    }
    for round in 0..options.rounds {
        let mut random = fastrand::Rng::with_seed(options.seed.wrapping_add(u64::from(round) << 32));
        let mut order = rows.clone();
        random.shuffle(&mut order);
        for row in order {
            let Some(of_row) = gathered
                .get_mut(row.name)
                .filter(|of_row| of_row.failure.is_none())
            else {
                continue;
            };
            if stop.load(Ordering::Relaxed) {
                break;
            }
            say(&format!(
                "round {} of {}: {}",
                round + 1,
                options.rounds,
                row.about
            ));
            let is_kernel_first = random.bool();
            let mut ways = [Way::Kernel, Way::Toehold];
            if !is_kernel_first {
                ways.reverse();
            }
            let mut figures = [0.0; 2];
            for way in ways {
                let (figure, output) = measure(&places, row, way, options.seconds, stop);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let measurement = Measurement {
                    round,
                    row: row.name,
                    way,
                    figure: figure.as_ref().ok().copied(),
                    failure: figure.as_ref().err().cloned(),
                    output,
                };
                store.append(&measurement)?;
                match figure {
                    Ok(figure) => figures[way as usize] = figure,
                    Err(reason) => {
                        let reason = format!("{way:?}: {reason}");
                        say(&format!("{} failed: {reason}", row.name));
                        of_row.failure = Some(reason);
                        break;
                    }
                }
            }
            if of_row.failure.is_none() && !stop.load(Ordering::Relaxed) {
                of_row.figures.insert(round, figures);
            }
        }
    }
    let complete = !stop.load(Ordering::Relaxed);
    Ok(Report::new(options, &rows, &gathered, complete))
}

/// A row's figure over one of the two, or the reason for its absence, and the client's output.
fn measure(
    places: &Places<'_>,
    row: &Row,
    way: Way,
    seconds: u32,
    stop: &AtomicBool,
) -> (Result<f64, String>, String) {
    let before = places.offloaded();
    let lines = Lines {
        server: row.server,
        client: row.client,
        back: None,
        loops: 0,
        seconds,
        limit: Duration::from_secs(u64::from(seconds)) * 2 + PATIENCE,
    };
    let said = match exchange(places, &lines, way, stop) {
        Ok(said) => said,
        Err(reason) => return (Err(reason), String::new()),
    };
    // Traffic counted as Toehold's must not have gone over the kernel.
    if way == Way::Toehold && !row.is_about_cost() && places.offloaded() == before {
        return (Err("nothing of it went over the node".into()), said.output);
    }
    let figure = said.status.success().then(|| (row.parse)(&said.output)).flatten();
    (figure.ok_or_else(|| said.complaint()), said.output)
}

/// The lines of a client, and of its server.
struct Lines<'a> {
    /// The line of the server's own server, which starts first.
    back: Option<&'a str>,
    server: Option<&'a str>,
    client: &'a str,
    /// Processes that compute all the time, beside the client.
    loops: u8,
    /// `$SPAN` of both.
    seconds: u32,
    /// The longest time for the client.
    limit: Duration,
}

/// A client's output, and the last part of its server's.
struct Said {
    status: ExitStatus,
    output: String,
    errors: String,
    server: String,
}

impl Said {
    /// The message about a failed client.
    fn complaint(&self) -> String {
        let client = last_of(&format!("{}\n{}", self.output, self.errors));
        let of_server = match self.server.as_str() {
            "" => String::new(),
            said => format!("; the server said: {said}"),
        };
        format!(
            "the client, which ended with {}, said: {client}{of_server}",
            self.status
        )
    }
}

/// The last lines of a program's output, in one line.
fn last_of(text: &str) -> String {
    let mut last: Vec<_> = text
        .lines()
        .rev()
        .filter(|line| !line.is_empty())
        .take(4)
        .collect();
    last.reverse();
    last.join(" / ")
}

/// A process that computes all the time.
const BUSY_LOOP: &str = "while :; do :; done";

/// Runs a client to its end, with its server, at fresh ports.
fn exchange(places: &Places<'_>, lines: &Lines<'_>, way: Way, stop: &AtomicBool) -> Result<Said, String> {
    places.renew_port();
    exchange_at_ports(places, lines, way, stop)
}

/// Runs a client to its end, with its servers, at the present ports of the places.
fn exchange_at_ports(
    places: &Places<'_>,
    lines: &Lines<'_>,
    way: Way,
    stop: &AtomicBool,
) -> Result<Said, String> {
    let begin = |line: Option<&str>, which| {
        line.map(|line| serve(places, line, (way, which), lines.seconds, stop))
            .transpose()
    };
    let back = begin(lines.back, Tier::Back)?;
    let server = begin(lines.server, Tier::Front)?;
    let loops = (0..lines.loops).map(|_| {
        let busy = places.command(Way::Loopback, End::Client, BUSY_LOOP, lines.seconds)?;
        places.start(busy)
    });
    let loops = loops.collect::<Result<Vec<_>, _>>();
    let loops = loops.map_err(|error| format!("cannot start a busy loop: {error}"))?;
    let cannot = |error| format!("cannot start the client: {error}");
    let client = places.command(way, End::Client, lines.client, lines.seconds);
    let mut client = client.map_err(cannot)?;
    if let Some(server) = &server {
        client.env("SERVER", server.child.id().to_string());
    }
    client.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = places.start(client).map_err(cannot)?;
    let streams = [
        client.child.stdout.take().map(read_all),
        client.child.stderr.take().map(read_all),
    ];
    let deadline = Instant::now() + lines.limit;
    let status = until(deadline, stop, "the client does not come to its end", || {
        Ok(client.child.try_wait().ok().flatten())
    })?;
    let [output, errors] =
        streams.map(|stream| stream.and_then(|stream| stream.join().ok()).unwrap_or_default());
    drop(loops);
    server.into_iter().chain(back).for_each(Running::end);
    Ok(Said {
        status,
        output,
        errors,
        server: server_said(places),
    })
}

/// Starts a server and waits until it listens.
fn serve<'a>(
    places: &Places<'a>,
    line: &str,
    (way, which): (Way, Tier),
    seconds: u32,
    stop: &AtomicBool,
) -> Result<Running<'a>, String> {
    let cannot = |error| format!("cannot start the server: {error}");
    let mut command = places.command(way, End::Server, line, seconds).map_err(cannot)?;
    let log = File::create(places.file(LOGS[which as usize])).map_err(cannot)?;
    command.stderr(log.try_clone().map_err(cannot)?).stdout(log);
    let mut server = places.start(command).map_err(cannot)?;
    let deadline = Instant::now() + BEGINNING;
    until(deadline, stop, "the server does not come to listen", || {
        if let Ok(Some(status)) = server.child.try_wait() {
            return Err(format!("the server ended with {status}"));
        }
        Ok(places.is_served(way, which).then_some(()))
    })
    .map_err(|reason| match server_said(places).as_str() {
        "" => reason,
        said => format!("{reason}; it said: {said}"),
    })?;
    Ok(server)
}

/// The outputs of both servers, in the directory of programs' files.
const LOGS: [&str; 2] = ["server.log", "back.log"];

fn server_said(places: &Places<'_>) -> String {
    let read = |name| fs::read(places.file(name)).unwrap_or_default();
    let said = LOGS.map(|name| last_of(&String::from_utf8_lossy(&read(name))));
    let said: Vec<_> = said.into_iter().filter(|said| !said.is_empty()).collect();
    said.join(" / ")
}

/// Polls until there is a result, or an error.
fn until<T>(
    deadline: Instant,
    stop: &AtomicBool,
    late: &str,
    mut look: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if stop.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        if Instant::now() > deadline {
            return Err(late.into());
        }
        std::thread::sleep(LOOK);
    }
}

fn read_all(mut stream: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The bytes read so far are kept.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn last_output_of_both_sides_is_reported_in_order() {
        let said = Said {
            status: ExitStatus::from_raw(1 << 8),
            output: "1\n2\n3\n".into(),
            errors: "4\n\n5\n".into(),
            server: last_of("one\ntwo\n"),
        };
        let complaint = said.complaint();
        assert!(
            complaint.contains("exit status: 1, said: 2 / 3 / 4 / 5; the server said: one / two"),
            "{complaint}"
        );
    }
}
