//! The `toehold` command.
fn main() {}
