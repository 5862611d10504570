//! The name of the device.

use std::fmt::{self, Display};
use std::str::FromStr;

use toehold_link::interface::{InterfaceError, check_name};

/// The device's name where none is given.
pub const DEFAULT_DEVICE: &str = "toe0";

/// A name that a network interface can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_name(text)?;
        Ok(InterfaceName(text.to_owned()))
    }
}

impl Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
