//! Names that mean something to every program of this host already, and so cannot mean a node. Some
//! programs would reach the node by them, and others what they mean without it.

use std::fs::File;
use std::io::Read;

/// The file of the host's own names.
const HOSTS: &str = "/etc/hosts";

/// The file of the host's name.
const HOST: &str = "/proc/sys/kernel/hostname";

/// Bytes of the file of names that are read.
const MAX_HOSTS: u64 = 1 << 20;

/// Names that the C library or the resolver knows by itself (RFC 6761 §6.3, `nss-myhostname(8)`).
const KNOWN: [&str; 7] = [
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
    "_gateway",
    "_outbound",
    "_localdnsstub",
];

/// The meaning of a name without any node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Meaning {
    /// The C library or the resolver knows it.
    #[error("is this host, or its gateway, to every program")]
    Known,
    /// The C library takes it for an IPv4 address (`inet_aton(3)`).
    #[error("is an IPv4 address to every program")]
    Address,
    /// The host has the name.
    #[error("is this host's own name")]
    Host,
    /// The file of the host's names has it.
    #[error("has an address in /etc/hosts")]
    Hosts,
}

/// The meaning of a name to every program of this host, whichever nodes there are. The network is
/// not asked.
pub fn meaning_outside(name: &str) -> Option<Meaning> {
    let host = std::fs::read_to_string(HOST).unwrap_or_default();
    let mut hosts = Vec::new();
    if let Ok(file) = File::open(HOSTS) {
        let _ = file.take(MAX_HOSTS).read_to_end(&mut hosts);
    }
    meaning(name, host.trim(), &hosts)
}

fn meaning(name: &str, host: &str, hosts: &[u8]) -> Option<Meaning> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if KNOWN.contains(&name.as_str()) || name.ends_with(".localhost") {
        return Some(Meaning::Known);
    }
    if is_address(&name) {
        return Some(Meaning::Address);
    }
    if name.eq_ignore_ascii_case(host) {
        return Some(Meaning::Host);
    }
    has_name(hosts, &name).then_some(Meaning::Hosts)
}

/// Whether the C library reads a text as an IPv4 address: up to four numbers with dots between them, each
/// decimal, octal or hexadecimal.
fn is_address(text: &str) -> bool {
    let is_number = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit()),
    };
    text.split('.').count() <= 4 && text.split('.').all(is_number)
}

/// Whether the file of the host's names (`hosts(5)`) has a name.
fn has_name(hosts: &[u8], name: &str) -> bool {
    let text = String::from_utf8_lossy(hosts);
    let names = text.lines().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_ascii_whitespace().skip(1)
    });
    names.into_iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"127.0.0.1\tlocalhost\n# 10.0.0.9 old\n10.0.0.7 db.example DB # web\n\xff ::1 six\n";

    #[test]
    fn name_that_resolves_without_nodes_has_a_meaning() {
        for (name, expected) in [
            ("localhost", Some(Meaning::Known)),
            ("LocalHost", Some(Meaning::Known)),
            ("web.localhost", Some(Meaning::Known)),
            ("ip6-loopback", Some(Meaning::Known)),
            ("_gateway", Some(Meaning::Known)),
            ("127.0.0.1", Some(Meaning::Address)),
            ("10.1", Some(Meaning::Address)),
            ("7", Some(Meaning::Address)),
            ("0x7f.1", Some(Meaning::Address)),
            ("this", Some(Meaning::Host)),
            ("db", Some(Meaning::Hosts)),
            ("db.example", Some(Meaning::Hosts)),
            ("web", None),
            ("old", None),
            ("web-1", None),
            ("1.2.3.4.5", None),
            ("0xg", None),
            ("localhost-2", None),
        ] {
            assert_eq!(meaning(name, "this", FILE), expected, "{name}");
        }
        assert_eq!(meaning_outside("localhost"), Some(Meaning::Known));
    }
}
