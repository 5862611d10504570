//! The hidden command that forwards frames between a fabric and networks beyond it, and the shared
//! parts of the commands that start it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use toehold_link::ivshmem::IvshmemSettings;
use toehold_link::udp::parse_peers;
use toehold_node::engine::{self, Engine, Launch, Lifetime, Seat};
use toehold_node::fabric::{Fabric, NodeRecord};
use toehold_node::settings::{NodeSettings, parse_bytes};
use toehold_node::uplink::{EthernetEnd, SegmentEnd, TapEnd, UdpEnd, UplinkConfig, UplinkHost};

use super::access::Access;
use super::settings::{Chosen, OfDevices};
use super::{Within, up};
use crate::side;

/// The command's name on the command line.
pub(crate) const NAME: &str = "forward";

/// Most bytes of a file with peers.
const MAX_PEERS_FILE: u64 = 1 << 20;
/// Most bytes of a file with a key: its digits and a line break.
const MAX_KEY_FILE: u64 = 128;

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

/// The ends to join, as passed to the engine process.
#[derive(Debug, clap::Args)]
pub(super) struct Ends {
    #[arg(long)]
    pub(super) interface: Option<String>,

    #[arg(long)]
    pub(super) netns: Option<String>,

    #[arg(long)]
    pub(super) bridged: bool,

    /// Queues of the created interface.
    #[arg(long, default_value_t = 1)]
    pub(super) tap_queues: u8,

    /// An existing interface.
    #[arg(long)]
    pub(super) ethernet: Option<String>,

    #[command(flatten)]
    pub(super) access: Access,

    #[command(flatten)]
    pub(super) hosts: Hosts,

    #[command(flatten)]
    pub(super) memory: Memory,
}

/// Memory that other machines map, on the command line.
#[derive(Debug, clap::Args)]
pub(super) struct Memory {
    /// Memory that other machines or processes map: a file, an object in /dev/shm, a DAX device, or
    /// the memory of an ivshmem PCI device (/sys/bus/pci/devices/…/resource2). Every process that
    /// can write it is trusted with the traffic
    #[arg(long, value_name = "PATH", conflicts_with = "udp")]
    pub(super) segment: Option<PathBuf>,

    /// Create a file of this many bytes if there is none; with K, M or G as a suffix
    #[arg(long, value_name = "BYTES", requires = "segment", value_parser = bytes)]
    pub(super) segment_size: Option<u64>,

    /// Members of a fresh segment, from 2 to 64; an existing segment keeps its number
    #[arg(long, value_name = "MEMBERS", requires = "segment", default_value_t = IvshmemSettings::DEFAULT_MEMBERS)]
    pub(super) segment_members: usize,

    /// The member to be, counted from 0 [default: a free one]
    #[arg(long, value_name = "NUMBER", requires = "segment")]
    pub(super) member: Option<usize>,
}

/// Other hosts, on the command line.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Hosts {
    /// Address and port on which this host listens for the others; 0.0.0.0 or `[::]` for all
    /// addresses
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) udp: Option<SocketAddr>,

    /// Address and port of another host; may be given several times
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "udp")]
    pub(super) peer: Vec<String>,

    /// File with the addresses and ports of other hosts, one per line, in numbers; all hosts may
    /// use the same file
    #[arg(long, value_name = "FILE", requires = "udp")]
    pub(super) peers_file: Option<PathBuf>,

    /// Shared key of the hosts: 64 hexadecimal digits in a file that only its owner can read
    /// (`openssl rand -hex 32`). Frames are then authenticated, but not encrypted. Without a key,
    /// any host that sees the datagrams can forge them
    #[arg(long, value_name = "FILE", requires = "udp")]
    pub(super) key_file: Option<PathBuf>,
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
        arguments: ends.arguments(),
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
    let ends = Ends {
        interface: None,
        netns: None,
        bridged: false,
        tap_queues: 1,
        ethernet: Some(interface.to_owned()),
        access: Access::default(),
        hosts: Hosts::default(),
        memory: Memory {
            segment: None,
            segment_size: None,
            segment_members: IvshmemSettings::DEFAULT_MEMBERS,
            member: None,
        },
    };
    ends.config()?;
    let launch = Launch {
        program: side::program()?,
        arguments: ends.arguments(),
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

impl Ends {
    /// The configuration, with files read and names resolved.
    fn config(&self) -> Result<UplinkConfig> {
        Ok(UplinkConfig {
            tap: self.interface.as_ref().map(|interface| TapEnd {
                interface: interface.clone(),
                namespace: self.netns.as_deref().map(namespace),
                bridged: self.bridged,
                queues: self.tap_queues,
            }),
            udp: self.hosts.end()?,
            ethernet: self.ethernet.as_ref().map(|interface| EthernetEnd {
                interface: interface.clone(),
                namespace: self.netns.as_deref().map(namespace),
                access: self.access.xdp.into(),
                queues: self.access.queues,
            }),
            segment: self.memory.end()?,
        })
    }

    /// The arguments of the engine process.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![NAME.into()];
        let mut add = |name: &str, value: &std::ffi::OsStr| {
            arguments.extend([OsString::from(name), value.to_owned()]);
        };
        if let Some(interface) = &self.interface {
            add("--interface", interface.as_ref());
            add("--tap-queues", self.tap_queues.to_string().as_ref());
        }
        if let Some(interface) = &self.ethernet {
            add("--ethernet", interface.as_ref());
            add("--xdp", self.access.xdp.name().as_ref());
            if let Some(queues) = self.access.queues {
                add("--queues", queues.to_string().as_ref());
            }
        }
        if let Some(netns) = &self.netns {
            add("--netns", netns.as_ref());
        }
        if let Some(udp) = self.hosts.udp {
            add("--udp", udp.to_string().as_ref());
        }
        for peer in &self.hosts.peer {
            add("--peer", peer.as_ref());
        }
        if let Some(file) = &self.hosts.peers_file {
            add("--peers-file", file.as_ref());
        }
        if let Some(file) = &self.hosts.key_file {
            add("--key-file", file.as_ref());
        }
        if let Some(segment) = &self.memory.segment {
            add("--segment", segment.as_ref());
            add(
                "--segment-members",
                self.memory.segment_members.to_string().as_ref(),
            );
        }
        if let Some(size) = self.memory.segment_size {
            add("--segment-size", size.to_string().as_ref());
        }
        if let Some(member) = self.memory.member {
            add("--member", member.to_string().as_ref());
        }
        if self.bridged {
            arguments.push("--bridged".into());
        }
        arguments
    }
}

