//! Entries for the fuzz targets: reading a fabric's files.

use super::network::{Holder, Networks};
use super::record::NodeRecord;
use crate::settings::NodeSettings;

/// Reads a node's record, or the fabric's networks. What is accepted means the same when
/// it is written again, and a new node gets an address beside it, or is told why not.
pub fn read(record: &[u8], networks: &[u8]) {
    let record = NodeRecord::parse(record);
    if let Some(record) = &record {
        let written = serde_json::to_vec_pretty(record).expect("plain data");
        assert_eq!(NodeRecord::parse(&written).as_ref(), Some(record));
    }
    let networks = Networks::parse(networks);
    if let Some(networks) = &networks {
        let written = serde_json::to_vec_pretty(networks).expect("plain data");
        assert_eq!(Networks::parse(&written).as_ref(), Some(networks));
    }
    let name = "new".parse().expect("a name");
    let nodes: Vec<NodeRecord> = record.into_iter().collect();
    let networks = networks.unwrap_or_default();
    if let Ok(addresses) = networks.assign(&name, &NodeSettings::default(), &Holder::all(&nodes, &[])) {
        for node in nodes {
            assert_ne!(addresses.mac, node.mac);
            assert_ne!(addresses.ipv4.addr(), node.ipv4.addr());
            assert_ne!(addresses.ipv6.addr(), node.ipv6.addr());
        }
    }
}
