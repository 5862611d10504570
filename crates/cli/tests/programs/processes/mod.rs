//! Programs of several processes: what a child shares with its parent, and what it does not.

use crate::{Place, alike};

/// `vfork` was `fork`: the parent saw nothing of what its child had written.
#[test]
#[ignore = "needs cc"]
fn vfork_child_shares_memory_and_has_descriptors_of_its_own() {
    alike(0, |place: &Place| {
        let program = place.compile("cc", "borrower", include_str!("borrower.c"));
        let said = place.says(&[&program]);
        place.connections_of_client(1);
        said
    });
}

/// What a script says, which is to be the same everywhere.
fn says(place: &Place, script: &str) -> String {
    place.file("said.py", include_str!("../calls/said.py"));
    let script = place.file("script.py", script);
    place.says(&["python3", &script])
}

/// The mode, timeouts and options of a connection were each process's own.
#[test]
#[ignore = "needs python3"]
fn holders_of_socket_share_modes_options_and_names() {
    alike(0, |place: &Place| {
        let said = says(place, include_str!("shared.py"));
        place.connections_of_client(20);
        said
    });
}

/// Monitors saw none of the connections of their node.
#[test]
#[ignore = "needs python3"]
fn connections_of_node_are_listed_in_proc() {
    alike(0, |place: &Place| {
        let said = says(place, include_str!("listed.py"));
        place.connections_of_client(6);
        said
    });
}