impl Memory {
    fn end(&self) -> Result<Option<SegmentEnd>> {
        let Some(segment) = &self.segment else {
            return Ok(None);
        };
        Ok(Some(SegmentEnd {
            // The engine process may have another working directory.
            path: std::path::absolute(segment)?,
            size: self.segment_size,
            members: self.segment_members,
            member: self.member,
        }))
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).filter(|&bytes| bytes != 0);
    bytes.ok_or_else(|| "choose a number of bytes, such as 16M".to_owned())
}

impl Hosts {
    fn end(&self) -> Result<Option<UdpEnd>> {
        let Some(bind) = self.udp else { return Ok(None) };
        let mut peers = Vec::new();
        for peer in &self.peer {
            peers.push(resolve(peer, bind)?);
        }
        if let Some(file) = &self.peers_file {
            let text = read(file, MAX_PEERS_FILE)?;
            let listed = parse_peers(&text).with_context(|| file.display().to_string())?;
            peers.extend(listed);
        }
        if peers.is_empty() {
            bail!("no other host is named; give --peer HOST:PORT or --peers-file FILE");
        }
        let key = self.key_file.as_deref().map(read_key).transpose()?;
        Ok(Some(UdpEnd { bind, peers, key }))
    }
}

/// The address of a peer that can be reached from the listening address.
fn resolve(peer: &str, bind: SocketAddr) -> Result<SocketAddr> {
    let mut found = peer
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve {peer:?} as HOST:PORT"))?;
    let serves_both = bind.ip() == std::net::IpAddr::from([0u16; 8]);
    let suits = |address: &SocketAddr| serves_both || address.is_ipv4() == bind.is_ipv4();
    found.find(suits).ok_or_else(|| {
        let family = if bind.is_ipv4() { "IPv4" } else { "IPv6" };
        anyhow!("{peer} has no address of {family}; listen on [::] for both IPv4 and IPv6")
    })
}

/// A namespace's file, by its name or path.
fn namespace(name: &str) -> PathBuf {
    match name.contains('/') {
        true => name.into(),
        false => Path::new("/run/netns").join(name),
    }
}

fn read(file: &Path, most: u64) -> Result<String> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    read_opened(&opened, file, most)
}

/// Reads a file that was opened by a path.
fn read_opened(opened: &File, file: &Path, most: u64) -> Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let mut text = String::new();
    opened
        .take(most + 1)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    if text.len() as u64 > most {
        bail!("{} is longer than {most} bytes", file.display());
    }
    Ok(text)
}

fn read_key(file: &Path) -> Result<[u8; 32]> {
    let cannot = || format!("cannot read {}", file.display());
    // The checked file is the file to read, even if the path changes meanwhile.
    let opened = File::open(file).with_context(cannot)?;
    let metadata = opened.metadata().with_context(cannot)?;
    if metadata.mode() & 0o077 != 0 {
        bail!(
            "other users can read the key in {0}; `chmod 600 {0}`, and use a new key if one has read it",
            file.display()
        );
    }
    let text = read_opened(&opened, file, MAX_KEY_FILE)?;
    parse_key(text.trim()).ok_or_else(|| {
        anyhow!(
            "{0} holds no key of 64 hexadecimal digits; `openssl rand -hex 32 > {0}` makes one",
            file.display()
        )
    })
}

fn parse_key(digits: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if digits.len() != 2 * key.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_with_64_digits_is_accepted() {
        let key = parse_key(&"0aF1".repeat(16)).unwrap();
        assert_eq!(key[..4], [0x0a, 0xf1, 0x0a, 0xf1]);
        for wrong in [
            "",
            &"0a".repeat(31),
            &"0a".repeat(33),
            &"+a".repeat(32),
            &"é".repeat(32),
        ] {
            assert_eq!(parse_key(wrong), None);
        }
    }

    #[test]
    fn key_file_readable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "0a".repeat(32)).unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_key(&file).is_ok(), is_read, "{mode:o}");
        }
    }

    #[test]
    fn peer_address_has_reachable_family() {
        let v4 = "0.0.0.0:7005".parse().unwrap();
        assert_eq!(resolve("127.0.0.1:9", v4).unwrap().to_string(), "127.0.0.1:9");
        assert!(resolve("[::1]:9", v4).is_err());
        assert!(resolve("[::1]:9", "[::]:7005".parse().unwrap()).is_ok());
        assert!(resolve("127.0.0.1", v4).is_err());
    }
}
