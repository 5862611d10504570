//! `--so_flags`: the stack's addresses and settings.
//!
//! A list of `name=value`, separated by commas. One `local` is needed; the rest
//! defaults to what scripts written for Linux expect of it.
//!
//! | name | value | default |
//! | --- | --- | --- |
//! | `local` | address and prefix length; once for IPv4, once for IPv6 | |
//! | `mtu` | bytes of the largest packet | 1500 |
//! | `super_frame` | bytes of the largest packet left to be segmented; `mtu` turns it off | two segments |
//! | `congestion` | `cubic`, `reno` | `cubic` |
//! | `initial_window` | segments | 10 |
//! | `send_buffer`, `receive_buffer` | bytes | 4 MiB, 15 MiB (window scale 8) |
//! | `rto_min`, `rto_initial`, `delayed_ack`, `time_wait`, `fin_wait_2` | milliseconds | 200, 1000, 40, 60000, 60000 |
//! | `retries`, `syn_retries` | count | 15, 5 |
//! | `fast_open_key` | 32 hexadecimal digits: the key of Fast Open's cookies | that of packetdrill's scripts |
//! | `fast_open` | the use of Fast Open, in the bits of Linux's `tcp_fastopen` | 0x403: clients, and all listeners |
//! | `sack`, `timestamps`, `window_scaling` | 0, 1 | 1, 1, 1 |
//! | `ecn` | 0: no, 1: offer and accept, 2: accept | 0 |

use crate::fast_open::FastOpen;
use core::net::IpAddr;
use core::str::FromStr;
use core::time::Duration;
use toehold_stack::{Config, CongestionAlgorithm, TcpConfig};

/// The settings that the flags stand for.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The stack's configuration.
    pub config: Config,
    /// The use of Fast Open by clients and listeners.
    pub fast_open: FastOpen,
}

/// Why flags were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// An item without `=`.
    #[error("--so_flags: `{0}` is not of the form name=value")]
    Form(String),
    /// A name that is none.
    #[error("--so_flags: there is no setting `{0}`")]
    Name(String),
    /// A value that does not fit its name.
    #[error("--so_flags: `{1}` is no value for `{0}`")]
    Value(String, String),
    /// No address at all.
    #[error("--so_flags: needs an address, e.g. local=192.168.0.1/16")]
    NoAddress,
}

/// Reads the flags into a configuration.
///
/// # Errors
///
/// The first item that is not understood, or the lack of an address.
///
/// ```
/// let flags = toehold_packetdrill::flags::parse("local=192.168.0.1/16,mtu=1460").unwrap();
/// assert_eq!(flags.config.link.mtu, 1460);
/// ```
pub fn parse(text: &str) -> Result<Flags, FlagError> {
    let mut flags = Flags {
        config: defaults(),
        fast_open: FastOpen::DEFAULT,
    };
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, value) = item
            .split_once('=')
            .ok_or_else(|| FlagError::Form(item.to_owned()))?;
        match set(&mut flags, name, value) {
            Some(true) => {}
            Some(false) => return Err(FlagError::Name(name.to_owned())),
            None => return Err(FlagError::Value(name.to_owned(), value.to_owned())),
        }
    }
    let config = &mut flags.config;
    if config.ipv4.is_none() && config.ipv6.is_none() {
        return Err(FlagError::NoAddress);
    }
    if config.link.super_frame == 0 {
        config.link.super_frame = 2 * u32::from(config.link.mtu);
    }
    config.link.super_frame = config.link.super_frame.max(config.link.mtu.into());
    Ok(flags)
}

/// Key of Fast Open's cookies that packetdrill's defaults set.
const FAST_OPEN_KEY: [u8; 16] = 0xa1a1_a1a1_b2b2_b2b2_c3c3_c3c3_d4d4_d4d4_u128.to_be_bytes();

/// The configuration that a script for Linux takes for granted.
fn defaults() -> Config {
    let tcp = TcpConfig {
        send_buffer: 4 << 20,
        receive_buffer: 15 << 20,
        syn_retries: 5,
        ecn_accept: false,
        // As Linux cuts its super-frames on slow paths: to what a millisecond's pacing lets go.
        super_frame_segments: 2,
        fast_open_key: Some(FAST_OPEN_KEY),
        ..TcpConfig::default()
    };
    let mut config = Config {
        ethernet: false,
        // A script has a handful of sockets, and packetdrill locks all memory.
        connections: 1 << 10,
        listeners: 1 << 6,
        time_wait_records: 1 << 10,
        neighbors: 1 << 4,
        payload_blocks: 1 << 11,
        tcp,
        ..Config::default()
    };
    // Two segments, once the MTU is known: Linux cuts its super-frames to what a
    // millisecond's pacing lets go, and to no less. Scripts show where they end
    // by PSH, which Linux sets on each.
    config.link.super_frame = 0;
    config
}

