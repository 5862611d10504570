//! The other hosts of an uplink or a device, and the files that name them and hold their key.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use toehold_link::udp::parse_peers;
use toehold_node::uplink::UdpEnd;

/// Most bytes of a file with peers.
const MAX_PEERS_FILE: u64 = 1 << 20;
/// Most bytes of a file with a key: its digits and a line break.
const MAX_KEY_FILE: u64 = 128;

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

impl Hosts {
    /// The configuration of the UDP end, with files read and names resolved; `None` without one.
    pub(super) fn end(&self) -> Result<Option<UdpEnd>> {
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
