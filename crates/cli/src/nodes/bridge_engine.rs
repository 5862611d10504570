//! The hidden command that forwards frames between a fabric and networks beyond it, and the shared
//! parts of the commands that start it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use toehold_node::engine::{self, Engine, Launch, Lifetime, Seat};
use toehold_node::fabric::{Fabric, NodeRecord};
use toehold_node::settings::NodeSettings;
use toehold_node::uplink::{UplinkConfig, UplinkHost};

use super::bridge_args::Ends;
use super::settings::{Chosen, OfDevices};
use super::{Within, up};
use crate::side;

/// The command's name on the command line.
pub(crate) const NAME: &str = "bridge-engine";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Name of the member
    node: String,

    #[command(flatten)]
    within: Within,

    #[arg(long)]
    network: Vec<IpNet>,

    #[command(flatten)]
    ends: Ends,

    #[command(flatten)]
    settings: Chosen<OfDevices>,
}

/// Options for the start of an uplink or a device.
#[derive(Debug, clap::Args)]
pub(super) struct Start {
    #[command(flatten)]
    pub(super) within: Within,

    /// A network for the addresses of the fabric's nodes, IPv4 or IPv6; only with a fabric's first
    /// node [default: 10.77.0.0/16 and fd77::/64]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    network: Vec<IpNet>,

    /// Append messages of the engine process to FILE; it writes only about problems
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,

    /// Run the engine process in the foreground, until Ctrl-C or `toehold down`
    #[arg(long)]
    foreground: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the engine process.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments {
        node,
        within,
        network,
        ends,
        settings,
    } = arguments;
    let config = ends.config();
    let role = config.as_ref().map(UplinkConfig::role).unwrap_or_default();
    let (checked, config) = match config {
        Ok(config) => (Ok(()), config),
        Err(error) => (Err(error), UplinkConfig::default()),
    };
    let seat = || {
        checked.map_err(|error| format!("{error:#}"))?;
        Ok(Seat {
            fabric: Fabric::open(&within.fabric)?,
            node,
            settings: settings.settings,
            networks: network,
            lifetime: Lifetime::UntilTold,
        })
    };
    let host = |place: &_, settings: &_| UplinkHost::host(&config, place, settings);
    Ok(engine::main_as(role, seat, host))
}

/// Starts an engine process, or runs it in the foreground.
pub(super) fn start(start: Start, name: &str, ends: &Ends, mut settings: NodeSettings) -> Result<ExitCode> {
    // Errors in files and names are reported here, in the process that received them.
    let config = ends.config()?;
    if config.is_straight() && settings.mac.is_none() {
        let fabric = Fabric::open(&start.within.fabric)?;
        settings.mac = Some(fabric.mac_on_this_machine(name));
    }
    if start.foreground {
        let seat = Seat {
            fabric: Fabric::open(&start.within.fabric)?,
            node: name.to_owned(),
            settings,
            networks: start.network,
            lifetime: Lifetime::UntilTold,
        };
        let host = |place: &_, settings: &_| UplinkHost::host(&config, place, settings);
        let engine = Engine::start_as(config.role(), seat, host)?;
        engine.stop_on(&[SIGINT, SIGTERM, SIGHUP])?;
        up::show(&[engine.record().clone()], start.json)?;
        engine.run();
        return Ok(ExitCode::SUCCESS);
    }
    let launch = Launch {
        program: side::program()?,
        arguments: ends.arguments(NAME),
        fabric: start.within.fabric,
        node: name.to_owned(),
        settings,
        networks: start.network,
        lifetime: Lifetime::UntilTold,
        own_network: false,
        log: start.log,
    };
    let record = launch.start().with_context(|| format!("cannot start {name}"))?;
    up::show(&[record], start.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts an uplink to the network of an interface, under the interface's name, unless there is
/// one.
pub(super) fn onto(
    interface: &str,
    within: &Within,
    mtu: u16,
    log: Option<PathBuf>,
) -> Result<Option<NodeRecord>> {
    if let Ok(mut known) = within.connect(interface) {
        let leads_to = known.status()?.stack.interface;
        if leads_to.is_some_and(|known| known.name == interface) {
            return Ok(None);
        }
        bail!("the fabric has another {interface}; try `toehold uplink NAME --interface {interface}`");
    }
    let ends = Ends::onto(interface);
    ends.config()?;
    let launch = Launch {
        program: side::program()?,
        arguments: ends.arguments(NAME),
        fabric: within.fabric.clone(),
        node: interface.to_owned(),
        settings: NodeSettings {
            mtu,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
        own_network: false,
        log,
    };
    Ok(Some(launch.start()?))
}
