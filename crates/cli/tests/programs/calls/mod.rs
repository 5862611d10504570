//! Results of calls on sockets, one by one.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::library::LIBRARY as LIBRARY_PATH;
use crate::support::{Fabrics, text};
use crate::{Place, accepted, alike, alike_directly, free_port, output};

/// The output of a script, which must be the same everywhere.
fn says(place: &Place, script: &str) -> String {
    says_of(place, script, &[])
}

/// The output of a script with parts. Over the kernel it has a network namespace of its own:
/// other programs take none of the ports that it found free.
fn says_of(place: &Place, script: &str, words: &[&str]) -> String {
    const APART: [&str; 6] = [
        "unshare",
        "--net",
        "sh",
        "-c",
        "ip link set lo up && ip route add default dev lo && exec \"$@\"",
        "apart",
    ];
    place.file("said.py", include_str!("said.py"));
    let script = place.file("script.py", script);
    let apart: &[&str] = if place.nodes.is_none() { &APART } else { &[] };
    place.says(&[apart, &["python3", &script], words].concat())
}

#[test]
#[ignore = "needs root, python3"]
fn calls_return_results_of_kernel() {
    alike(0, |place| {
        let said = says(place, include_str!("calls.py"));
        if let Some(fabrics) = &place.nodes {
            // Both ends are on one node, at the loopback address.
            let status = fabrics.json("stat client --json");
            assert!(accepted(&status) > 10);
        }
        said
    });
}

