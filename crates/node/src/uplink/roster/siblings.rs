//! The knowledge that the uplinks of one fabric have of each other: they are asked as people ask
//! them.

use std::time::Duration;

use crate::control::{Connection, NodeStatus};
use crate::fabric::{Beyond, Fabric, NodeRecord, Role};

/// How long one of them may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The fabrics beyond a fabric's uplinks, as these know them. An uplink that does not answer says
/// nothing.
pub(crate) fn known_beyond(fabric: &Fabric) -> Vec<Beyond> {
    let heard = living(fabric).into_iter().filter(leads_from_fabric);
    heard.flat_map(|status| status.stack.beyond).collect()
}

/// Whether an uplink leads from this fabric, and not from an interface alone. The port of a bridge
/// that leads straight to others does the latter.
fn leads_from_fabric(status: &NodeStatus) -> bool {
    status.stack.kernel.is_none()
}

/// The uplinks of a fabric that forward, as they say.
pub(in crate::uplink) fn living(fabric: &Fabric) -> Vec<NodeStatus> {
    let statuses = uplinks(fabric).filter_map(|uplink| status(fabric, &uplink));
    statuses.filter(|status| status.stack.standby.is_none()).collect()
}

/// Why the uplink `own` has to stand by. It leads back to its own fabric, or to one that an older
/// uplink leads to, where that is for this fabric to decide.
pub(super) fn elder(fabric: &Fabric, own: &NodeRecord, number: u64, beyond: &[Beyond]) -> Option<String> {
    if beyond.iter().any(|beyond| beyond.fabric == number) {
        return Some("it leads back to its own fabric, and forwards nothing; end it".to_owned());
    }
    let decides = |beyond: &&Beyond| number < beyond.fabric;
    if !beyond.iter().any(|beyond| decides(&beyond)) {
        return None;
    }
    let rank = |record: &NodeRecord| (record.started, record.name);
    let elders = uplinks(fabric).filter(|uplink| rank(uplink) < rank(own));
    let statuses = elders.filter_map(|uplink| status(fabric, &uplink));
    let forwards = |status: &NodeStatus| status.stack.standby.is_none() && leads_from_fabric(status);
    for elder in statuses.filter(forwards) {
        let both = |ours: &&Beyond| {
            elder
                .stack
                .beyond
                .iter()
                .any(|theirs| theirs.fabric == ours.fabric)
        };
        if let Some(same) = beyond.iter().filter(decides).find(both) {
            return Some(format!(
                "uplink {} leads to the fabric on host {} already, so this one forwards nothing; end it",
                elder.node.name, same.host
            ));
        }
    }
    None
}

fn uplinks(fabric: &Fabric) -> impl Iterator<Item = NodeRecord> {
    let nodes = fabric.nodes().into_iter();
    nodes.filter(|node| node.role == Role::Uplink)
}

fn status(fabric: &Fabric, uplink: &NodeRecord) -> Option<NodeStatus> {
    let connection = Connection::open(fabric, uplink.name.as_str()).ok()?;
    connection.timeout(PATIENCE).status().ok()
}
