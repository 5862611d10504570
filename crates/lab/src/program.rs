//! Programs that measurements need.

/// A program and the Debian package that has it.
pub type Program = (&'static str, &'static str);
