//! A fabric's networks, and the owners of the addresses in them.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{AddrParseError, IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use toehold_link::mq::NodeName;
use toehold_wire::Mac;

use super::record::{Beyond, Identity, NodeRecord};
use crate::settings::NodeSettings;

/// The networks from which nodes of a fabric get addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// The IPv4 network.
    pub ipv4: Ipv4Net,
    /// The IPv6 network.
    pub ipv6: Ipv6Net,
}

/// The reason why a node cannot have an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// Another node has the address.
    #[error("node {by} has the address {address} already; choose another, or none to be given one")]
    Taken {
        /// The address, as text.
        address: String,
        /// The node that has it, and its host if that is another one.
        by: String,
    },
    /// Every address of the network is some node's.
    #[error("network {0} has no address left; start the fabric with a larger --network")]
    Exhausted(IpNet),
}

/// A member that has a name and addresses already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) identity: Identity,
    /// The host it is on, if it is not of this fabric.
    pub(super) host: Option<String>,
}

impl Holder {
    /// All members of the fabric, and of those beyond its uplinks.
    pub(super) fn all(nodes: &[NodeRecord], beyond: &[Beyond]) -> Vec<Holder> {
        let near = nodes.iter().map(|node| Holder {
            identity: node.into(),
            host: None,
        });
        let far = beyond.iter().flat_map(|beyond| {
            beyond.members.iter().map(|member| Holder {
                identity: member.clone(),
                host: Some(beyond.host.clone()),
            })
        });
        near.chain(far).collect()
    }

    fn taken(&self, address: &impl Display) -> AssignError {
        AssignError::Taken {
            address: address.to_string(),
            by: match &self.host {
                None => self.identity.name.to_string(),
                Some(host) => format!("{} on host {host}", self.identity.name),
            },
        }
    }
}

/// The addresses that a node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) mac: Mac,
    pub(super) ipv4: Ipv4Net,
    pub(super) ipv6: Ipv6Net,
}

impl Default for Networks {
    /// 10.77.0.0/16 and fd77::/64.
    fn default() -> Self {
        Self {
            ipv4: Ipv4Net::new_assert(Ipv4Addr::new(10, 77, 0, 0), 16),
            ipv6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0), 64),
        }
    }
}

/// Writes networks as in `10.77.0.0/16,fd77::/64`.
///
/// ```
/// use toehold_node::fabric::Networks;
///
/// let networks: Networks = "10.1.0.0/16,fd01::/64".parse()?;
/// assert!(networks.contains("10.1.2.3".parse().unwrap()));
/// assert!(!networks.contains("fd02::1".parse().unwrap()));
/// assert_eq!(networks.to_string(), "10.1.0.0/16,fd01::/64");
/// assert!("10.1.0.0/16".parse::<Networks>().is_err());
/// # Ok::<(), ipnet::AddrParseError>(())
/// ```
impl Display for Networks {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{}", self.ipv4, self.ipv6)
    }
}

/// Reads the form that [`Display`] writes.
impl FromStr for Networks {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let (ipv4, ipv6) = text.split_once(',').unwrap_or((text, ""));
        Ok(Networks {
            ipv4: ipv4.parse()?,
            ipv6: ipv6.parse()?,
        })
    }
}

impl Networks {
    /// The networks, with those that are given in place of the ones of their family.
    #[must_use]
    pub fn with(mut self, given: &[IpNet]) -> Self {
        for network in given {
            match network {
                IpNet::V4(network) => self.ipv4 = network.trunc(),
                IpNet::V6(network) => self.ipv6 = network.trunc(),
            }
        }
        self
    }

    /// The networks of a node of the fabric.
    #[must_use]
    pub fn of(node: &NodeRecord) -> Networks {
        Networks {
            ipv4: node.ipv4.trunc(),
            ipv6: node.ipv6.trunc(),
        }
    }

    /// Whether an address is of one of these.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.ipv4.contains(&address),
            IpAddr::V6(address) => self.ipv6.contains(&address),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Networks> {
        serde_json::from_slice(bytes).ok()
    }