#[test]
#[ignore = "needs root, python3"]
fn blocking_calls_wait_like_kernel() {
    alike(0, |place| says(place, include_str!("waits.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn calls_on_direct_connections_return_results_of_kernel() {
    alike_directly(10, |place| says(place, include_str!("calls.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn blocking_calls_on_direct_connections_wait_like_kernel() {
    alike_directly(5, |place| says(place, include_str!("waits.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn direct_connection_closed_by_last_process_ends_at_once() {
    alike_directly(5, |place| says(place, include_str!("ended.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn options_of_direct_connections_return_values_of_kernel() {
    // The first connection to a listener that no thread has waited for is one over TCP.
    alike_directly(1, |place| says(place, include_str!("options.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn connection_closed_by_last_process_ends_at_once() {
    alike(0, |place| says(place, include_str!("ended.py")));
}

#[test]
#[ignore = "needs cc"]
fn handler_waiting_for_children_takes_no_memory() {
    alike(0, |place| {
        let program = place.compile("cc", "ended", include_str!("ended.c"));
        let said = place.says(&[&program]);
        assert_eq!(said, "3 ended, 0 taken\n");
        said
    });
}

#[test]
#[ignore = "needs root, python3"]
fn options_return_values_of_kernel() {
    alike(0, |place| says(place, include_str!("options.py")));
}

/// Differences listed on the conformance page: over the kernel, and on a node.
const DIFFERS: [(&str, &str, &str); 13] = [
    ("IPV6_ADDRFORM", "taken", "ENOPROTOOPT"),
    ("SO_ZEROCOPY", "taken", "ENOTSUP"),
    ("a child shuts a listener", "ECONNREFUSED", "connected"),
    ("another network namespace", "ENETUNREACH", "connected"),
    ("bind after a reset", "bound", "EINVAL"),
    ("descriptor 100", "closed", "open"),
    (
        "environment of a child",
        "A",
        "A LD_PRELOAD TOEHOLD_FABRIC TOEHOLD_KEEPER TOEHOLD_NETWORKS TOEHOLD_NODE TOEHOLD_QUIET",
    ),
    ("every congestion control", "taken", "taken"),
    ("mmap", "mapped", "ENODEV"),
    ("receive buffer of 16 MiB at most", "True", "True"),
    ("send buffer of 16 MiB at most", "True", "True"),
    ("stamps of what is sent", "taken", "EINVAL"),
    ("told at once", "600", "512"),
];

#[test]
#[ignore = "needs root, python3"] // for a network namespace
fn differences_match_conformance_page() {
    let said = |place: &Place| {
        let said = place.says(&["python3", &place.file("differs.py", include_str!("differs.py"))]);
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let kernel = Place::new(None);
    let expected = DIFFERS.map(|(name, kernel, _)| format!("{name}: {kernel}"));
    assert_eq!(said(&kernel), expected, "over the kernel");
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let expected = DIFFERS.map(|(name, _, node)| format!("{name}: {node}"));
    assert_eq!(said(&place), expected, "on a node");
    place.connections_of_client(600);
}

/// The page of options, generated from the library's table.
const PAGE: &str = include_str!("../../../../../docs/socket-options.md");

#[test]
#[ignore = "needs root, python3"]
fn every_option_matches_its_table() {
    alike(0, |place| {
        let page = place.file("socket-options.md", PAGE);
        let where_it_runs = if place.nodes.is_some() { "node" } else { "kernel" };
        let said = says_of(place, include_str!("table.py"), &[&page, where_it_runs]);
        place.connections_of_client(100);
        // The lines are compared one by one, so that the first difference shows.
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    });
}

/// Checks the effect of an option, over the kernel and on nodes.
fn has_its_effect(part: &str) {
    alike(0, |place| {
        let said = says_of(place, include_str!("effects.py"), &[part]);
        place.connections_of_client(1);
        said
    });
}

#[test]
#[ignore = "needs root, python3"]
fn received_data_are_stamped() {
    has_its_effect("stamps");
}

#[test]
#[ignore = "needs root, python3"]
fn timestamps_of_sent_data_are_refused() {
    has_its_effect("sent_stamps");
}

#[test]
#[ignore = "needs root, python3"]
fn bpf_programs_for_listener_choice_are_refused() {
    has_its_effect("choosers");
}

#[test]
#[ignore = "needs root, python3"]
fn segment_filters_are_refused() {
    has_its_effect("filters");
}

#[test]
#[ignore = "needs root, python3"]
fn pacing_rate_is_not_exceeded() {
    has_its_effect("pace");
}

#[test]
#[ignore = "needs root, python3"]
fn forced_buffer_holds_requested_bytes() {
    has_its_effect("forced");
}

#[test]
#[ignore = "needs root, python3"]
fn tcp_info_has_all_fields_of_kernel() {
    has_its_effect("info");
}

/// Checks errors for invalid arguments, over the kernel and on nodes.
fn errors_are_the_kernels(part: &str) {
    alike(0, |place| {
        let said = says_of(place, include_str!("errnos.py"), &[part]);
        place.connections_of_client(1);
        said
    });
}

#[test]
#[ignore = "needs root, python3"]
fn epoll_checks_arguments_like_kernel() {
    errors_are_the_kernels("epoll");
}

#[test]
#[ignore = "needs root, python3"]
fn bind_returns_results_of_kernel() {
    errors_are_the_kernels("bind");
}

#[test]
#[ignore = "needs root, python3"]
fn discarded_bytes_touch_no_buffer() {
    errors_are_the_kernels("discarded");
}

#[test]
#[ignore = "needs root, python3"]
fn call_moves_at_most_two_gibibytes() {
    errors_are_the_kernels("huge");
}

#[test]
#[ignore = "needs root, python3"]
fn messages_match_kernel() {
    alike(0, |place| says(place, include_str!("messages.py")));
}

#[test]
#[ignore = "needs root, python3"]
fn fast_open_mptcp_and_dissolved_sockets_connect_on_node() {
    alike(15, |place| {
        let echo = place.file("echo.py", include_str!("echo.py"));
        place.file("said.py", include_str!("said.py"));
        let opened = place.file("opened.py", include_str!("opened.py"));
        let (host, port, none) = (place.address(), place.port.to_string(), free_port().to_string());
        let own = if place.nodes.is_some() { "10.77." } else { "127." };
        let _server = place.serve(&["python3", &echo, host, &port]);
        place.says(&["python3", &opened, host, &port, &none, own])
    });
}

/// The output of `early.py`'s client, with a known cookie of the server or without.
fn says_of_early_bytes(is_known: bool) -> String {
    let first = match is_known {
        true => "first 1000 (True, True, True, 0)",
        false => "first 1000 (False, True, False, 1)",
    };
    let rest = "next 1000 (True, True, True, 0)
again EISCONN
no wait True (True, True, True, 0)
parts 1000 (True, True, True, 0)
long 200000 (True, True, True, 0)
plain 1000 (False, True, False, 2)
refused ECONNREFUSED
connected None ENOTCONN EISCONN
True 1
written 1000 (True, True, True, 0) True
no wait None EAGAIN 1000 (True, True, True, 0)
of a child (True, True, True, 0)
refused None ECONNREFUSED
without 1000 (True, True, True, 0)
EINVAL EINVAL
";
    format!("{first}\n{rest}")
}

/// Runs on nodes alone: over the kernel, the administrator decides whether listeners accept early
/// data.
#[test]
#[ignore = "needs root, python3"]
fn first_bytes_with_known_cookie_travel_with_syn() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    place.file("said.py", include_str!("said.py"));
    let early = place.file("early.py", include_str!("early.py"));
    let ports = [place.port, free_port(), free_port(), free_port()].map(|port| port.to_string());
    let [takes, plain, free, none] = &ports;
    let _server = place.serve(&["python3", &early, "serve", place.address(), takes, plain, free]);
    for port in [plain, free] {
        place.await_listener(port.parse().unwrap());
    }
    // The second process finds the cookie that the first has stored.
    for is_known in [false, true] {
        let said = place.says(&[
            "python3",
            &early,
            "ask",
            place.address(),
            takes,
            plain,
            free,
            none,
        ]);
        assert_eq!(said, says_of_early_bytes(is_known));
    }
}

#[test]
#[ignore = "needs cc"]
#[cfg(target_arch = "x86_64")]
fn unmapped_buffers_return_efault() {
    alike(0, |place| {
        let program = place.compile("cc", "buffers", include_str!("buffers.c"));
        place.says(&[&program])
    });
}

/// The calls in the document whose row names this test.
fn walked() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-calls.md");
    let document = fs::read_to_string(path).unwrap();
    let rows = document
        .lines()
        .filter(|line| line.contains("`every_call_says_on_a_connection"));
    let names = rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
    names
        .filter(|(_, rest)| rest.starts_with(|first: char| first.is_ascii_digit()))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
#[ignore = "needs cc"]
#[cfg(target_arch = "x86_64")]
fn every_call_on_connection_matches_kernel() {
    alike(0, |place| {
        let program = place.compile("cc", "walk", include_str!("walk.c"));
        let said = place.says(&[&program]);
        let made = said.lines().filter_map(|line| line.split(' ').next());
        let made: BTreeSet<String> = made.map(str::to_owned).collect();
        let missing: Vec<_> = walked().into_iter().filter(|name| !made.contains(name)).collect();
        assert_eq!(missing, [""; 0], "rows of the document that are not walked");
        said
    });
}

/// A replaced function without a row in the document fails the test.
#[test]
#[ignore = "needs nm"]
fn every_function_of_library_is_in_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-calls.md");
    let document = fs::read_to_string(path).unwrap();
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&*LIBRARY_PATH)
        .output();
    let symbols = text(&symbols.unwrap().stdout);
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert!(names.len() > 100, "{symbols}");
    let unsaid: Vec<_> = names
        .iter()
        .filter(|name| !document.contains(&format!("`{name}`")))
        .collect();
    assert!(unsaid.is_empty(), "{unsaid:?}");
}

#[test]
#[ignore = "needs root, python3"]
fn connection_taken_from_other_process_works() {
    const SCRIPT: &str = "
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
told, tell = os.pipe()
if os.fork() == 0:
    number = int(os.read(told, 9))
    got = libc.syscall(438, os.pidfd_open(os.getppid()), number, 0)
    connection = socket.socket(fileno=got)
    print(connection.getpeername()[0], connection.send(b'from the child'), connection.recv(99), flush=True)
    os._exit(0)
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
os.write(tell, b'%d' % client.fileno())
print(server.recv(99), flush=True)
server.send(b'to it')
os.wait()
print(client.send(b'more'), server.recv(99))
";
    alike(0, |place| place.says(&["python3", "-c", SCRIPT]));
}

#[test]
#[ignore = "needs root, python3"]
fn port_of_connection_is_taken_and_dissolved_socket_was_reset() {
    alike(0, |place| says(place, include_str!("ports.py")));
}

/// Servers like bind9 listen at the address of each interface.
#[test]
#[ignore = "needs cc"]
fn interfaces_have_addresses_of_node() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let program = place.compile("cc", "interfaces", include_str!("interfaces.c"));
    let said = place.says(&[&program]);
    for line in [
        "toe0 10.77.0.2/255.255.0.0 up 1, binds 0 0",
        "toe0 fd77::2/ffff:ffff:ffff:ffff:: up 1, binds 0 0",
    ] {
        assert!(said.lines().any(|said| said == line), "{said}");
    }
    let kernel = output(&mut Command::new(&program));
    let kernel = text(&kernel.stdout);
    let others: Vec<&str> = said.lines().filter(|line| !line.contains("77")).collect();
    assert_eq!(others, kernel.lines().collect::<Vec<_>>());
    place.check(0);
}

/// The kernel's TCP maps received data for reading.
#[test]
#[ignore = "needs root, python3"]
fn connection_is_not_mapped() {
    const SCRIPT: &str = "
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ssize_t
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
print(libc.mmap(None, 4096, 1, 1, client.fileno(), 0), errno.errorcode[ctypes.get_errno()])
";
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    assert_eq!(place.says(&["python3", "-c", SCRIPT]), "-1 ENODEV\n");
    place.check(0);
}

/// The kernel may split a record when room for a part of it is left.
#[test]
#[ignore = "needs cc"]
fn records_of_several_writers_do_not_mix() {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let program = place.compile("cc", "records", include_str!("records.c"));
    for (len, number) in [("12", "4000"), ("500", "2000"), ("4096", "300")] {
        for (parts, waits) in [("1", "1"), ("3", "1"), ("1", "0"), ("3", "0")] {
            let said = place.says(&[&program, len, number, parts, waits]);
            assert_eq!(
                said, "all are whole\n",
                "{len} bytes, {parts} parts, waits: {waits}"
            );
        }
    }
    place.check(0);
}

/// With io_uring, a program would ask the kernel to watch a connection unknown to it, and wait for
/// ever. liburing makes system calls with its own instructions.
#[test]
#[ignore = "needs cc, python3"]
fn rings_are_refused_unless_allowed() {
    const LIBRARY: &str = "
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) { return 0; }
int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters) { return 0; }
int io_uring_setup(unsigned entries, void *parameters) { return 0; }
void *io_uring_get_probe(void) { return &io_uring_setup; }
";
    const SCRIPT: &str = "
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
made = libc.syscall(425, 1, ctypes.create_string_buffer(120))
print(made > 2 or errno.errorcode[ctypes.get_errno()])
rings = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
rings = ctypes.CDLL(None)
print(rings.io_uring_queue_init(1, None, 0), rings.io_uring_queue_init_params(1, None, None),
      rings.io_uring_setup(1, None), bool(rings.io_uring_get_probe()))
";
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let source = place.file("rings.c", LIBRARY);
    let library = format!("{}.so", source.trim_end_matches(".c"));
    place.says(&["cc", "-shared", "-fPIC", "-w", "-o", &library, &source]);
    let says = |allowed: &str| {
        let stats = place.path("stats");
        let mut command = place.nodes.as_ref().unwrap().command(&format!(
            "run --quiet --stats={stats} {allowed} --node client -- python3 -c"
        ));
        command
            .arg(SCRIPT)
            .arg(&library)
            .env("TOEHOLD_LIBRARY", &*LIBRARY_PATH);
        let said = text(&output(&mut command).stdout);
        let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
        (said, stats["counters"]["io_uring"].as_u64())
    };
    assert_eq!(says(""), ("ENOSYS\n-38 -38 -38 False\n".to_owned(), Some(5)));
    let kernel = place.says(&["env", "-u", "LD_PRELOAD", "python3", "-c", SCRIPT, &library]);
    assert_eq!(says("--io-uring allow"), (kernel, Some(0)));
    place.check(0);
}

/// PHP loads its extensions like this: they find libc's functions before those of a preloaded
/// library.
#[test]
#[ignore = "needs cc, python3"]
fn libraries_bound_to_libc_first_have_connections() {
    const LIBRARY: &str = "
#include <poll.h>
#include <sys/socket.h>
int takes(int connection) {
    char bytes[8];
    struct pollfd state = { connection, POLLIN };
    if (poll(&state, 1, 10000) != 1)
        return -1;
    return recv(connection, bytes, sizeof bytes, 0);
}
";
    const SCRIPT: &str = "
import ctypes, os, socket, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.send(b'bytes')
print(library.takes(server.fileno()))
try:
    ctypes.CDLL('/no/such/library.so', mode=os.RTLD_DEEPBIND)
except OSError as error:
    print('no such' in str(error).lower())
";
    alike(0, |place| {
        let source = place.file("library.c", LIBRARY);
        let library = format!("{}.so", source.trim_end_matches(".c"));
        place.says(&["cc", "-shared", "-fPIC", "-o", &library, &source]);
        place.says(&["python3", "-c", SCRIPT, &library])
    });
}
