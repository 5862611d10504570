//! The rows: a server, a client, and the parser of the client's figure.

use crate::experiment::Limit;

use super::outputs::{self, Parser};
use crate::workload::WebServer;

/// Programs to run, and the figure in their output.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name of its ratio.
    pub name: &'static str,
    /// The row's subject, for people.
    pub about: &'static str,
    /// Unit of its figures.
    pub unit: &'static str,
    /// Whether less is better: then the ratio is kernel over Toehold, otherwise the inverse.
    pub is_time: bool,
    /// The target of the ratio.
    pub limit: Limit,
    /// Required programs, with their packages.
    pub programs: &'static [(&'static str, &'static str)],
    /// The server, if there is one, as a shell's line.
    pub(super) server: Option<&'static str>,
    /// The client, as a shell's line; its standard output is parsed.
    pub(super) client: &'static str,
    pub(super) parse: Parser,
}

const NGINX: (&str, &str) = ("nginx", "nginx-light");
const WRK: (&str, &str) = ("wrk", "wrk");
const REDIS: [(&str, &str); 2] = [
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
];

/// nginx, which serves `$DIR` at `$PORT`.
pub(super) const SERVE_FILES: &str =
    "sed s/PORT/$PORT/ nginx.conf > $PORT.conf && exec nginx -c $DIR/$PORT.conf";
const SERVE_KEYS: &str = "exec redis-server --port $PORT --bind 0.0.0.0 --protected-mode no --save ''";
pub(super) const SERVE_ECHO: &str = "exec sockperf server --tcp -i 0.0.0.0 -p $PORT";
/// With a maximum rate: otherwise it counts at most 600 000 messages a second.
const ASK_ECHO: &str = "exec sockperf ping-pong --tcp -i $ADDRESS -p $PORT -m 64 -t $SPAN --mps=9000000";

/// The common values of all rows.
const PLAIN: Row = Row {
    name: "",
    about: "",
    unit: "requests/s",
    is_time: false,
    limit: Limit::AtLeast(1.0),
    programs: &[NGINX, WRK],
    server: Some(SERVE_FILES),
    client: "",
    parse: outputs::wrk,
};

