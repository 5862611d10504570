//! Converts the counts of two sides to figures with a stable name and a unit.

use super::kind::Workload;
use super::quantity::{Metric, Quantity, Reading};
use crate::samples::{Counts, Side};

impl Workload {
    /// The figures of one measurement, the main one first. Their names, labels and order depend on
    /// the workload only.
    pub(super) fn metrics(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = self.figures(client, server);
        metrics.extend(self.costs(client, server));
        metrics
    }

    fn figures(&self, client: &Side, server: &Side) -> Vec<Metric> {
        match self {
            Self::PingPong { .. } | Self::WakeUp | Self::Mpi { .. } => self.latency(client, server),
            Self::Layout { .. } => self.untraced(client),
            Self::Stream { .. } | Self::Bulk | Self::Impaired { .. } => self.throughput(client, server),
            Self::Connect => self.connections(client, server),
            Self::Acknowledgement { .. } => self.acknowledgement(client),
            Self::Idle { pairs, .. } => self.idleness(f64::from(*pairs), client, server),
            Self::Crowd { .. } => self.crowd(client, server),
            Self::Availability { .. } => self.availability(server),
            Self::Switching { .. } => self.pauses(client),
            Self::HotSpot { .. } => self.hot_spot(client, server),
            Self::MpiStream { .. } => self.throughput(client, server),
            Self::MultiStream { .. } | Self::FanIn { .. } => self.throughput(client, server),
            // The clients receive, or both do: each side counts the bytes it has received.
            Self::FanOut { .. } => self.received(bps(client), client, server),
            Self::Bidirectional { .. } => self.received(bps(client) + bps(server), client, server),
            Self::Incast { .. } => self.incast(client, server),
            Self::Mixed { .. } => self.crowd(client, server),
            Self::Churn { .. } => self.connections(client, server),
            Self::OpenLoop { .. } => self.open_loop(client, server),
            Self::Web { .. } => self.web(client, server),
            Self::Workers { .. } => self.answered(client),
            Self::LookUp { .. } | Self::Entries { .. } | Self::SetUp { .. } => self.found(server),
            Self::Site { .. } => self.site(client, server),
            Self::FileRead { .. } | Self::FileWrite { .. } => self.file(client, server),
            Self::WebTrace { .. } | Self::WebZipf { .. } => {
                let mut metrics = self.web(client, server);
                metrics.extend(self.by_size(client));
                metrics
            }
        }
    }

