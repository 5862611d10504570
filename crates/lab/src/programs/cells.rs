//! Cells of plans whose sides are unmodified programs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::candidate::{On, way_of};
use super::place::{Places, Shape, Way};
use super::rows::web_server;
use super::web::{Asked, Counted, Extent, Order};
use super::workers::{self, Stock};
use super::{Files, Generator, Lines, PATIENCE, exchange, find, mpi};
use crate::pair::PairError;
use crate::program::Program;
use crate::samples::Side;
use crate::workload::{Cell, Trace, WebServer, Workload};

/// Whether a candidate for programs is a pair of nodes.
pub(crate) fn is_of_nodes(candidate: &str) -> bool {
    way_of(candidate) == Way::Toehold && Generator::of(candidate).is_none()
}

/// The counts of the clients and the server of a cell. All processes that it starts end with it.
pub(crate) fn measure(
    cell: Cell,
    on: On<'_>,
    stock: &Stock,
    stop: &AtomicBool,
) -> Result<(Side, Side), PairError> {
    let generator = Generator::of(on.candidate);
    let needed = generator.map_or(&[][..], Generator::programs);
    if let Some((program, package)) = missing(needed.iter().chain(cell.workload.programs())) {
        let reason = format!("{program} is missing: install the package {package}");
        return Err(PairError::Unavailable(reason));
    }
    let measured = match cell.workload {
        _ if generator.is_some() => generator.map_or(Err(String::new()), |it| it.measure(cell, on, stop)),
        Workload::Web {
            server,
            clients,
            size,
        } => web(cell.mtu, server, clients, Asked::one(size), on, stop),
        Workload::WebTrace {
            server,
            clients,
            trace,
        } => web(cell.mtu, server, clients, asked(trace, on)?, on, stop),
        Workload::WebZipf {
            server,
            clients,
            trace,
            alpha,
        } => {
            let asked = asked(trace, on)?.by_zipf(alpha.into());
            web(cell.mtu, server, clients, asked, on, stop)
        }
        Workload::Workers {
            program,
            workers,
            clients,
            loops,
        } => {
            let job = workers::Job {
                service: program,
                workers,
                clients,
                loops,
            };
            workers::measure(job, on, stock, stop)
        }
        Workload::Mpi { library, size } | Workload::MpiStream { library, size } => {
            let is_stream = matches!(cell.workload, Workload::MpiStream { .. });
            let job = mpi::Job {
                library,
                is_stream,
                size,
            };
            mpi::measure(job, cell.mtu, on, stop)
        }
        _ => Err("its sides are no programs".into()),
    };
    measured.map_err(|reason| match stop.load(Ordering::Relaxed) {
        true => PairError::Interrupted,
        false => PairError::Failed(reason),
    })
}

/// The first missing program, and the package that has it.
fn missing<'a>(mut programs: impl Iterator<Item = &'a Program>) -> Option<Program> {
    programs.find(|(program, _)| find(program).is_none()).copied()
}

/// The line of the clients.
const CLIENTS: &str = "exec \"$TOEHOLD\" lab-web-clients $DIR/order.json $ADDRESS:$PORT $SERVER";

/// The requests of a trace.
fn asked(trace: Trace, on: On<'_>) -> Result<Asked, PairError> {
    match (trace, &on.settings.trace) {
        (Trace::Synthetic, _) => Ok(Asked::synthetic()),
        (Trace::WorldCup, Some(log)) => Asked::world_cup(log)
            .map_err(|error| PairError::Failed(format!("the trace {}: {error}", log.display()))),
        (Trace::WorldCup, None) => {
            let reason = "the World Cup trace is missing: name a log of it with --trace";
            Err(PairError::Unavailable(reason.into()))
        }
    }
}

fn web(
    mtu: Option<u16>,
    server: WebServer,
    clients: u8,
    asked: Asked,
    on: On<'_>,
    stop: &AtomicBool,
) -> Result<(Side, Side), String> {
    let files = Files::make(on.toehold).map_err(|error| error.to_string())?;
    for file in &asked.files {
        files
            .serve(&file.name, file.length)
            .map_err(|error| error.to_string())?;
    }
    let (way, up) = on.way();
    let shape = Shape {
        mtu,
        up,
        ..Shape::default()
    };
    let places = Places::make(on.toehold, &files, on.settings.cores, &shape);
    let places = places.map_err(|error| error.to_string())?;
    let span = |ms| Duration::from_millis(ms);
    let order = Order {
        clients,
        asked,
        warm_up: Extent::Span(span(on.settings.warm_up_ms)),
        span: Extent::Span(span(on.settings.span_ms)),
        patience: span(on.settings.patience_ms),
        engines: match way {
            Way::Toehold => places.engines(),
            _ => Vec::new(),
        },
        first: 0,
        groups: Vec::new(),
    };
    let text = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
    std::fs::write(files.path().join("order.json"), text).map_err(|error| error.to_string())?;
    let lines = Lines {
        back: None,
        server: Some(web_server(server)),
        client: CLIENTS,
        loops: 0,
        seconds: 0,
        limit: span(on.settings.warm_up_ms) + span(on.settings.span_ms) + order.patience + PATIENCE,
    };
    let before = places.offloaded();
    let said = exchange(&places, &lines, way, stop)?;
    if !said.status.success() {
        return Err(said.complaint());
    }
    if way == Way::Toehold && places.offloaded() == before {
        return Err("nothing of it went over the node".into());
    }
    let counted: Counted = serde_json::from_str(said.output.trim()).map_err(|_| said.complaint())?;
    Ok((counted.client, counted.server))
}
