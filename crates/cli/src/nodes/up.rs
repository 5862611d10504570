//! `toehold up`: starts nodes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use ipnet::IpNet;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use toehold_node::engine::{Engine, Launch, Lifetime, Seat};
use toehold_node::fabric::{Fabric, NodeRecord};

use super::settings::Settings;
use super::{Within, address, bridge_engine, engine, table};
use crate::json;
use crate::side;

/// Start nodes: an engine process for each
///
/// A node has a name, addresses, and memory that its programs share. It lives until `toehold down`.
/// Programs on it come and go.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold up web db
  toehold up web --ipv4 10.77.0.80/16 --connections 1000000
  toehold up --fabric lab --network 192.168.7.0/24 a b c --json
  toehold up web --tap --netns web        # as root: then `ip netns exec web ping 10.77.0.2`
  toehold up web --ipv4 192.0.2.50/24 --uplink eth0    # as root: on the network of eth0
  toehold up web --foreground

Exit status: 0, or 1 if a node could not be started.")]
pub(crate) struct Arguments {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,

    #[command(flatten)]
    within: Within,

    /// A network for the addresses of the fabric's nodes, IPv4 or IPv6; only with a fabric's first
    /// nodes [default: 10.77.0.0/16 and fd77::/64]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    network: Vec<IpNet>,

    /// Also connect the fabric to the network of an interface, by an uplink of that name, unless
    /// there is one: see `toehold uplink --interface`
    #[arg(long, value_name = "INTERFACE", conflicts_with = "foreground")]
    uplink: Option<String>,

    /// Append messages of the engine processes to FILE; they write only about problems
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,

    /// Run the engine process of the one node in the foreground, until Ctrl-C or `toehold down`
    #[arg(long)]
    foreground: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let settings = &arguments.settings.0;
    let several = arguments.nodes.len() > 1;
    if several && (settings.ipv4.is_some() || settings.ipv6.is_some() || settings.mac.is_some()) {
        bail!("several nodes cannot have one address; start them one by one, or without addresses");
    }
    if several && settings.tap.is_some() {
        bail!(
            "several nodes cannot have one device; start them one by one, and name a device with --tap=NAME"
        );
    }
    if arguments.foreground {
        return foreground(arguments);
    }
    let mut records = Vec::new();
    let mut failed = false;
    for node in &arguments.nodes {
        match launch(&arguments, node) {
            Ok(record) => records.push(record),
            Err(error) => {
                failed = true;
                eprintln!("toehold: cannot start {node}: {error:#}");
            }
        }
    }
    if let Some(interface) = arguments.uplink.as_deref().filter(|_| !failed) {
        let mtu = arguments.settings.0.mtu;
        match bridge_engine::onto(interface, &arguments.within, mtu, arguments.log.clone()) {
            Ok(uplink) => records.extend(uplink),
            Err(error) => {
                failed = true;
                eprintln!("toehold: cannot start the uplink {interface}: {error:#}");
            }
        }
    }
    show(&records, arguments.json)?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn launch(arguments: &Arguments, node: &str) -> Result<NodeRecord> {
    let launch = Launch {
        program: side::program()?,
        arguments: vec![engine::NAME.into()],
        fabric: arguments.within.fabric.clone(),
        node: node.to_owned(),
        settings: arguments.settings.0.clone(),
        networks: arguments.network.clone(),
        lifetime: Lifetime::UntilTold,
        own_network: false,
        log: arguments.log.clone(),
    };
    Ok(launch.start()?)
}

fn foreground(arguments: Arguments) -> Result<ExitCode> {
    let [node] = &arguments.nodes[..] else {
        bail!("only one node can be in the foreground; start the others without --foreground");
    };
    let seat = Seat {
        fabric: Fabric::open(&arguments.within.fabric)?,
        node: node.clone(),
        settings: arguments.settings.0,
        networks: arguments.network,
        lifetime: Lifetime::UntilTold,
    };
    let engine = Engine::start(seat, engine::Node::host)?;
    engine.stop_on(&[SIGINT, SIGTERM, SIGHUP])?;
    show(&[engine.record().clone()], arguments.json)?;
    engine.run();
    Ok(ExitCode::SUCCESS)
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Started<'a> {
    nodes: &'a [NodeRecord],
}

pub(super) fn show(records: &[NodeRecord], json: bool) -> Result<()> {
    if json {
        return json::print("toehold/up/1", &Started { nodes: records });
    }
    if records.is_empty() {
        return Ok(());
    }
    let mut table = table::new(&["node", "IPv4", "IPv6", "hardware", "process"], 4);
    for record in records {
        table.add_row([
            record.name.to_string(),
            address(record.ipv4),
            address(record.ipv6),
            record.mac.to_string(),
            record.pid.to_string(),
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}
