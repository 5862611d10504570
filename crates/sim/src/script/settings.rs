//! A script's settings: of the stack, and of the script itself.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use toehold_link::Capabilities;
use toehold_stack::{Config, CongestionAlgorithm, TcpConfig};

use super::parse::{number, seconds, switch};

/// The stack's address and the peer's, by family.
const IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const IPV6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
];

/// One `config` line.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    name: String,
    value: String,
}

/// The values of all `config` lines.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) remote_isn: u32,
    pub(super) local_isn: Option<u32>,
    pub(super) tolerance: Duration,
    pub(super) compare_push: bool,
}

impl Setting {
    /// Parses the text behind `config`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("setting `{text}` has no value"))?;
        let setting = Self {
            name: name.to_owned(),
            value: value.trim().to_owned(),
        };
        // A setting that cannot be applied is an error of the script's text.
        Settings::default().apply(&setting)?;
        Ok(setting)
    }
}

impl Default for Settings {
    fn default() -> Self {
        let link = Capabilities {
            mtu: 1500,
            super_frame: 1500,
            checksum_offload: false,
            local: false,
            any_thread: true,
        };
        let config = Config {
            ipv4: Some((IPV4[0], 8)),
            ipv6: Some((IPV6[0], 64)),
            link,
            ethernet: false,
            secret: *b"a script's stack",
            seed: 1,
            connections: 256,
            listeners: 16,
            time_wait_records: 256,
            neighbors: 16,
            payload_blocks: 1024,
            payload_block_len: 4096,
            tcp: TcpConfig {
                sack: false,
                timestamps: false,
                window_scaling: false,
                ..TcpConfig::default()
            },
            ..Config::default()
        };
        Self {
            config,
            local: IPV4[0].into(),
            remote: IPV4[1].into(),
            remote_isn: 0x1000_0000,
            local_isn: None,
            tolerance: Duration::from_micros(500),
            compare_push: false,
        }
    }
}

impl Settings {
    /// Applies one setting.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<(), String> {
        let value = setting.value.as_str();
        match setting.name.as_str() {
            "remote_isn" => self.remote_isn = number(value)?,
            "local_isn" => self.local_isn = Some(number(value)?),
            "tolerance" => self.tolerance = seconds(value)?,
            "push" => self.compare_push = switch(value)?,
            "ipv6" => {
                let six = switch(value)?;
                self.local = if six { IPV6[0].into() } else { IPV4[0].into() };
                self.remote = if six { IPV6[1].into() } else { IPV4[1].into() };
            }
            name => return self.apply_to_stack(name, value),
        }
        Ok(())
    }

    fn apply_to_stack(&mut self, name: &str, value: &str) -> Result<(), String> {
        let config = &mut self.config;
        match name {
            "mtu" => {
                config.link.mtu =
                    u16::try_from(number(value)?).map_err(|_| "a packet has at most 65535 bytes")?;
                config.link.super_frame = config.link.mtu.into();
            }
            "super_frame" => config.link.super_frame = number(value)?,
            "local" => config.link.local = switch(value)?,
            "connections" => config.connections = number(value)?,
            "time_wait_records" => config.time_wait_records = number(value)?,
            "payload_blocks" => config.payload_blocks = number(value)?,
            "block_len" => config.payload_block_len = number(value)?,
            _ => return apply_to_tcp(&mut config.tcp, name, value),
        }
        Ok(())
    }
}

fn apply_to_tcp(tcp: &mut TcpConfig, name: &str, value: &str) -> Result<(), String> {
    let small = || u8::try_from(number(value)?).map_err(|_| format!("{value} does not fit into 8 bits"));
    match name {
        "congestion" => tcp.congestion = congestion(value)?,
        "send_buffer" => tcp.send_buffer = number(value)?,
        "receive_buffer" => tcp.receive_buffer = number(value)?,
        "short_path_buffer" => tcp.short_path_buffer = number(value)?,
        "idle_buffer" => tcp.idle_buffer = number(value)?,
        "initial_window" => tcp.initial_window = number(value)?,
        "rto_min" => tcp.rto_min = seconds(value)?,
        "rto_initial" => tcp.rto_initial = seconds(value)?,
        "rto_max" => tcp.rto_max = seconds(value)?,
        "delayed_ack" => tcp.delayed_ack = seconds(value)?,
        "retries" => tcp.retries = small()?,
        "syn_retries" => tcp.syn_retries = small()?,
        "time_wait" => tcp.time_wait = seconds(value)?,
        "fin_wait_2" => tcp.fin_wait_2 = seconds(value)?,
        "challenge_rate" => tcp.challenge_ack_rate = number(value)?,
        "sack" => tcp.sack = switch(value)?,
        "timestamps" => tcp.timestamps = switch(value)?,
        "window_scaling" => tcp.window_scaling = switch(value)?,
        "ecn" => tcp.ecn = switch(value)?,
        "fast_open_key" => tcp.fast_open_key = Some(key(value)?),
        _ => return Err(format!("`{name}` is no setting")),
    }
    Ok(())
}

fn key(value: &str) -> Result<[u8; 16], String> {
    let number = (value.len() == 32).then(|| u128::from_str_radix(value, 16).ok());
    let number = number.flatten().ok_or("a key is 32 hexadecimal digits")?;
    Ok(number.to_be_bytes())
}

/// Parses the name of an algorithm.
pub(super) fn congestion(text: &str) -> Result<CongestionAlgorithm, String> {
    match text {
        "reno" => Ok(CongestionAlgorithm::Reno),
        "cubic" => Ok(CongestionAlgorithm::Cubic),
        _ => Err(format!("`{text}` is neither `reno` nor `cubic`")),
    }
}