/// All rows, in the order of the report. A shell's line may use `$ADDRESS`, `$PORT`, `$SPAN` and
/// `$DIR`, a directory with `nginx.conf` and its files.
pub const ROWS: &[Row] = &[
    Row {
        name: "netpipe_latency",
        about: "NetPIPE, 1 byte one way",
        unit: "µs",
        is_time: true,
        limit: Limit::AtLeast(6.0),
        programs: &[("NPtcp", "netpipe-tcp")],
        server: Some("exec NPtcp -u 1 -p 0 -P $PORT"),
        client: "NPtcp -h $ADDRESS -u 1 -p 0 -P $PORT -o $DIR/sizes >/dev/null 2>&1 && cat $DIR/sizes",
        parse: outputs::netpipe,
    },
    Row {
        name: "sockperf_p50",
        about: "sockperf, 64 bytes one way, median",
        unit: "µs",
        is_time: true,
        limit: Limit::AtLeast(6.0),
        programs: &[("sockperf", "sockperf")],
        server: Some(SERVE_ECHO),
        client: ASK_ECHO,
        parse: outputs::sockperf_p50,
    },
    Row {
        name: "sockperf_p999",
        about: "sockperf, 64 bytes one way, 99.9 %",
        unit: "µs",
        is_time: true,
        limit: Limit::AtLeast(3.0),
        programs: &[("sockperf", "sockperf")],
        server: Some(SERVE_ECHO),
        client: ASK_ECHO,
        parse: outputs::sockperf_p999,
    },
    Row {
        name: "iperf3",
        about: "iperf3, one stream",
        unit: "Gb/s",
        limit: Limit::AtLeast(1.5),
        programs: &[("iperf3", "iperf3")],
        server: Some("exec iperf3 -s -p $PORT"),
        client: "exec iperf3 -c $ADDRESS -p $PORT -t $SPAN --json",
        parse: outputs::iperf3,
        ..PLAIN
    },
    Row {
        name: "redis_1",
        about: "redis-benchmark GET, 1 connection",
        limit: Limit::AtLeast(3.0),
        programs: &REDIS,
        server: Some(SERVE_KEYS),
        client: "exec redis-benchmark -h $ADDRESS -p $PORT -t get -c 1 -n ${SPAN}0000 --csv",
        parse: outputs::redis,
        ..PLAIN
    },
    Row {
        name: "redis_50",
        about: "redis-benchmark GET, 50 connections",
        limit: Limit::AtLeast(2.0),
        programs: &REDIS,
        server: Some(SERVE_KEYS),
        client: "exec redis-benchmark -h $ADDRESS -p $PORT -t get -c 50 -n ${SPAN}00000 --csv",
        parse: outputs::redis,
        ..PLAIN
    },
    Row {
        name: "nginx_1k_1",
        about: "nginx, 1 KB, wrk with 1 connection",
        limit: Limit::AtLeast(3.0),
        client: "exec wrk -t1 -c1 -d$SPAN http://$ADDRESS:$PORT/1k",
        ..PLAIN
    },
    Row {
        name: "nginx_1k_16",
        about: "nginx, 1 KB, wrk with 16 connections",
        limit: Limit::AtLeast(1.8),
        client: "exec wrk -t1 -c16 -d$SPAN http://$ADDRESS:$PORT/1k",
        ..PLAIN
    },
    Row {
        name: "nginx_1m",
        about: "nginx, 1 MB, wrk with 4 connections",
        limit: Limit::AtLeast(1.5),
        client: "exec wrk -t1 -c4 -d$SPAN http://$ADDRESS:$PORT/1m",
        ..PLAIN
    },
    Row {
        name: "connection_per_request",
        about: "nginx, 1 KB, wrk, a connection a request",
        limit: Limit::AtLeast(2.0),
        client: "exec wrk -t1 -c16 -d$SPAN -H 'Connection: close' http://$ADDRESS:$PORT/1k",
        ..PLAIN
    },
    Row {
        name: "unused_shim",
        about: "pipes, files, sort and tar: time with the library over time without",
        unit: "s",
        is_time: true,
        limit: Limit::AtMost(1.02),
        programs: &[("bash", "bash"), ("tar", "tar"), ("sort", "coreutils")],
        server: None,
        client: UNUSED,
        parse: outputs::time,
    },
];

/// A program's work with descriptors without a socket. It is long and precise enough that a
/// difference of two percent shows.
const UNUSED: &str = "cd $DIR; bash -c 'TIMEFORMAT=\"real %3R\"; time {
    dd if=/dev/zero bs=512 count=${SPAN}000000 2>/dev/null | dd of=/dev/null bs=512 2>/dev/null
    for part in 1 2 3 4; do od -An -v -tx4 -w16 1m; done | sort > sorted
    tar -cf - 1m sorted | tar -tf - >/dev/null
}' 2>&1";

impl Row {
    /// Whether the row measures the cost of the library without sockets.
    pub fn is_about_cost(&self) -> bool {
        self.server.is_none()
    }

    /// The ratio of a round's figures: at least 1 if Toehold is better, except for rows about cost.
    pub(super) fn ratio(&self, toehold: f64, kernel: f64) -> f64 {
        if self.is_time && !self.is_about_cost() {
            kernel / toehold
        } else {
            toehold / kernel
        }
    }
}

/// The line that starts a server at port `$PORT`.
pub(super) fn web_server(server: WebServer) -> &'static str {
    match server {
        WebServer::Apache => "exec apache2 -DFOREGROUND -f $DIR/apache.conf",
        WebServer::Nginx => SERVE_FILES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_unique_name_and_programs() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert!(!row.about.is_empty() && !row.client.is_empty() && !row.programs.is_empty());
            let lines = [row.server, Some(row.client)];
            let said = |program: &str| lines.iter().flatten().any(|line| line.contains(program));
            assert!(
                row.programs.iter().all(|(program, _)| said(program)),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn ratio_grows_with_improvement_of_toehold() {
        let row = |name| ROWS.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row("sockperf_p50").ratio(2.0, 8.0), 4.0);
        assert_eq!(row("iperf3").ratio(40.0, 10.0), 4.0);
        // The cost of the library, on the other hand.
        assert_eq!(row("unused_shim").ratio(1.5, 1.0), 1.5);
    }
}
