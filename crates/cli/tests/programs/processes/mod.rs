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
