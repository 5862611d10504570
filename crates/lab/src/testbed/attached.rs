//! Nodes with an engine process, to which the program attaches. Also the process that creates a
//! kernel interface.
//!
//! The engine process is this program again, started by a side. It runs on that side's core, and
//! ends with it. It is in the side's group, and the kernel ends it with the thread that started it.
//! Its processor time is counted separately.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use toehold_node::Placement;
use toehold_node::control::{Connection, StackStatus};
use toehold_node::engine::{self, HostError, Lifetime, Seat, StackHost};
use toehold_node::fabric::Fabric;
use toehold_node::settings::{NodeSettings, Setting};
use toehold_node::uplink::{TapEnd, UdpEnd, UplinkConfig, UplinkHost};
use toehold_socket::Node;

use super::toehold::{PREFIX, Place};
use super::{Context, Switch, TestbedError};

/// The variable that makes a side's process an engine.
const VARIABLE: &str = "TOEHOLD_LAB_ENGINE";

/// Time for two sides to meet; the next constant is the interval of checks.
const PATIENCE: Duration = Duration::from_secs(4);
/// Interval of checks whether they have met.
const LOOK: Duration = Duration::from_millis(2);

/// The message of a running engine.
const READY: &str = "ready";

/// The order for an engine process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EngineOrder {
    pub(super) fabric: String,
    pub(super) node: String,
    /// Names and values.
    pub(super) settings: Vec<(String, String)>,
    /// The member to be, if it is not a node.
    pub(super) device: Option<DeviceOrder>,
}

/// A kernel interface, in the namespace of the process that starts its engine, or an uplink between
/// fabrics.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DeviceOrder {
    /// The interface's name, if there is one.
    pub(super) interface: Option<String>,
    /// The interface's namespace, if it differs from the engine's.
    pub(super) namespace: Option<PathBuf>,
    /// For UDP: the address of this side, and those of the others.
    pub(super) udp: Option<(SocketAddr, Vec<SocketAddr>)>,
}

impl DeviceOrder {
    fn config(self) -> UplinkConfig {
        UplinkConfig {
            tap: self.interface.map(|interface| TapEnd {
                interface,
                namespace: self.namespace,
                bridged: false,
                queues: 1,
            }),
            udp: self.udp.map(|(bind, peers)| UdpEnd {
                bind,
                peers,
                key: None,
            }),
            ethernet: None,
            segment: None,
        }
    }
}

