//! What the calls on sockets say, one by one.

use crate::support::Fabrics;
use crate::{Place, alike, counter};

#[test]
#[ignore = "needs python3"]
fn calls_say_what_the_kernels_say() {
    alike(0, |place| {
        let script = place.file("calls.py", include_str!("calls.py"));
        let said = place.says(&["python3", &script]);
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