    fn latency(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![
            self.main("one way, p50", Quantity::Time, one_way_ns(client, 0.5)),
            self.other("p99", "one way, p99", Quantity::Time, one_way_ns(client, 0.99)),
            self.other(
                "p999",
                "one way, p99.9",
                Quantity::Time,
                one_way_ns(client, 0.999),
            ),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        if let Self::PingPong { size } = self {
            let one_way_s = one_way_ns(client, 0.5) / 1e9;
            let rate_bps = size.bytes() as f64 * 8.0 / one_way_s;
            let label = "bandwidth, one message at a time";
            metrics.push(Metric {
                detail: true,
                ..self.other("bandwidth", label, Quantity::Throughput, rate_bps)
            });
        }
        metrics
    }

    /// The round trips without tracepoints of a ping-pong that is followed.
    fn untraced(&self, client: &Side) -> Vec<Metric> {
        let time =
            |part, label, quantile| self.other(part, label, Quantity::Time, one_way_ns(client, quantile));
        vec![
            self.main("one way, p50", Quantity::Time, one_way_ns(client, 0.5)),
            time("p90", "one way, p90", 0.9),
            time("p99", "one way, p99", 0.99),
            time("p999", "one way, p99.9", 0.999),
            time("max", "one way, longest", 1.0),
        ]
    }

    fn throughput(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let per_gigabyte = [
            ("cpu_client", "CPU, sender", client),
            ("cpu_server", "CPU, receiver", server),
        ];
        let per_thousand = [
            ("cpu_messages_client", "CPU, sender", client),
            ("cpu_messages_server", "CPU, receiver", server),
        ];
        let per_gigabyte = per_gigabyte.map(|(what, label, side)| {
            self.other(what, label, Quantity::CpuPerGigabyte, per_gigabyte_of(side))
        });
        let per_thousand = per_thousand.map(|(what, label, side)| {
            self.other(what, label, Quantity::CpuPerThousand, per_thousand_of(side))
        });
        let throughput = self.main("throughput", Quantity::Throughput, bps(server));
        [throughput]
            .into_iter()
            .chain(per_gigabyte)
            .chain(per_thousand)
            .collect()
    }

    /// The figures of a workload in which several clients, or both sides, may receive.
    fn received(&self, rate_bps: f64, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![self.main("throughput", Quantity::Throughput, rate_bps)];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    fn hot_spot(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![
            self.main("one way, p50", Quantity::Time, one_way_ns(client, 0.5)),
            self.other("p99", "one way, p99", Quantity::Time, one_way_ns(client, 0.99)),
            self.other("messages", "messages of all", Quantity::Rate, rate(client)),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    /// The figures of incast, in which the server times the answers.
    fn incast(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = self.received(bps(server), client, server);
        metrics.extend([
            self.other(
                "p50",
                "all answers, p50",
                Quantity::Time,
                quantile_ns(server, 0.5),
            ),
            self.other(
                "p99",
                "all answers, p99",
                Quantity::Time,
                quantile_ns(server, 0.99),
            ),
        ]);
        metrics
    }

    /// The time from when a request is due to its answer.
    fn open_loop(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![
            self.main("due to answer, p50", Quantity::Time, quantile_ns(client, 0.5)),
            self.other(
                "p99",
                "due to answer, p99",
                Quantity::Time,
                quantile_ns(client, 0.99),
            ),
            self.other(
                "p999",
                "due to answer, p99.9",
                Quantity::Time,
                quantile_ns(client, 0.999),
            ),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    /// The time from a request to the end of its answer.
    fn web(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let time =
            |what, label, quantile| self.other(what, label, Quantity::Time, quantile_ns(client, quantile));
        let mut metrics = vec![
            self.main("transactions", Quantity::Rate, rate(client)),
            time("p50", "response, p50", 0.5),
            time("p99", "response, p99", 0.99),
            time("p999", "response, p99.9", 0.999),
            self.other("throughput", "throughput", Quantity::Throughput, bps(client)),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    /// Answered requests. Only some programs' clients report the duration of each.
    fn answered(&self, client: &Side) -> Vec<Metric> {
        let time =
            |what, label, quantile| self.other(what, label, Quantity::Time, quantile_ns(client, quantile));
        vec![
            self.main("transactions", Quantity::Rate, rate(client)),
            time("p50", "response, p50", 0.5),
            time("p99", "response, p99", 0.99),
        ]
    }

    /// The durations for small, middle and large files.
    fn by_size(&self, client: &Side) -> Vec<Metric> {
        let parts = [
            [("p50_small", "up to 4K, p50"), ("p99_small", "up to 4K, p99")],
            [("p50_middle", "up to 64K, p50"), ("p99_middle", "up to 64K, p99")],
            [("p50_large", "above 64K, p50"), ("p99_large", "above 64K, p99")],
        ];
        let classes = parts.into_iter().enumerate();
        let metrics = classes.flat_map(|(class, parts)| {
            let durations = client.by_size.as_ref().map(|by_size| &by_size[class]);
            let quantiles = parts.into_iter().zip([0.5, 0.99]);
            quantiles.map(move |((part, label), quantile)| {
                self.other(part, label, Quantity::Time, quantile_of(durations, quantile))
            })
        });
        metrics.collect()
    }

    fn connections(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![
            self.main("set up and torn down", Quantity::Rate, rate(client)),
            self.other("p50", "each, p50", Quantity::Time, quantile_ns(client, 0.5)),
            self.other("p99", "each, p99", Quantity::Time, quantile_ns(client, 0.99)),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    fn acknowledgement(&self, client: &Side) -> Vec<Metric> {
        let metrics = [
            self.main(
                "until acknowledged, p50",
                Quantity::Time,
                quantile_ns(client, 0.5),
            ),
            self.other("p99", "p99", Quantity::Time, quantile_ns(client, 0.99)),
            self.other("max", "longest", Quantity::Time, quantile_ns(client, 1.0)),
        ];
        metrics.map(|metric| metric.read_as(Reading::Plain)).into()
    }

    /// For one node, the side with the higher cost; for several, all of them together.
    fn idleness(&self, pairs: f64, client: &Side, server: &Side) -> Vec<Metric> {
        let share = |side: &Side| (side.cpu.total_ns() + side.engine_ns) as f64 / side.span_ns as f64;
        let (waiting, away) = (share(server), share(client));
        let (label, all) = if pairs > 1.0 {
            ("all nodes", waiting + away)
        } else {
            ("a node", waiting.max(away))
        };
        let metrics = [
            self.main(label, Quantity::Share, all),
            self.other(
                "waiting",
                "a program waits in a call",
                Quantity::Share,
                waiting / pairs,
            ),
            self.other("away", "a program is elsewhere", Quantity::Share, away / pairs),
        ];
        metrics.map(|metric| metric.read_as(Reading::Plain)).into()
    }

    fn crowd(&self, client: &Side, server: &Side) -> Vec<Metric> {
        let mut metrics = vec![
            self.main("messages", Quantity::Rate, rate(client)),
            self.other("p50", "one way, p50", Quantity::Time, one_way_ns(client, 0.5)),
            self.other("p99", "one way, p99", Quantity::Time, one_way_ns(client, 0.99)),
        ];
        metrics.extend(self.cpu_per_thousand(client, server));
        metrics
    }

    fn availability(&self, server: &Side) -> Vec<Metric> {
        let available = server
            .computed
            .as_ref()
            .map_or(f64::NAN, |computed| computed.availability());
        // The share of the core that was not left to the loop.
        let lost_s = (1.0 - available) * server.span_ns as f64 / 1e9;
        vec![
            self.main("left to a computing loop", Quantity::Availability, available)
                .read_as(Reading::Both),
            self.other("received", "received", Quantity::Throughput, bps(server)),
            self.other(
                "core",
                "taken of the core",
                Quantity::CpuPerGigabyte,
                lost_s / (server.bytes as f64 / 1e9),
            ),
        ]
    }

    fn pauses(&self, client: &Side) -> Vec<Metric> {
        let metrics = [
            self.main("longest", Quantity::Time, quantile_ns(client, 1.0)),
            self.other("p50", "p50", Quantity::Time, quantile_ns(client, 0.5)),
            self.other("p99", "p99", Quantity::Time, quantile_ns(client, 0.99)),
        ];
        metrics.map(|metric| metric.read_as(Reading::Plain)).into()
    }

    fn cpu_per_thousand(&self, client: &Side, server: &Side) -> [Metric; 2] {
        [
            ("cpu_client", "CPU, client", client),
            ("cpu_server", "CPU, server", server),
        ]
        .map(|(what, label, side)| self.other(what, label, Quantity::CpuPerThousand, per_thousand_of(side)))
    }

    pub(super) fn main(&self, label: &'static str, quantity: Quantity, value: f64) -> Metric {
        Metric {
            name: self.name(),
            part: "",
            label,
            quantity,
            reading: Reading::Compared,
            main: true,
            detail: false,
            value,
        }
    }

    /// A quantile's name follows the workload's kind, as in `latency_p99_64B`; any other name
    /// precedes it, as in `cpu_client_latency_64B`.
    pub(super) fn other(
        &self,
        what: &'static str,
        label: &'static str,
        quantity: Quantity,
        value: f64,
    ) -> Metric {
        let name = self.name();
        let name = match (quantity, name.split_once('_')) {
            (Quantity::Time, Some((kind, size))) => format!("{kind}_{what}_{size}"),
            (Quantity::Time, None) => format!("{name}_{what}"),
            _ => format!("{what}_{name}"),
        };
        Metric {
            name,
            part: what,
            label,
            quantity,
            reading: Reading::Compared,
            main: false,
            detail: false,
            value,
        }
    }
}

fn quantile_ns(side: &Side, quantile: f64) -> f64 {
    quantile_of(side.durations.as_ref(), quantile)
}

fn quantile_of(durations: Option<&Counts>, quantile: f64) -> f64 {
    let found = durations.and_then(|durations| durations.quantile_ns(quantile));
    found.map_or(f64::NAN, |duration| duration as f64)
}

/// Half a round trip.
fn one_way_ns(client: &Side, quantile: f64) -> f64 {
    quantile_ns(client, quantile) / 2.0
}

/// The rate of received bytes, not of written ones.
fn bps(receiver: &Side) -> f64 {
    receiver.bytes as f64 * 8.0 / (receiver.span_ns as f64 / 1e9)
}

fn rate(side: &Side) -> f64 {
    side.messages as f64 / (side.span_ns as f64 / 1e9)
}

fn per_thousand_of(side: &Side) -> f64 {
    seconds(side) / (side.messages as f64 / 1000.0)
}

fn per_gigabyte_of(side: &Side) -> f64 {
    seconds(side) / (side.bytes as f64 / 1e9)
}

fn seconds(side: &Side) -> f64 {
    side.cpu.total_ns() as f64 / 1e9
}
