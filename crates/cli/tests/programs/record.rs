//! Records the result of each test on nodes for docs/compatibility.md, in a file per test in the
//! target directory. `cargo xtask compatibility` generates the page from them.

use std::fs;

use crate::library::profile;

/// The current test on nodes, which records its result when this is dropped.
pub(crate) struct Record;

impl Drop for Record {
    fn drop(&mut self) {
        let thread = std::thread::current();
        // MODULE::TEST, of which the table has the last part.
        let Some(test) = thread.name().and_then(|name| name.rsplit("::").next()) else {
            return;
        };
        let said = match std::thread::panicking() {
            true => "fails",
            false => "as over the kernel",
        };
        let directory = profile().with_file_name("compatibility");
        // The generator of the table reports missing records.
        let _ = fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join(test), said));
    }
}