    /// Finds addresses for a node: those its settings give, or free ones.
    pub(super) fn assign(
        &self,
        name: &NodeName,
        settings: &NodeSettings,
        holders: &[Holder],
    ) -> Result<Addresses, AssignError> {
        let mac = free_mac(name, settings.mac, holders)?;
        let ipv4 = match settings.ipv4 {
            Some(given) => {
                check_free(holders, given.addr().into())?;
                given
            }
            None => self.free_ipv4(holders)?,
        };
        let ipv6 = match settings.ipv6 {
            Some(given) => {
                check_free(holders, given.addr().into())?;
                given
            }
            None => self.free_ipv6(holders, ipv4.addr())?,
        };
        Ok(Addresses { mac, ipv4, ipv6 })
    }

    /// The addresses of a member that is not spoken to by IP.
    pub(super) fn assign_none(
        name: &NodeName,
        settings: &NodeSettings,
        holders: &[Holder],
    ) -> Result<Addresses, AssignError> {
        Ok(Addresses {
            mac: free_mac(name, settings.mac, holders)?,
            ipv4: Ipv4Net::default(),
            ipv6: Ipv6Net::default(),
        })
    }

    /// The lowest free address.
    fn free_ipv4(&self, holders: &[Holder]) -> Result<Ipv4Net, AssignError> {
        let taken: HashSet<_> = holders.iter().map(|holder| holder.identity.ipv4).collect();
        let free = self.ipv4.hosts().find(|address| !taken.contains(address));
        let address = free.ok_or(AssignError::Exhausted(self.ipv4.into()))?;
        Ok(Ipv4Net::new_assert(address, self.ipv4.prefix_len()))
    }

    /// The address with the same number in its network as the IPv4 address has in its own. So a
    /// reader knows one from the other. If that is taken, the lowest free one.
    fn free_ipv6(&self, holders: &[Holder], ipv4: Ipv4Addr) -> Result<Ipv6Net, AssignError> {
        let taken: HashSet<_> = holders.iter().map(|holder| holder.identity.ipv6).collect();
        let base = u128::from(self.ipv6.network());
        let free = |number: u32| {
            let address = Ipv6Addr::from(base | u128::from(number));
            let is_free = self.ipv6.contains(&address) && !taken.contains(&address);
            is_free.then_some(address)
        };
        let number = u32::from(ipv4) & u32::from(self.ipv4.hostmask());
        let alike = self.ipv4.contains(&ipv4).then_some(number);
        // One number more than there are holders is free for certain.
        let numbers = alike.into_iter().chain(1..=holders.len() as u32 + 1);
        let address = numbers
            .filter(|&number| number != 0)
            .find_map(free)
            .ok_or(AssignError::Exhausted(self.ipv6.into()))?;
        Ok(Ipv6Net::new_assert(address, self.ipv6.prefix_len()))
    }
}

fn check_free(holders: &[Holder], address: IpAddr) -> Result<(), AssignError> {
    let has_it = |holder: &&Holder| {
        let Identity { ipv4, ipv6, .. } = holder.identity;
        address == IpAddr::from(ipv4) || address == IpAddr::from(ipv6)
    };
    match holders.iter().find(has_it) {
        Some(holder) => Err(holder.taken(&address)),
        None => Ok(()),
    }
}

fn free_mac(name: &NodeName, given: Option<Mac>, holders: &[Holder]) -> Result<Mac, AssignError> {
    let taken = |mac: Mac| holders.iter().find(|holder| holder.identity.mac == mac);
    if let Some(mac) = given {
        return match taken(mac) {
            Some(holder) => Err(holder.taken(&mac)),
            None => Ok(mac),
        };
    }
    let mut mac = mac_of_name(name.as_str());
    // Two names hardly ever have the same one; if they do, the next is as good.
    while taken(mac).is_some() {
        mac.0[5] = mac.0[5].wrapping_add(1);
        if mac.0[5] == 0 {
            mac.0[4] = mac.0[4].wrapping_add(1);
        }
    }
    Ok(mac)
}

/// The hardware address that follows from a node's name, locally administered:
/// the same in every life of a node, and different for different names.
pub fn mac_of_name(name: &str) -> Mac {
    mac_of(name.bytes())
}

/// The hardware address that follows from something, locally administered.
pub(super) fn mac_of(bytes: impl Iterator<Item = u8>) -> Mac {
    let hash = fnv(bytes);
    let [a, b, c, d, e, ..] = (hash ^ hash >> 40).to_le_bytes();
    Mac([0x02, a, b, c, d, e])
}

/// FNV-1a.
pub(super) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
