//! Names and addresses that are on both sides of an uplink.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};

use toehold_link::mq::NodeName;
use toehold_wire::Mac;

use crate::fabric::{Beyond, Identity};

/// Sentences, at most: no user reads more, whichever peer has made them up.
pub(super) const MAX_CONFLICTS: usize = 64;

/// A fabric's own members, by the names and addresses that must not be twice.
#[derive(Default)]
struct Own<'a> {
    names: HashMap<NodeName, &'a Identity>,
    macs: HashMap<Mac, &'a Identity>,
    ipv4: HashMap<Ipv4Addr, &'a Identity>,
    ipv6: HashMap<Ipv6Addr, &'a Identity>,
}

/// A sentence for each member beyond whose name or address one of the fabric's own members has.
pub(super) fn between(own: &[Identity], beyond: &[Beyond]) -> Vec<String> {
    let own = Own::of(own);
    let (mut sentences, mut known) = (Vec::new(), HashSet::new());
    for Beyond { host, members, .. } in beyond {
        for sentence in members.iter().filter_map(|far| own.conflict(far, host)) {
            if known.insert(sentence.clone()) {
                sentences.push(sentence);
            }
            if sentences.len() == MAX_CONFLICTS {
                return sentences;
            }
        }
    }
    sentences
}

impl<'a> Own<'a> {
    fn of(members: &'a [Identity]) -> Own<'a> {
        let mut own = Own::default();
        for member in members {
            own.names.insert(member.name, member);
            own.macs.insert(member.mac, member);
            if !member.ipv4.is_unspecified() {
                own.ipv4.insert(member.ipv4, member);
            }
            if !member.ipv6.is_unspecified() {
                own.ipv6.insert(member.ipv6, member);
            }
        }
        own
    }

    fn conflict(&self, far: &Identity, host: &str) -> Option<String> {
        if self.names.contains_key(&far.name) {
            return Some(format!(
                "a node named {} is running here and on host {host}, and neither is reached from the other side; \
                 stop one of them, or give it another name",
                far.name
            ));
        }
        let (near, address): (_, &dyn Display) = if let Some(near) = self.macs.get(&far.mac) {
            (near, &far.mac)
        } else if let Some(near) = self.ipv4.get(&far.ipv4) {
            (near, &far.ipv4)
        } else {
            (self.ipv6.get(&far.ipv6)?, &far.ipv6)
        };
        Some(format!(
            "{} and {} on host {host} both have the address {address}; start one of them anew with another",
            near.name, far.name
        ))
    }
}
