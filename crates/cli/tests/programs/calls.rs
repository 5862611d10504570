//! What the calls on sockets say, one by one.

use crate::{alike, counter};

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
