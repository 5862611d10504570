//! What became of each test on nodes, for docs/compatibility.md: a file a test, in the target
//! directory, from which `cargo xtask compatibility` makes it.

use std::fs;

use crate::library::profile;

/// The present test on nodes, until it drops what it has of them.
pub(crate) struct Record;

impl Drop for Record {
    fn drop(&mut self) {
        let thread = std::thread::current();
        // MODULE::TEST, of which the table has the last.
        let Some(test) = thread.name().and_then(|name| name.rsplit("::").next()) else {
            return;
        };
        let said = match std::thread::panicking() {
            true => "fails",
            false => "as over the kernel",
        };
        let directory = profile().with_file_name("compatibility");
        // Whoever makes the table sees what is missing.
        let _ = fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join(test), said));
    }
}
