//! Whether addresses are free where a fabric's uplinks lead: asked before they are used there.
//!
//! Other uplinks list the members beyond them, in pages (`roster`). On the Ethernet of an interface
//! no host does, and all hosts have to be asked. A member that begins asks over the fabric's
//! uplinks, as any machine asks its Ethernet; an uplink that begins asks for all members.

use std::time::Duration;

use toehold_link::mq::{Bound, Gateway, Mesh, MeshSettings};
use toehold_link::{Link, NeighborChange};

use super::config::mesh;
use super::roster::living_uplinks;
use crate::fabric::{Place, Role};
use crate::probe::{AddressTaken, probe};
use crate::settings::NodeSettings;

/// How long a member waits for the uplinks that are there.
const SETTLE: Duration = Duration::from_secs(1);

/// A member's address is taken where its fabric is led to.
#[derive(Debug, thiserror::Error)]
#[error(
    "the address {} of {member} is in use on the network of {interface}, by {}; start {member} with another one, \
     or stop that machine",
    .taken.address, .taken.by
)]
pub(super) struct MemberTaken {
    member: String,
    interface: String,
    taken: AddressTaken,
}

/// Asks for the addresses of a member that begins, beyond the uplinks that do not list the members
/// there. A second passes, if there is one.
pub(crate) fn ask_beyond(place: &Place, settings: &NodeSettings) -> Result<(), AddressTaken> {
    let record = place.record();
    let is_silent = |status: &crate::control::NodeStatus| status.stack.remotes.is_empty();
    if record.role == Role::Uplink || !living_uplinks(place.fabric()).iter().any(is_silent) {
        return Ok(());
    }
    // The member that joins the fabric next tells what keeps it away from it. The addresses are not
    // the member's yet: an answer that claims one must not be dropped.
    let unbound = MeshSettings {
        bound: Bound::default(),
        ..mesh(place, settings, Gateway::None)
    };
    let Ok(mut asking) = Mesh::join(&unbound) else {
        return Ok(());
    };
    asking.settle(SETTLE);
    let addresses = [record.ipv4.addr().into(), record.ipv6.addr().into()];
    probe(&mut asking, &addresses)
}

/// Asks behind an interface for the addresses of the fabric's members.
pub(super) fn ask_behind(interface: &str, link: &mut impl Link, place: &Place) -> Result<(), MemberTaken> {
    let members = place.fabric().nodes();
    let addresses = members
        .iter()
        .flat_map(|member| [member.ipv4.addr().into(), member.ipv6.addr().into()]);
    let mut addresses: Vec<std::net::IpAddr> = addresses.collect();
    addresses.retain(|address| !address.is_unspecified());
    if addresses.is_empty() {
        return Ok(());
    }
    // Answers are for the host that has asked.
    let own = link.address();
    link.note_beyond(NeighborChange::Joined(own));
    let asked = probe(link, &addresses);
    link.note_beyond(NeighborChange::Left(own));
    asked.map_err(|taken| {
        let has = |address: std::net::IpAddr| address == taken.address;
        let mut members = members.iter();
        let member = members.find(|member| has(member.ipv4.addr().into()) || has(member.ipv6.addr().into()));
        MemberTaken {
            member: member.map(|member| member.name.to_string()).unwrap_or_default(),
            interface: interface.to_owned(),
            taken,
        }
    })
}
