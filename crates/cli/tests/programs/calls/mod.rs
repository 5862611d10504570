//! What the calls on sockets say, one by one.

use crate::support::Fabrics;
use crate::{Place, alike, counter};

/// What a script says, which is to be the same everywhere.
fn says(place: &Place, script: &str) -> String {
    place.file("said.py", include_str!("said.py"));
    let script = place.file("script.py", script);
    place.says(&["python3", &script])
}

#[test]
#[ignore = "needs python3"]
fn calls_say_what_the_kernels_say() {
    alike(0, |place| {
        let said = says(place, include_str!("calls.py"));
        if let Some(fabrics) = &place.nodes {
            // Both ends are on one node, at the address by which every host calls itself.
            let status = fabrics.json("stat client --json");
            assert!(counter(&status, "tcp_passive_opens") > 10);
        }
        said
    });
}

#[test]
#[ignore = "needs python3"]
fn calls_wait_as_the_kernels_do() {
    alike(0, |place| says(place, include_str!("waits.py")));
}

#[test]
#[ignore = "needs python3"]
fn what_the_last_process_closes_is_closed_at_once() {
    alike(0, |place| says(place, include_str!("ended.py")));
}

#[test]
#[ignore = "needs cc"]
fn a_handler_that_waits_for_children_takes_no_memory() {
    alike(0, |place| {
        let program = place.compile("cc", "ended", include_str!("ended.c"));
        let said = place.says(&[&program]);
        assert_eq!(said, "3 ended, 0 taken\n");
        said
    });
}

#[test]
#[ignore = "needs python3"]
fn options_say_what_the_kernels_say() {
    alike(0, |place| says(place, include_str!("options.py")));
}

/// The page of options, which is made of the table that the library decides by.
const PAGE: &str = include_str!("../../../../../docs/socket-options.md");

/// What a script says that has parts.
fn says_of(place: &Place, script: &str, words: &[&str]) -> String {
    place.file("said.py", include_str!("said.py"));
    let script = place.file("script.py", script);
    place.says(&[&["python3", &script], words].concat())
}

#[test]
#[ignore = "needs python3"]
fn every_option_is_as_its_table_says() {
    alike(0, |place| {
        let page = place.file("socket-options.md", PAGE);
        let where_it_runs = if place.nodes.is_some() { "node" } else { "kernel" };
        let said = says_of(place, include_str!("table.py"), &[&page, where_it_runs]);
        place.connections_of_client(100);
        // So many lines are compared one by one, for the first that differs to be seen.
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    });
}

/// What an option does, over the kernel and on nodes.
fn has_its_effect(part: &str) {
    alike(0, |place| {
        let said = says_of(place, include_str!("effects.py"), &[part]);
        place.connections_of_client(1);
        said
    });
}

#[test]
#[ignore = "needs python3"]
fn received_data_are_stamped() {
    has_its_effect("stamps");
}

#[test]
#[ignore = "needs python3"]
fn stamps_of_what_is_sent_are_refused() {
    has_its_effect("sent_stamps");
}

#[test]
#[ignore = "needs python3"]
fn programs_that_choose_listeners_are_refused() {
    has_its_effect("choosers");
}

#[test]
#[ignore = "needs python3"]
fn filters_of_segments_are_refused() {
    has_its_effect("filters");
}

#[test]
#[ignore = "needs python3"]
fn a_bounded_rate_is_not_exceeded() {
    has_its_effect("pace");
}

#[test]
#[ignore = "needs python3 and root"]
fn forced_buffers_hold_what_was_asked_for() {
    has_its_effect("forced");
}

#[test]
#[ignore = "needs python3"]
fn what_the_kernel_fills_of_tcp_info_is_filled() {
    has_its_effect("info");
}

/// What calls say of arguments that are wrong, over the kernel and on nodes.
fn errors_are_the_kernels(part: &str) {
    alike(0, |place| {
        let said = says_of(place, include_str!("errnos.py"), &[part]);
        place.connections_of_client(1);
        said
    });
}

#[test]
#[ignore = "needs python3"]
fn epoll_checks_its_arguments_as_the_kernels() {
    errors_are_the_kernels("epoll");
}

#[test]
#[ignore = "needs python3"]
fn bind_says_what_the_kernels_says() {
    errors_are_the_kernels("bind");
}

#[test]
#[ignore = "needs python3"]
fn discarded_bytes_touch_no_buffer() {
    errors_are_the_kernels("discarded");
}

#[test]
#[ignore = "needs python3"]
fn no_call_moves_more_than_two_gibibytes() {
    errors_are_the_kernels("huge");
}

#[test]
#[ignore = "needs python3"]
fn messages_are_what_the_kernels_are() {
    alike(0, |place| says(place, include_str!("messages.py")));
}

#[test]
#[ignore = "needs python3"]
fn there_are_no_rings_past_the_library() {
    // Over one, a program would ask the kernel to watch a connection that the kernel never
    // hears of, and wait for ever.
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    let place = Place::new(Some(nodes));
    let script = "import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True);
print(libc.syscall(425, 1, ctypes.create_string_buffer(120)), errno.errorcode[ctypes.get_errno()])";
    assert_eq!(place.says(&["python3", "-c", script]), "-1 ENOSYS\n");
    place.check(0);
}

/// PHP loads its extensions so: they find libc's functions before those of a library that is
/// preloaded.
#[test]
#[ignore = "needs cc, python3"]
fn libraries_that_are_bound_to_libc_first_have_connections() {
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
