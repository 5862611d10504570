//! Kinds of values, and how each is written and read.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use toehold_link::interface::NamespaceName;
use toehold_stack::DemuxStrategy;
use toehold_wire::Mac;

use crate::fabric::{GroupId, GroupIds, UserIds};
use crate::kernel::InterfaceName;
use crate::placement::Placement;

/// A value of a setting: `parse(&show(value))` gives it back.
pub(super) trait Value: Sized {
    fn parse(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

macro_rules! plain {
    ($($type:ty)+) => {
        $(impl Value for $type {
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(&self) -> String {
                self.to_string()
            }
        })+
    };
}

plain!(u8 u16 u32 Placement DemuxStrategy UserIds GroupIds);

/// A value that is not given is found, is absent, or follows from another one.
impl<T: FromStr + Display + Optional> Value for Option<T> {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::to_string).unwrap_or_default()
    }
}

pub(super) trait Optional {}

impl Optional for u16 {}
impl Optional for Ipv4Net {}
impl Optional for Ipv6Net {}
impl Optional for Mac {}
impl Optional for InterfaceName {}
impl Optional for NamespaceName {}
impl Optional for GroupId {}

/// Bytes: with K, M, G or T behind the number, so many powers of 1024.
impl Value for u64 {
    fn parse(text: &str) -> Option<Self> {
        let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit);
        let shift = match unit {
            "" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "m" | "MiB" => 20,
            "G" | "g" | "GiB" => 30,
            "T" | "t" | "TiB" => 40,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    }

    fn show(&self) -> String {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let whole = |(shift, _): &(u32, &str)| *self != 0 && self.trailing_zeros() >= *shift;
        match units.into_iter().find(whole) {
            Some((shift, unit)) => format!("{}{unit}", self >> shift),
            None => self.to_string(),
        }
    }
}

impl Value for bool {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        }
    }

    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

/// Spans: `2s`, `500ms`, `1m 30s`.
impl Value for Duration {
    fn parse(text: &str) -> Option<Self> {
        humantime::parse_duration(text).ok()
    }

    fn show(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}
