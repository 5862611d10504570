//! Cells of one kind that differ in one factor.

use std::collections::BTreeSet;

use super::panel::Place;
use crate::size::Size;
use crate::workload::{Cell, Factors, MeasuredProgram};

/// Cells of one kind.
pub(super) struct Family {
    /// Stable name: lower-case letters, digits and dashes.
    pub(super) name: String,
    /// Title for people.
    pub(super) title: String,
    /// The factor in which they differ, if it is one.
    pub(super) axis: Option<String>,
    /// Their places on the axis, in ascending order.
    pub(super) places: Vec<Place>,
    /// In the order of places.
    pub(super) cells: Vec<Cell>,
}

/// The families of a plan's cells, in the order in which the plan begins them.
pub(super) fn families(cells: &[Cell]) -> Vec<Family> {
    let mut kinds = Vec::<(String, Vec<Cell>)>::new();
    for cell in cells {
        let kind = cell.workload.family();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, cells)) => cells.push(*cell),
            None => kinds.push((kind, vec![*cell])),
        }
    }
    kinds
        .into_iter()
        .flat_map(|(kind, cells)| of_kind(&kind, cells))
        .collect()
}

/// A family for each setting of the factors other than the swept one. Without a swept factor, one
/// family, with names in place of numbers.
fn of_kind(kind: &str, cells: Vec<Cell>) -> Vec<Family> {
    let most_varied = |cells: &[Cell]| {
        let factors = cells.iter().map(Cell::factors).collect::<Vec<_>>();
        let names = factors
            .iter()
            .flat_map(|factors| factors.keys().cloned())
            .collect::<BTreeSet<_>>();
        let values = |name: &String| {
            factors
                .iter()
                .filter_map(|factors| factors.get(name))
                .collect::<BTreeSet<_>>()
        };
        names.into_iter().max_by_key(|name| values(name).len())
    };
    let swept = most_varied(&cells).and_then(|axis| Some((split(&cells, &axis)?, axis)));
    let Some((groups, axis)) = swept else {
        return vec![family(kind, None, cells, &Factors::new())];
    };
    let groups = groups.into_iter();
    groups
        .map(|(others, cells)| family(kind, Some(&axis), cells, &others))
        .collect()
}

/// Groups cells by their factors other than `axis`. `None` if some cells lack that factor.
fn split(cells: &[Cell], axis: &str) -> Option<Vec<(Factors, Vec<Cell>)>> {
    let mut groups = Vec::<(Factors, Vec<Cell>)>::new();
    for cell in cells {
        let mut others = cell.factors();
        others.remove(axis)?;
        match groups.iter_mut().find(|(known, _)| *known == others) {
            Some((_, cells)) => cells.push(*cell),
            None => groups.push((others, vec![*cell])),
        }
    }
    let is_line = |cells: &Vec<Cell>| {
        let values = cells
            .iter()
            .map(|cell| cell.factors()[axis])
            .collect::<BTreeSet<_>>();
        values.len() == cells.len() && cells.len() > 1
    };
    groups.iter().all(|(_, cells)| is_line(cells)).then_some(groups)
}

fn family(kind: &str, axis: Option<&str>, mut cells: Vec<Cell>, others: &Factors) -> Family {
    let at = |cell: &Cell| axis.map(|axis| cell.factors()[axis]);
    cells.sort_by_key(at);
    let mut name = kind.to_owned();
    let mut title = title(kind);
    for (factor, value) in others {
        name.push_str(&format!(" {factor} {value}"));
        title.push_str(&format!(
            ", {} {}",
            factor_title(kind, factor),
            value_label(factor, *value)
        ));
    }
    let place = |cell: &Cell| Place {
        workload: cell.name(),
        label: match axis.zip(at(cell)) {
            Some((axis, value)) => value_label(axis, value),
            None => cell.title(),
        },
        at: axis.zip(at(cell)).map(|(axis, value)| number(axis, value)),
    };
    Family {
        name: slug(&name),
        title,
        axis: axis.map(|axis| factor_title(kind, axis)),
        places: cells.iter().map(place).collect(),
        cells,
    }
}

