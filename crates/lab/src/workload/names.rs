//! The names of workloads, and their values of each factor.

use super::cell::Factors;
use super::kind::Workload;
use super::tiers::SiteContent;
use crate::size::Size;

/// The kinds in plan files, each with its fields, which are mostly factors.
pub(crate) const KINDS: &[(&str, &[&str])] = &[
    ("ping-pong", &["size"]),
    ("layout", &["size", "trips"]),
    ("wake-up", &[]),
    ("stream", &["size"]),
    ("bulk", &[]),
    ("connect", &[]),
    ("acknowledgement", &["times"]),
    ("idle", &["pairs", "span-ms"]),
    ("crowd", &["pairs", "size"]),
    ("availability", &["size"]),
    ("hot-spot", &["clients", "size"]),
    ("multi-stream", &["streams", "size"]),
    ("fan-in", &["clients", "size"]),
    ("fan-out", &["clients", "size"]),
    ("incast", &["clients", "size"]),
    ("bidirectional", &["size"]),
    ("mixed", &["size"]),
    ("churn", &["size"]),
    ("open-loop", &["rate", "size"]),
    ("web", &["server", "clients", "size"]),
    ("web-trace", &["server", "clients", "trace"]),
    ("web-zipf", &["server", "clients", "trace", "alpha"]),
    ("workers", &["program", "workers", "clients", "loops"]),
    ("mpi-ping-pong", &["library", "size"]),
    ("mpi-stream", &["library", "size"]),
    ("look-up", &["users", "response-ms", "lookups", "strategy"]),
    ("entries", &["users", "span-ms"]),
    ("set-up", &["connections", "strategy"]),
    (
        "site",
        &["content", "alpha", "clients", "scale", "requests", "start"],
    ),
    ("file-read", &["size", "buffer", "cached"]),
    ("file-write", &["size", "buffer"]),
];

/// Fields that may be left out.
pub(crate) const OPTIONAL: [&str; 5] = ["mtu", "alpha", "requests", "start", "cached"];

impl Workload {
    /// Stable name, the first part of its metrics' names, such as `latency_64B`, `layout_64B`, `wakeup`,
    /// `stream_1K`, `stream`, `impaired_1%_20ms`, `connect`, `ack`, `idle_16` or `pingpong_16`.
    /// Names of others are `availability_1K`, `pause`, `hotspot_4_64B`, `open_1000_64B`,
    /// `apache_24_1K`, `apache_24_synthetic` or `apache_24_zipf0.75_synthetic`. Further ones are
    /// `mpi_openmpi_1B`, `nginx-1k_4w_16c_2l`, `postgresql_8c_0l`,
    /// `examined_sequent:19_200ms_2000`, `entered_2000_200ms` or `setup_bsd_3600`.
    pub fn name(&self) -> String {
        match self {
            Self::PingPong { size } => format!("latency_{size}"),
            Self::Layout { size, .. } => format!("layout_{size}"),
            Self::WakeUp => "wakeup".into(),
            Self::Stream { size } => format!("stream_{size}"),
            Self::Bulk => "stream".into(),
            Self::Impaired { faults } => format!("impaired_{}", faults.name()),
            Self::Connect => "connect".into(),
            Self::Acknowledgement { .. } => "ack".into(),
            Self::Idle { pairs: 1, .. } => "idle".into(),
            Self::Idle { pairs, .. } => format!("idle_{}", 2 * u16::from(*pairs)),
            Self::Crowd { pairs, .. } => format!("pingpong_{}", 2 * u16::from(*pairs)),
            Self::Availability { size } => format!("availability_{size}"),
            Self::Switching { still: false, .. } => "pause".into(),
            Self::Switching { still: true, .. } => "pause_still".into(),
            Self::HotSpot { clients, size } => format!("hotspot_{clients}_{size}"),
            Self::MultiStream { streams, size } => format!("multistream_{streams}_{size}"),
            Self::FanIn { clients, size } => format!("fanin_{clients}_{size}"),
            Self::FanOut { clients, size } => format!("fanout_{clients}_{size}"),
            Self::Incast { clients, size } => format!("incast_{clients}_{size}"),
            Self::Bidirectional { size } => format!("bidirectional_{size}"),
            Self::Mixed { size } => format!("mixed_{size}"),
            Self::Churn { size } => format!("churn_{size}"),
            Self::OpenLoop { rate, size } => format!("open_{rate}_{size}"),
            Self::Web {
                server,
                clients,
                size,
            } => format!("{}_{clients}_{size}", server.name()),
            Self::WebTrace {
                server,
                clients,
                trace,
            } => format!("{}_{clients}_{}", server.name(), trace.name()),
            Self::WebZipf {
                server,
                clients,
                trace,
                alpha,
            } => format!("{}_{clients}_zipf{alpha}_{}", server.name(), trace.name()),
            Self::Workers {
                program,
                workers,
                clients,
                loops,
            } => match program.has_workers() {
                true => format!("{}_{workers}w_{clients}c_{loops}l", program.name()),
                false => format!("{}_{clients}c_{loops}l", program.name()),
            },
            Self::Mpi { library, size } => format!("mpi_{}_{size}", library.name()),
            Self::MpiStream { library, size } => format!("mpistream_{}_{size}", library.name()),
            Self::LookUp {
                strategy,
                response_ms,
                users,
                ..
            } => format!("examined_{strategy}_{response_ms}ms_{users}"),
            Self::Entries { users, span_ms } => format!("entered_{users}_{span_ms}ms"),
            Self::SetUp {
                strategy,
                connections,
            } => format!("setup_{strategy}_{connections}"),
            Self::Site { .. } | Self::FileRead { .. } | Self::FileWrite { .. } => {
                self.name_of_deployments().unwrap_or_default()
            }
        }
    }

