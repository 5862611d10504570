//! Names and addresses that are on both sides of an uplink.

use std::fmt::Display;

use crate::fabric::{Beyond, Identity};

/// A sentence for each.
pub(super) fn between(own: &[Identity], beyond: &[Beyond]) -> Vec<String> {
    let mut conflicts = Vec::new();
    for Beyond { host, members, .. } in beyond {
        for far in members {
            for near in own {
                conflicts.extend(conflict(near, far, host));
            }
        }
    }
    conflicts
}

fn conflict(near: &Identity, far: &Identity, host: &str) -> Option<String> {
    if near.name == far.name {
        return Some(format!(
            "a node named {} is running here and on host {host}, and neither is reached from the other side; \
             stop one of them, or give it another name",
            near.name
        ));
    }
    let address: &dyn Display = if near.mac == far.mac {
        &near.mac
    } else if near.ipv4 == far.ipv4 && !near.ipv4.is_unspecified() {
        &near.ipv4
    } else if near.ipv6 == far.ipv6 && !near.ipv6.is_unspecified() {
        &near.ipv6
    } else {
        return None;
    };
    Some(format!(
        "{} and {} on host {host} both have the address {address}; start one of them anew with another",
        near.name, far.name
    ))
}