impl EngineOrder {
    /// The order with which this process was started, if any.
    pub(crate) fn received() -> Option<Self> {
        serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// Runs the node's engine until the process is ended.
    pub(crate) fn carry_out(self) -> ExitCode {
        match self.start() {
            Ok(engine) => {
                println!("{READY}");
                engine.run();
                ExitCode::SUCCESS
            }
            Err(error) => {
                println!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    fn start(self) -> Result<engine::Engine, HostError> {
        let mut settings = NodeSettings::default();
        for (name, value) in &self.settings {
            let setting = Setting::named(name).ok_or_else(|| format!("there is no setting {name}"))?;
            setting.set(&mut settings, value)?;
        }
        let seat = Seat {
            fabric: Fabric::open(&self.fabric)?,
            node: self.node,
            settings,
            networks: Vec::new(),
            lifetime: Lifetime::UntilTold,
        };
        let Some(device) = self.device else {
            return Ok(engine::Engine::start(seat, StackHost::host)?);
        };
        let config = device.config();
        let host = |place: &_, settings: &_| UplinkHost::host(&config, place, settings);
        Ok(engine::Engine::start_as(config.role(), seat, host)?)
    }
}

/// An engine process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Starts an engine process, and waits until its node runs.
    pub(super) fn start(order: &EngineOrder) -> Result<Self, TestbedError> {
        let failed = |error| TestbedError::failed("start an engine process", error);
        let order = serde_json::to_string(order).map_err(|error| failed(error.into()))?;
        let child = Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, order)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut process = Process(child);
        let mut said = String::new();
        if let Some(output) = process.0.stdout.take() {
            BufReader::new(output).read_line(&mut said).map_err(failed)?;
        }
        match said.trim() {
            READY => Ok(process),
            "" => Err(TestbedError::Failed(
                "the engine process ended without a word".into(),
            )),
            reason => Err(TestbedError::Failed(format!("the engine process: {reason}"))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn attach(
    context: &Context,
    name: &str,
    address: Ipv4Addr,
    placement: Placement,
    has_direct: bool,
) -> Result<(Node, Attached), TestbedError> {
    let fabric = context.scratch.display().to_string();
    let setting = |name: &str, value: String| (name.to_owned(), value);
    let mtu = context.mtu.map(|mtu| setting("mtu", mtu.to_string()));
    let settings = [
        setting("ipv4", format!("{address}/{PREFIX}")),
        setting("placement", placement.to_string()),
        setting("direct", if has_direct { "yes" } else { "no" }.to_owned()),
    ];
    let engine = Process::start(&EngineOrder {
        fabric: fabric.clone(),
        node: name.into(),
        settings: settings.into_iter().chain(mtu).collect(),
        device: None,
    })?;
    let fabric = Fabric::existing(&fabric).map_err(|error| TestbedError::Failed(error.to_string()))?;
    let node = Node::attach(&fabric, name).map_err(|error| TestbedError::Failed(error.to_string()))?;
    let attached = Attached {
        engine,
        fabric,
        node: name.to_owned(),
        placement,
    };
    Ok((node, attached))
}

/// Waits until the forwarding process `name` has met others of its kind.
pub(super) fn meet(
    fabric: &str,
    name: &str,
    has_met: impl Fn(&StackStatus) -> bool,
) -> Result<(), TestbedError> {
    let failed = |error: &dyn std::fmt::Display| TestbedError::failed(&format!("ask {name}"), error);
    let fabric = Fabric::existing(fabric).map_err(|error| failed(&error))?;
    let mut process = Connection::open(&fabric, name).map_err(|error| failed(&error))?;
    let deadline = Instant::now() + PATIENCE;
    while !has_met(&process.status().map_err(|error| failed(&error))?.stack) {
        if Instant::now() >= deadline {
            return Err(TestbedError::Failed(
                "the two sides do not find each other".into(),
            ));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A node in an engine process.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) engine: Process,
    fabric: Fabric,
    node: String,
    placement: Placement,
}

/// Changes the placement through the engine process, as `toehold placement` does.
struct Changes {
    engine: Connection,
    first: Placement,
    number: usize,
}

impl Changes {
    fn of(attached: &Attached) -> io::Result<Box<dyn Switch>> {
        let engine = Connection::open(&attached.fabric, &attached.node).map_err(io::Error::other)?;
        Ok(Box::new(Self {
            engine,
            first: attached.placement,
            number: 0,
        }))
    }
}

impl Switch for Changes {
    fn next(&mut self) -> io::Result<()> {
        let placement = Placement::ALL[self.number % Placement::ALL.len()];
        self.number += 1;
        self.engine.set_placement(placement).map_err(io::Error::other)
    }

    fn restore(&mut self) -> io::Result<()> {
        self.engine.set_placement(self.first).map_err(io::Error::other)
    }
}

/// The candidate of nodes with direct connections.
pub(crate) const DIRECT: &str = <Direct as Place>::NAME;

/// Attaches to a node of a placement, with or without direct connections. Changes start from one placement only: the initial one soon
/// has no effect.
macro_rules! attached {
    ($($(#[doc = $doc:literal])+ $name:ident: $candidate:literal, $placement:ident, $has_direct:literal, $may_change:literal, $about:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub(super) struct $name(Attached);

        impl Place for $name {
            const NAME: &'static str = $candidate;
            const ABOUT: &'static str = $about;
            const MAY_CHANGE: bool = $may_change;

            fn runs(workload: &crate::workload::Workload) -> bool {
                workload.is_of_programs()
            }

            fn take(
                context: &Context,
                name: &str,
                address: Ipv4Addr,
            ) -> Result<(Node, Self), TestbedError> {
                let (node, attached) = attach(context, name, address, Placement::$placement, $has_direct)?;
                Ok((node, Self(attached)))
            }

            fn engines(&self) -> Vec<u32> {
                vec![self.0.engine.id()]
            }

            fn switch(&self) -> io::Result<Box<dyn Switch>> {
                Changes::of(&self.0)
            }
        }
    )+};
}

attached! {
    /// The node has direct connections, otherwise the defaults.
    Direct: "direct", Adaptive, true, false, "programs on nodes with direct connections (toehold up --direct yes)";
    /// The program's thread runs the stack.
    Inline: "inline", Inline, false, false, "a program attached to a node, which runs TCP in its calls";
    /// The engine process runs the stack.
    Engine: "engine", Engine, false, false, "a program attached to a node, the engine process on the program's core runs TCP";
    /// The program's thread runs the stack, or otherwise the engine process.
    Adaptive: "adaptive", Adaptive, false, true, "a program attached to a node, the engine process runs TCP while no call does";
}
