//! Foreign load generators in place of this program's own: the difference shows the generators'
//! costs.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::place::{Places, Shape, Way};
use super::rows::SERVE_ECHO;
use super::rows::web_server;
use super::{Files, Lines, On, PATIENCE, exchange, outputs};
use crate::samples::{Counts, Side};
use crate::size::Size;
use crate::testbed::Program;
use crate::workload::{Cell, Workload};

/// Least length of a sockperf message, in bytes.
const LEAST_MESSAGE: usize = 14;

/// A generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generator {
    /// Ping-pong.
    Sockperf,
    /// Ping-pong, which measures the time of many messages together.
    Netpipe,
    /// Clients of a web server.
    Wrk,
}

/// The arguments of a cell's generator, and the parser of its output.
struct Job {
    server: String,
    client: String,
    read: Reader,
    /// Size of a message, or of the server's file.
    size: Size,
}

/// Converts a client's output, and the size of a message, to its counts.
type Reader = fn(&str, Size) -> Option<Side>;

impl Generator {
    /// The generator of a candidate.
    pub(crate) fn of(candidate: &str) -> Option<Self> {
        let all = [Self::Sockperf, Self::Netpipe, Self::Wrk];
        all.into_iter().find(|generator| generator.name() == candidate)
    }

    /// The generator's name as a candidate.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sockperf => "sockperf",
            Self::Netpipe => "netpipe",
            Self::Wrk => "wrk",
        }
    }

    /// The programs it needs.
    pub(crate) const fn programs(self) -> &'static [Program] {
        match self {
            Self::Sockperf => &[("sockperf", "sockperf")],
            Self::Netpipe => &[("NPtcp", "netpipe-tcp")],
            Self::Wrk => &[("wrk", "wrk")],
        }
    }

    /// Whether it supports a workload.
    pub(crate) fn supports(self, workload: &Workload) -> bool {
        match (self, workload) {
            (Self::Sockperf, Workload::PingPong { size }) => size.bytes() >= LEAST_MESSAGE,
            (Self::Netpipe, Workload::PingPong { .. }) | (Self::Wrk, Workload::Web { .. }) => true,
            _ => false,
        }
    }

    fn job(self, workload: &Workload) -> Option<Job> {
        let (server, client, read, size): (_, _, Reader, _) = match (self, *workload) {
            (Self::Sockperf, Workload::PingPong { size }) => {
                let limits = format!("-m {} -t $SPAN --mps=9000000", size.bytes());
                let client = format!("exec sockperf ping-pong --tcp -i $ADDRESS -p $PORT {limits}");
                (SERVE_ECHO.to_owned(), client, sockperf, size)
            }
            (Self::Netpipe, Workload::PingPong { size }) => {
                let sizes = format!("-l {size} -u {size} -p 0 -P $PORT", size = size.bytes());
                let client =
                    format!("NPtcp -h $ADDRESS {sizes} -o $DIR/sizes >/dev/null 2>&1 && cat $DIR/sizes");
                // Both must know the length of messages.
                (format!("exec NPtcp {sizes}"), client, netpipe, size)
            }
            (
                Self::Wrk,
                Workload::Web {
                    server,
                    clients,
                    size,
                },
            ) => {
                let client = format!("exec wrk -t 1 -c {clients} -d ${{SPAN}}s http://$ADDRESS:$PORT/{FILE}");
                (web_server(server).to_owned(), client, wrk, size)
            }
            _ => return None,
        };
        Some(Job {
            server,
            client,
            read,
            size,
        })
    }

    /// The counts of its clients in a cell, over the kernel between two namespaces.
    pub(super) fn measure(self, cell: Cell, on: On<'_>, stop: &AtomicBool) -> Result<(Side, Side), String> {
        let job = self.job(&cell.workload).ok_or("it does no such thing")?;
        let files = Files::make(on.toehold).map_err(|error| error.to_string())?;
        files
            .serve(FILE, job.size.bytes() as u64)
            .map_err(|error| error.to_string())?;
        let shape = Shape {
            mtu: cell.mtu,
            ..Shape::default()
        };
        let places = Places::make(on.toehold, &files, on.settings.cores, &shape);
        let places = places.map_err(|error| error.to_string())?;
        let seconds = Duration::from_millis(on.settings.span_ms).as_secs_f64().ceil() as u32;
        let lines = Lines {
            back: None,
            server: Some(&job.server),
            client: &job.client,
            loops: 0,
            seconds: seconds.max(1),
            limit: Duration::from_secs(seconds.into()) * 2 + PATIENCE,
        };
        let said = exchange(&places, &lines, Way::Kernel, stop)?;
        let client = said
            .status
            .success()
            .then(|| (job.read)(&said.output, job.size))
            .flatten();
        Ok((client.ok_or_else(|| said.complaint())?, Side::default()))
    }
}

