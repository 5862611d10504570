//! Everything else in this directory, once more with engines that drive.

use std::process::Command;

use crate::support::PLACEMENT;

#[test]
fn all_this_is_so_under_the_engine() {
    if std::env::var_os(PLACEMENT).is_some() {
        // This is that.
        return;
    }
    let program = std::env::current_exe().unwrap();
    let ended = Command::new(program).env(PLACEMENT, "engine").output();
    let ended = ended.unwrap();
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}
