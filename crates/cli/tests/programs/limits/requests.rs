//! A hundred thousand connections, after which no resources stay in use.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::compile;
use crate::support::eventually;
use crate::{Place, alike};

const WARM_UP: u32 = 20_000;
const REQUESTS: u32 = 100_000;

/// The resources of a process, and its private memory in KiB.
#[derive(Debug, PartialEq)]
struct Process {
    descriptors: usize,
    mappings: usize,
    memory: u64,
}

impl Process {
    fn of(number: i64) -> Process {
        let proc = format!("/proc/{number}");
        let rollup = fs::read_to_string(format!("{proc}/smaps_rollup")).unwrap();
        let anonymous = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let memory = anonymous.unwrap().trim_end_matches("kB").trim().parse().unwrap();
        Process {
            descriptors: fs::read_dir(format!("{proc}/fd")).unwrap().count(),
            mappings: fs::read_to_string(format!("{proc}/maps"))
                .unwrap()
                .lines()
                .count(),
            memory,
        }
    }

    /// Checks for equal resources, except for memory that an allocator may need once. A leak of
    /// some bytes a request would show.
    fn check_against(&self, before: &Process) {
        // A process that sends a request to an engine has one more descriptor for a moment, on a
        // busy machine for longer.
        let descriptors = (self.descriptors, before.descriptors);
        assert!(descriptors.0 <= descriptors.1 + 2, "{descriptors:?} descriptors");
        assert!(
            self.mappings <= before.mappings + 2,
            "{self:?}, before {before:?}"
        );
        assert!(self.memory <= before.memory + 512, "{self:?}, before {before:?}");
    }
}

/// The resources at one moment.
struct Count {
    processes: Vec<Process>,
    nodes: Vec<(&'static str, u64)>,
    files: Vec<String>,
    shared: usize,
}

impl Count {
    fn of(place: &Place, programs: [i64; 2]) -> Count {
        let mut processes = programs.to_vec();
        let (mut files, mut nodes) = (Vec::new(), Vec::new());
        if let Some(fabrics) = &place.nodes {
            for node in ["server", "client"] {
                processes.push(fabrics.engine(node).as_raw_nonzero().get().into());
                // Connections end in their own time.
                let stack = || fabrics.json(&format!("stat {node} --json"))["status"]["stack"].take();
                eventually("the end of all connections", || is_empty(&stack()));
                let stack = stack();
                let numbers = ["listeners", "polls", "interests", "possessions", "peer_memory"];
                nodes.extend(numbers.map(|name| (name, stack[name].as_u64().unwrap())));
            }
            files = fabrics.files();
        }
        Count {
            processes: processes.into_iter().map(Process::of).collect(),
            nodes,
            files,
            shared: fs::read_dir("/dev/shm").unwrap().count(),
        }
    }
}

/// Whether a node has neither connections nor payload.
fn is_empty(stack: &Value) -> bool {
    ["connections", "payload_used"]
        .iter()
        .all(|name| stack[name].as_u64() == Some(0))
}

#[test]
#[ignore = "slow: 100 000 connections, over the kernel and on nodes"]
fn hundred_thousand_connections_leave_no_resources() {
    alike(u64::from(REQUESTS), |place| {
        let program = compile(place, "cc", include_str!("requests.c"));
        let server = place.serve(&[&program, &place.port.to_string()]);
        let mut command = place.command("client", &[&program, place.address(), &place.port.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        let mut output = BufReader::new(client.stdout.take().unwrap());
        let programs = [server.0.id(), client.id()].map(i64::from);
        let mut request = |number: u32| {
            let mut said = String::new();
            writeln!(input, "{number}").unwrap();
            output.read_line(&mut said).unwrap();
            assert_eq!(said, format!("requests {number}\n"));
            Count::of(place, programs)
        };
        let before = request(WARM_UP);
        let after = request(REQUESTS);
        for (after, before) in after.processes.iter().zip(&before.processes) {
            after.check_against(before);
        }
        assert_eq!(after.nodes, before.nodes);
        assert_eq!((after.files, after.shared), (before.files, before.shared));
        drop(input);
        (client.wait().unwrap(), server.end(Signal::TERM))
    });
}