/// Sets one value: false if there is no such name, `None` if the value is wrong.
fn set(flags: &mut Flags, name: &str, value: &str) -> Option<bool> {
    let config = &mut flags.config;
    let tcp = &mut config.tcp;
    match name {
        "local" => set_address(config, value)?,
        "mtu" => config.link.mtu = number(value, 576)?,
        "super_frame" => {
            config.link.super_frame = number(value, 0)?;
            tcp.super_frame_segments = 0;
        }
        "congestion" => {
            tcp.congestion = match value {
                "cubic" => CongestionAlgorithm::Cubic,
                "reno" => CongestionAlgorithm::Reno,
                _ => return None,
            }
        }
        "initial_window" => tcp.initial_window = number(value, 1)?,
        "send_buffer" => tcp.send_buffer = number(value, 1)?,
        "receive_buffer" => tcp.receive_buffer = number(value, 1)?,
        "rto_min" => tcp.rto_min = milliseconds(value)?,
        "rto_initial" => tcp.rto_initial = milliseconds(value)?,
        "delayed_ack" => tcp.delayed_ack = milliseconds(value)?,
        "time_wait" => tcp.time_wait = milliseconds(value)?,
        "fin_wait_2" => tcp.fin_wait_2 = milliseconds(value)?,
        "retries" => tcp.retries = number(value, 0)?,
        "syn_retries" => tcp.syn_retries = number(value, 0)?,
        "fast_open_key" => {
            let number = (value.len() == 32).then(|| u128::from_str_radix(value, 16).ok());
            tcp.fast_open_key = Some(number??.to_be_bytes());
        }
        "fast_open" => flags.fast_open = FastOpen(bits(value)?),
        "sack" => tcp.sack = switch(value)?,
        "timestamps" => tcp.timestamps = switch(value)?,
        "window_scaling" => tcp.window_scaling = switch(value)?,
        "ecn" => (tcp.ecn, tcp.ecn_accept) = ecn(value)?,
        _ => return Some(false),
    }
    Some(true)
}

fn set_address(config: &mut Config, value: &str) -> Option<()> {
    let (address, prefix) = value.split_once('/')?;
    let prefix: u8 = prefix.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(v4) if prefix <= 32 => config.ipv4 = Some((v4, prefix)),
        IpAddr::V6(v6) if prefix <= 128 => config.ipv6 = Some((v6, prefix)),
        _ => return None,
    }
    Some(())
}

fn number<T: FromStr + PartialOrd>(value: &str, least: T) -> Option<T> {
    value.parse().ok().filter(|number| *number >= least)
}

/// A number of bits, in decimal or hexadecimal.
fn bits(value: &str) -> Option<u32> {
    match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

fn milliseconds(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_millis)
}

/// Whether to offer ECN and whether to accept it, by Linux's number.
fn ecn(value: &str) -> Option<(bool, bool)> {
    match value {
        "0" => Some((false, false)),
        "1" => Some((true, true)),
        "2" => Some((false, true)),
        _ => None,
    }
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_forms_are_checked() {
        assert_eq!(parse("").err(), Some(FlagError::NoAddress));
        assert_eq!(parse("local").err(), Some(FlagError::Form("local".into())));
        assert_eq!(parse("colour=red").err(), Some(FlagError::Name("colour".into())));
        for (name, value) in [
            ("mtu", "12"),
            ("local", "10.0.0.1/33"),
            ("sack", "yes"),
            ("mtu", "99999"),
        ] {
            let error = FlagError::Value(name.into(), value.into());
            assert_eq!(parse(&format!("{name}={value}")).err(), Some(error));
        }
    }

    #[test]
    fn both_families_and_settings_are_taken() {
        let config = parse("local=10.0.0.1/8, local=fd00::1/64,congestion=reno,rto_min=50,mtu=1520")
            .expect("well-formed")
            .config;
        assert!(config.ipv4.is_some() && config.ipv6.is_some());
        assert_eq!(config.tcp.congestion, CongestionAlgorithm::Reno);
        assert_eq!(config.tcp.rto_min, Duration::from_millis(50));
        assert_eq!((config.link.mtu, config.link.super_frame), (1520, 3040));
    }
}
