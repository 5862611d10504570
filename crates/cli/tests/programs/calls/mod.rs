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
