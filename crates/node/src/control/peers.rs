//! The counters of a node's peers, and the claims that were refused, for people.

use toehold_link::mq::{Conflict, MembershipStatistics, PortStatistics};
use toehold_wire::Mac;

use super::Counter;

/// The counters of peers that join and leave. `shard` is the one that counts, if there are several.
pub(crate) fn of_membership(statistics: &MembershipStatistics, shard: Option<u16>) -> Vec<Counter> {
    let MembershipStatistics {
        connected,
        refused,
        malformed,
        timed_out,
        over_quota,
        refused_by_others,
        abandoned,
        accept_errors,
        replaced,
        lost,
        corrupt,
        direct_refused,
    } = *statistics;
    let counters = [
        ("connected", connected, "Peers that joined."),
        ("refused", refused, "Handshakes that this node refused."),
        (
            "malformed",
            malformed,
            "Of these, because what came was no handshake.",
        ),
        ("timed_out", timed_out, "Of these, because nothing came in time."),
        (
            "over_quota",
            over_quota,
            "Of these, because the user or the process had as many peers as it may have.",
        ),
        (
            "refused_by_others",
            refused_by_others,
            "Handshakes that other nodes refused.",
        ),
        (
            "abandoned",
            abandoned,
            "Connections that closed during the handshake.",
        ),
        (
            "accept_errors",
            accept_errors,
            "Connections that could not be accepted for lack of descriptors.",
        ),
        ("replaced", replaced, "Peers replaced by a new life of theirs."),
        ("lost", lost, "Peers that left."),
        (
            "corrupt",
            corrupt,
            "Peers cut off because of what they wrote, or did to their memory.",
        ),
        (
            "direct_refused",
            direct_refused,
            "Peers without direct connections because of the memory that they gave for these.",
        ),
    ];
    named("fabric", counters, shard)
}

/// The counters of frames that the node's port did not send or take.
pub(crate) fn of_port(statistics: &PortStatistics, shard: Option<u16>) -> Vec<Counter> {
    let PortStatistics {
        unreachable,
        bad_length,
        claims_refused,
        ..
    } = *statistics;
    let counters = [
        (
            "unreachable",
            unreachable,
            "Frames for addresses that no member has.",
        ),
        (
            "bad_length",
            bad_length,
            "Frames not sent because of their length.",
        ),
        (
            "claims_refused",
            claims_refused,
            "Frames not taken because they claim an address that the fabric gave another member.",
        ),
    ];
    named("fabric", counters, shard)
}

fn named<const N: usize>(prefix: &str, counters: [(&str, u64, &str); N], shard: Option<u16>) -> Vec<Counter> {
    let counter = |(name, value, doc): (&str, u64, &str)| Counter {
        name: format!("{prefix}_{name}"),
        value,
        doc: doc.to_owned(),
        shard,
    };
    counters.map(counter).into()
}

/// A sentence about a claim that was refused.
pub(crate) fn sentence(conflict: Conflict) -> String {
    let Conflict {
        name,
        address,
        owner: (mac, owner),
        count,
    } = conflict;
    let owner = owner.map_or_else(|| Mac(mac).to_string(), |owner| owner.to_string());
    format!("{name} claims {address}, which belongs to {owner}; such claims refused so far: {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_claim_names_both_members_and_the_address() {
        let mut conflict = Conflict {
            name: "thief".parse().unwrap(),
            address: [10, 77, 0, 2].into(),
            owner: ([2, 0, 0, 0, 0, 3], Some("web".parse().unwrap())),
            count: 7,
        };
        assert_eq!(
            sentence(conflict),
            "thief claims 10.77.0.2, which belongs to web; such claims refused so far: 7"
        );
        conflict.owner.1 = None;
        assert!(sentence(conflict).contains("belongs to 02:00:00:00:00:03;"));
    }
}