/// The title of a kind of workload.
fn title(kind: &str) -> String {
    let known = match kind {
        "ping-pong" => "Latency: half a round trip",
        "layout" => "Latency of followed messages, without tracepoints: half a round trip",
        "wake-up" => "Latency where both sides sleep between messages",
        "stream" => "Throughput, one way",
        "bulk" => "Throughput of large writes, one way",
        "impaired" => "Throughput over paths with faults",
        "connect" => "Connections, set up and torn down one after the other",
        "acknowledgement" => "How long bytes stay unacknowledged whose receiver computes between calls",
        "idle" => "What nodes on which nothing happens use of a core",
        "crowd" => "Ping-pong of pairs of nodes at once, all on the same cores",
        "availability" => "Host availability: what is left of the receiver's core while a stream arrives",
        "switching" => "Longest pauses of a ping-pong beside streams, while placements change and while not",
        "hot-spot" => "Latency of clients that all ask one server",
        "multi-stream" => "Throughput of several streams at once",
        "fan-in" => "Throughput from several clients to one server",
        "fan-out" => "Throughput from one server to several clients",
        "incast" => "Clients that all answer at once",
        "bidirectional" => "Throughput of both directions at once",
        "mixed" => "Ping-pong of messages of mixed sizes",
        "churn" => "A connection for each request",
        "web apache" => "Apache, one file: transactions a second",
        "web nginx" => "nginx, one file: transactions a second",
        "web-trace apache synthetic" => "Apache, requests of a synthetic trace: transactions a second",
        "web-trace nginx synthetic" => "nginx, requests of a synthetic trace: transactions a second",
        "web-trace apache world-cup" => "Apache, requests of the World Cup trace: transactions a second",
        "web-trace nginx world-cup" => "nginx, requests of the World Cup trace: transactions a second",
        "web-zipf apache synthetic" => {
            "Apache, files of a synthetic trace by Zipf's law: transactions a second"
        }
        "web-zipf nginx synthetic" => {
            "nginx, files of a synthetic trace by Zipf's law: transactions a second"
        }
        "web-zipf apache world-cup" => {
            "Apache, files of the World Cup trace by Zipf's law: transactions a second"
        }
        "web-zipf nginx world-cup" => {
            "nginx, files of the World Cup trace by Zipf's law: transactions a second"
        }
        "site" => "Sites: requests a second",
        "file-read" => "A file is read from its begin to its end: bandwidth",
        "file-read cached" => "A cached file is read from its begin to its end: bandwidth",
        "file-write" => "A file is written and brought to the disk: bandwidth",
        "mpi-ping-pong openmpi" => "Ranks of Open MPI: half a round trip",
        "mpi-ping-pong mpich" => "Ranks of MPICH: half a round trip",
        "mpi-stream openmpi" => "Ranks of Open MPI: throughput, one way",
        "mpi-stream mpich" => "Ranks of MPICH: throughput, one way",
        "open-loop" => "Requests at a given rate, whether or not earlier ones are answered",
        "entries" => "Users of TPC/A who enter a transaction within a span",
        other => match other.split_once(' ') {
            Some(("look-up", strategy)) => {
                return format!("Finding connections of TPC/A's users: {strategy}");
            }
            Some(("workers", name)) => match MeasuredProgram::named(name) {
                Some(service) => return format!("{}: transactions a second", service.title()),
                None => other,
            },
            Some(("set-up", strategy)) => return format!("Connections that are set up at once: {strategy}"),
            _ => other,
        },
    };
    let mut letters = known.chars();
    let first = letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>());
    first.unwrap_or_default() + letters.as_str()
}

/// The title of a factor, for people.
fn factor_title(kind: &str, factor: &str) -> String {
    match factor {
        "size" if kind.starts_with("web ") => "file size".into(),
        "size" => "message size".into(),
        "pairs" => "pairs of nodes".into(),
        "loops" => "busy loops".into(),
        "mtu" => "MTU".into(),
        "response_ms" => "response time in ms".into(),
        "span_ms" => "span in ms".into(),
        "alpha_hundredths" => "α".into(),
        other => other.replace('_', " "),
    }
}