    /// The workload's kind in plans.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::PingPong { .. } => "ping-pong",
            Self::Layout { .. } => "layout",
            Self::WakeUp => "wake-up",
            Self::Stream { .. } => "stream",
            Self::Bulk => "bulk",
            Self::Impaired { .. } => "impaired",
            Self::Connect => "connect",
            Self::Acknowledgement { .. } => "acknowledgement",
            Self::Idle { .. } => "idle",
            Self::Crowd { .. } => "crowd",
            Self::Availability { .. } => "availability",
            Self::Switching { .. } => "switching",
            Self::HotSpot { .. } => "hot-spot",
            Self::MultiStream { .. } => "multi-stream",
            Self::FanIn { .. } => "fan-in",
            Self::FanOut { .. } => "fan-out",
            Self::Incast { .. } => "incast",
            Self::Bidirectional { .. } => "bidirectional",
            Self::Mixed { .. } => "mixed",
            Self::Churn { .. } => "churn",
            Self::OpenLoop { .. } => "open-loop",
            Self::Web { .. } => "web",
            Self::WebTrace { .. } => "web-trace",
            Self::WebZipf { .. } => "web-zipf",
            Self::Workers { .. } => "workers",
            Self::Mpi { .. } => "mpi-ping-pong",
            Self::MpiStream { .. } => "mpi-stream",
            Self::LookUp { .. } => "look-up",
            Self::Entries { .. } => "entries",
            Self::SetUp { .. } => "set-up",
            Self::Site { .. } => "site",
            Self::FileRead { .. } => "file-read",
            Self::FileWrite { .. } => "file-write",
        }
    }

    /// The name of its chart: the kind, and the measured program, if there is one.
    pub fn family(&self) -> String {
        match self {
            Self::Web { server, .. } => format!("{} {}", self.kind(), server.name()),
            Self::WebTrace { server, trace, .. } | Self::WebZipf { server, trace, .. } => {
                format!("{} {} {}", self.kind(), server.name(), trace.name())
            }
            Self::Mpi { library, .. } | Self::MpiStream { library, .. } => {
                format!("{} {}", self.kind(), library.name())
            }
            Self::Workers { program, .. } => format!("{} {}", self.kind(), program.name()),
            Self::LookUp { strategy, .. } | Self::SetUp { strategy, .. } => {
                format!("{} {strategy}", self.kind())
            }
            Self::FileRead { cached: true, .. } => format!("{} cached", self.kind()),
            _ => self.kind().to_owned(),
        }
    }

    /// Title for people.
    pub fn title(&self) -> String {
        match self {
            Self::PingPong { size } => format!("ping-pong, {size}"),
            Self::Layout { size, .. } => format!("followed ping-pong, {size}"),
            Self::WakeUp => "wake-up, 64B".into(),
            Self::Stream { size } => format!("stream, {size} writes"),
            Self::Bulk => "bulk stream".into(),
            Self::Impaired { faults } => faults.title(),
            Self::Connect => "connections".into(),
            Self::Acknowledgement { .. } => "receiver computes".into(),
            Self::Idle { pairs: 1, .. } => "one node".into(),
            Self::Idle { pairs, .. } | Self::Crowd { pairs, .. } => {
                format!("{} nodes", 2 * u16::from(*pairs))
            }
            Self::Availability { size } => format!("stream, {size} writes"),
            Self::Switching { still: false, times } => format!("{times} changes"),
            Self::Switching { still: true, times } => format!("{times} times nothing"),
            Self::HotSpot { clients, size } => format!("{}, ping-pong, {size}", several(*clients, "client")),
            Self::MultiStream { streams, size } => format!("{}, {size} writes", several(*streams, "stream")),
            Self::FanIn { clients, size } => format!("from {}, {size} writes", several(*clients, "client")),
            Self::FanOut { clients, size } => format!("to {}, {size} writes", several(*clients, "client")),
            Self::Incast { clients, size } => format!("{clients} clients answer at once, {size}"),
            Self::Bidirectional { size } => format!("both ways at once, {size} writes"),
            Self::Mixed { size } => format!("ping-pong, 1B to {size}"),
            Self::Churn { size } => format!("a connection a request, {size}"),
            Self::OpenLoop { rate, size } => format!("{rate} requests a second, {size}"),
            Self::Web {
                server,
                clients,
                size,
            } => format!(
                "{}, {}, a file of {size}",
                server.name(),
                several(*clients, "client")
            ),
            Self::WebTrace {
                server,
                clients,
                trace,
            } => format!(
                "{}, {}, {}",
                server.name(),
                several(*clients, "client"),
                trace.title()
            ),
            Self::WebZipf {
                server,
                clients,
                trace,
                alpha,
            } => format!(
                "{}, {}, α {alpha}, files of {}",
                server.name(),
                several(*clients, "client"),
                trace.title()
            ),
            Self::Workers {
                program,
                workers,
                clients,
                loops,
            } => {
                let mut title = program.title().to_owned();
                if let Some(worker) = program.worker() {
                    title.push_str(&format!(", {}", several(*workers, worker)));
                }
                title.push_str(&format!(", {}", several(*clients, "client")));
                if *loops > 0 {
                    title.push_str(&format!(", beside {}", several(*loops, "busy loop")));
                }
                title
            }
            Self::Mpi { library, size } => format!("{}, ping-pong, {size}", library.name()),
            Self::MpiStream { library, size } => format!("{}, stream of {size}", library.name()),
            Self::LookUp {
                strategy,
                response_ms,
                users,
                ..
            } => format!("{strategy}, {users} users, R = {response_ms} ms"),
            Self::Entries { users, span_ms } => format!("{users} users, {span_ms} ms"),
            Self::SetUp {
                strategy,
                connections,
            } => format!("{strategy}, {connections} connections"),
            Self::Site { .. } | Self::FileRead { .. } | Self::FileWrite { .. } => {
                self.title_of_deployments().unwrap_or_default()
            }
        }
    }

    /// The workload's value of each factor.
    pub(super) fn factors(&self) -> Factors {
        let of = |name: &str, value: u64| (name.to_owned(), value);
        let size = |size: &Size| of("size", size.bytes() as u64);
        let factors = match self {
            Self::PingPong { size: bytes } | Self::Stream { size: bytes } => vec![size(bytes)],
            Self::Layout { size: bytes, .. } => vec![size(bytes)],
            Self::Mpi { size: bytes, .. } | Self::MpiStream { size: bytes, .. } => vec![size(bytes)],
            Self::Availability { size: bytes }
            | Self::Bidirectional { size: bytes }
            | Self::Mixed { size: bytes }
            | Self::Churn { size: bytes } => vec![size(bytes)],
            Self::Web {
                clients, size: bytes, ..
            }
            | Self::HotSpot { clients, size: bytes }
            | Self::FanIn { clients, size: bytes }
            | Self::FanOut { clients, size: bytes }
            | Self::Incast { clients, size: bytes } => vec![of("clients", (*clients).into()), size(bytes)],
            Self::WebTrace { clients, .. } => vec![of("clients", (*clients).into())],
            Self::Workers {
                program,
                workers,
                clients,
                loops,
            } => {
                let workers = program.has_workers().then(|| of("workers", (*workers).into()));
                let others = [of("clients", (*clients).into()), of("loops", (*loops).into())];
                workers.into_iter().chain(others).collect()
            }
            Self::WebZipf { clients, alpha, .. } => vec![
                of("clients", (*clients).into()),
                of("alpha_hundredths", alpha.hundredths().into()),
            ],
            Self::MultiStream { streams, size: bytes } => {
                vec![of("streams", (*streams).into()), size(bytes)]
            }
            Self::OpenLoop { rate, size: bytes } => vec![of("rate", (*rate).into()), size(bytes)],
            Self::Crowd { pairs, size: bytes } => vec![of("pairs", (*pairs).into()), size(bytes)],
            Self::Idle { pairs, .. } => vec![of("pairs", (*pairs).into())],
            Self::LookUp {
                response_ms, users, ..
            } => vec![
                of("users", (*users).into()),
                of("response_ms", (*response_ms).into()),
            ],
            Self::Entries { users, span_ms } => {
                vec![of("users", (*users).into()), of("span_ms", (*span_ms).into())]
            }
            Self::SetUp { connections, .. } => vec![of("connections", (*connections).into())],
            Self::Site {
                content,
                alpha,
                clients,
                scale,
                ..
            } => {
                let of_class = match content {
                    SiteContent::Class(class) => vec![
                        of("class", (*class).into()),
                        of("alpha_hundredths", alpha.hundredths().into()),
                    ],
                    SiteContent::WorldCup => Vec::new(),
                };
                let others = [of("clients", (*clients).into()), of("scale", (*scale).into())];
                of_class.into_iter().chain(others).collect()
            }
            Self::FileRead {
                size: bytes, buffer, ..
            }
            | Self::FileWrite { size: bytes, buffer } => {
                vec![of("size", bytes.bytes()), of("buffer", buffer.bytes() as u64)]
            }
            Self::Impaired { faults } => vec![
                of("loss_per_mille", faults.loss_per_mille.into()),
                of("delay_ms", faults.delay_ms.into()),
            ],
            _ => Vec::new(),
        };
        factors.into_iter().collect()
    }
}

/// A number with a noun.
fn several(number: u8, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => match what.split_once(" of ") {
            Some((first, rest)) => format!("{number} {first}s of {rest}"),
            None => format!("{number} {what}s"),
        },
    }
}
