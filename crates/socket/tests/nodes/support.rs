//! A fabric with nodes whose engines run in this process, as they would in their own.

use std::path::Path;

use tempfile::TempDir;
use toehold_node::Placement;
use toehold_node::engine::{Engine, Seat, StackHost};
use toehold_node::settings::NodeSettings;
use toehold_socket::{Fabric, Node};

/// A fabric of its own, and the engines of its nodes.
pub(crate) struct World {
    engines: Vec<Engine>,
    directory: TempDir,
}

impl World {
    pub(crate) fn new(names: &[&str], placement: Placement) -> World {
        let directory = tempfile::tempdir().unwrap();
        let engines = names.iter().map(|name| start(directory.path(), name, placement));
        World {
            engines: engines.collect(),
            directory,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn attach(&self, node: &str) -> Node {
        attach(self.path(), node)
    }

    /// The node's IPv4 address.
    pub(crate) fn address(&self, node: usize) -> std::net::Ipv4Addr {
        self.engines[node].record().ipv4.addr()
    }
}

pub(crate) fn attach(fabric: &Path, node: &str) -> Node {
    let fabric = Fabric::open(fabric.to_str().unwrap()).unwrap();
    Node::attach(&fabric, node).unwrap()
}

fn start(fabric: &Path, name: &str, placement: Placement) -> Engine {
    let seat = Seat {
        fabric: Fabric::open(fabric.to_str().unwrap()).unwrap(),
        node: name.to_owned(),
        settings: NodeSettings {
            placement,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
    };
    Engine::start(seat, StackHost::host).unwrap()
}