/// A factor's value on its axis.
fn number(factor: &str, value: u64) -> f64 {
    match factor {
        "alpha_hundredths" => value as f64 / 100.0,
        _ => value as f64,
    }
}

/// A factor's value, for people.
fn value_label(factor: &str, value: u64) -> String {
    let size = usize::try_from(value).ok().and_then(Size::new);
    match (factor, size) {
        ("size", Some(size)) => size.to_string(),
        _ => number(factor, value).to_string(),
    }
}

/// Lower-case letters and digits, separated by dashes: suitable for a file's name and an anchor.
pub(super) fn slug(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter {
        'µ' => 'u',
        letter => letter.to_ascii_lowercase(),
    });
    let dashed = letters.map(|letter| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '-'
        }
    });
    let dashed = dashed.collect::<String>();
    dashed
        .split('-')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Faults, Trace, WebServer, Workload};

    fn ping_pong(size: &str, mtu: Option<u16>) -> Cell {
        let size = size.parse().unwrap();
        Cell {
            workload: Workload::PingPong { size },
            mtu,
        }
    }

    #[test]
    fn swept_factor_is_axis_and_others_are_families() {
        let cells = [("1K", 9000), ("64", 1500), ("64", 9000), ("1K", 1500)];
        let families = families(&cells.map(|(size, mtu)| ping_pong(size, Some(mtu))));
        let names = families
            .iter()
            .map(|family| family.name.as_str())
            .collect::<Vec<_>>();
        assert_eq!(names, ["ping-pong-mtu-9000", "ping-pong-mtu-1500"]);
        assert_eq!(families[0].title, "Latency: half a round trip, MTU 9000");
        assert_eq!(families[0].axis.as_deref(), Some("message size"));
        let places = families[0]
            .places
            .iter()
            .map(|place| (place.label.as_str(), place.at));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [("64B", Some(64.0)), ("1K", Some(1024.0))]
        );
    }

    #[test]
    fn each_server_has_separate_chart() {
        let web = |server, size: &str| {
            Cell::from(Workload::Web {
                server,
                clients: 24,
                size: size.parse().unwrap(),
            })
        };
        let servers = [WebServer::Apache, WebServer::Nginx];
        let cells = servers.map(|server| [web(server, "1K"), web(server, "1M")]);
        let families = families(cells.as_flattened());
        let names = families
            .iter()
            .map(|family| (&*family.name, family.axis.as_deref()));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                ("web-apache-clients-24", Some("file size")),
                ("web-nginx-clients-24", Some("file size"))
            ]
        );
    }

    #[test]
    fn exponent_is_axis_and_synthetic_trace_is_named() {
        let zipf = |alpha: f64| {
            Cell::from(Workload::WebZipf {
                server: WebServer::Nginx,
                clients: 24,
                trace: Trace::Synthetic,
                alpha: alpha.try_into().unwrap(),
            })
        };
        let families = families(&[zipf(1.0), zipf(0.75)]);
        let [family] = &families[..] else {
            panic!("{}", families.len())
        };
        assert_eq!(family.name, "web-zipf-nginx-synthetic-clients-24");
        assert!(family.title.contains("synthetic trace"), "{}", family.title);
        assert_eq!(family.axis.as_deref(), Some("α"));
        let places = family.places.iter().map(|place| (&*place.label, place.at));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [("0.75", Some(0.75)), ("1", Some(1.0))]
        );
    }

    #[test]
    fn cells_with_several_differences_have_names() {
        let path = |loss_per_mille, delay_ms| {
            let faults = Faults {
                loss_per_mille,
                delay_ms,
                ..Faults::default()
            };
            Cell::from(Workload::Impaired { faults })
        };
        let families = families(&[path(10, 20), path(0, 200), path(0, 20)]);
        assert_eq!((families.len(), &families[0].axis), (1, &None));
        assert_eq!(families[0].places[1].label, "200 ms each way");
    }

    #[test]
    fn single_cell_has_no_axis() {
        let families = families(&[ping_pong("64", None), Workload::Bulk.into()]);
        assert_eq!(families.len(), 2);
        assert!(families.iter().all(|family| family.axis.is_none()));
        assert_eq!(families[0].places[0].label, "ping-pong, 64B");
    }
}