/// The file that wrk requests.
const FILE: &str = "file";

/// Converts sockperf's one-way percentiles to round trips.
fn sockperf(output: &str, _: Size) -> Option<Side> {
    let percentile = |line: &str| {
        let (_, said) = line.split_once("percentile ")?;
        let (percent, one_way_us) = said.split_once('=')?;
        let percent: f64 = percent.trim().parse().ok()?;
        let one_way_us: f64 = one_way_us.trim().parse().ok()?;
        Some((percent, one_way_us))
    };
    let mut percentiles: Vec<_> = output.lines().filter_map(percentile).collect();
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    /// All messages, in this many parts.
    const PARTS: f64 = 100_000.0;
    let mut below = 0;
    let mut counts = Vec::new();
    for (percent, one_way_us) in percentiles {
        let until = (percent / 100.0 * PARTS).round() as u64;
        if until > below {
            counts.push(((one_way_us * 2e3).round() as u64, until - below));
            below = until;
        }
    }
    (!counts.is_empty()).then(|| Side {
        durations: Some(Counts(counts)),
        ..Side::default()
    })
}

/// Converts NPtcp's one-way time, the mean of many messages, to a round trip.
fn netpipe(output: &str, _: Size) -> Option<Side> {
    let round_trip_ns = (outputs::netpipe(output)? * 2e3).round() as u64;
    Some(Side {
        durations: Some(Counts(vec![(round_trip_ns, 1)])),
        ..Side::default()
    })
}

/// wrk's requests and their time, if none failed.
fn wrk(output: &str, size: Size) -> Option<Side> {
    let rate = outputs::wrk(output)?;
    let line = output.lines().find(|line| line.contains(" requests in "))?;
    let messages: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Side {
        messages,
        bytes: messages * size.bytes() as u64,
        span_ns: (messages as f64 / rate * 1e9).round() as u64,
        ..Side::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Size {
        text.parse().unwrap()
    }

    #[test]
    fn sockperfs_percentiles_are_durations() {
        let output = "sockperf: ---> percentile 99.900 = 2091.142\n\
            sockperf: ---> percentile 99.000 =  211.562\n\
            sockperf: ---> percentile 50.000 =   15.828\n\
            sockperf: ---> percentile 25.000 =   15.000\n";
        let durations = sockperf(output, size("64")).unwrap().durations.unwrap();
        assert_eq!(durations.quantile_ns(0.25), Some(30_000));
        assert_eq!(durations.quantile_ns(0.5), Some(31_656));
        assert_eq!(durations.quantile_ns(0.99), Some(423_124));
        assert_eq!(durations.quantile_ns(0.999), Some(4_182_284));
        assert_eq!(sockperf("sockperf: ERROR", size("64")), None);
    }

    #[test]
    fn netpipes_time_is_a_round_trips_half() {
        let durations = netpipe("      64 85.3   0.00000574\n", size("64"))
            .unwrap()
            .durations
            .unwrap();
        assert_eq!(durations.quantile_ns(0.5), Some(11_480));
    }

    #[test]
    fn wrk_requests_match_its_rate() {
        let output = "Running 6s test @ http://10.77.0.1:8081/1k\n\
            169812 requests in 6.03s, 204.70MB read\nRequests/sec:  28138.83\nTransfer/sec:     33.92MB\n";
        let side = wrk(output, size("1K")).unwrap();
        assert_eq!((side.messages, side.bytes), (169_812, 169_812 * 1024));
        assert!((side.span_ns as f64 / 6.03e9 - 1.0).abs() < 0.01);
        assert_eq!(wrk("Requests/sec:  28138.83\n", size("1")), None);
    }

    #[test]
    fn generator_has_job_for_each_supported_workload() {
        let size = size("64");
        let workloads = [
            Workload::PingPong { size },
            Workload::Stream { size },
            Workload::Web {
                server: crate::workload::WebServer::Nginx,
                clients: 3,
                size,
            },
        ];
        for generator in [Generator::Sockperf, Generator::Netpipe, Generator::Wrk] {
            assert_eq!(Generator::of(generator.name()), Some(generator));
            for workload in &workloads {
                assert_eq!(generator.job(workload).is_some(), generator.supports(workload));
            }
        }
    }
}
