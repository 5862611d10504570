//! Build, test and demonstration tasks.
fn main() {}
