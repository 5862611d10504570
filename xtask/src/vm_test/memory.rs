//! Two virtual machines whose only common device is shared memory.
//!
//! Each has Debian's kernel and a shell. On the memory of its ivshmem device it has
//! interfaces (`toehold device --segment`) and an uplink of a fabric (`toehold
//! uplink --segment`). A node of the fabric works beside the kernel. The test uses
//! ping, TCP in both directions, VLANs, bonds, and TIPC. It brings the link up,
//! exchanges messages, kills and restarts a machine, and sets an interface down and
//! up. TIPC needs Ethernet, and no host's kernel has it reliably.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::guest::Guest;
use super::image::Image;
use super::kernel::Kernel;
use super::{copy, told};

/// Modules that the machines' kernel has to load.
const MODULES: [&str; 11] = [
    "tun",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "tipc",
    "llc",
    "stp",
    "garp",
    "mrp",
    "8021q",
    "tls",
    "bonding",
];

/// The interfaces of a bond.
const SLAVES: [&str; 2] = ["toe2", "toe3"];

/// Length of the common memory. Each machine has three devices and an uplink as
/// members.
const SEGMENT: &str = "32M";
const MEMBERS: usize = 8;

/// The memory of the common device, as a machine sees it.
const MEMORY: &str = "/sys/bus/pci/devices/0000:00:04.0/resource2";

pub(super) fn run(work: &Path) -> Result<()> {
    let kernel = Kernel::of_this_suite(work).context("no kernel for the machines")?;
    let begun = Instant::now();
    let image = Image::make(work, &kernel, &MODULES)?;
    let memory = Memory::new(work)?;
    told(begun, "the machines' image is made");
    let pair = Pair::boot(&image, &memory)?;
    told(begun, "both machines are up");
    show(pair, begun)
}

fn show(mut pair: Pair, begun: Instant) -> Result<()> {
    pair.ping()?;
    told(
        begun,
        "ping goes both ways, over IPv4 and IPv6, between devices and between joined fabrics",
    );
    for from in 0..2 {
        pair.copy(from, &ipv4(from))?;
        pair.copy(from, &node_ipv4(from))?;
    }
    told(begun, "files arrive over TCP as they were sent, both ways");
    pair.vlan()?;
    told(begun, "a VLAN: ping and files go over it both ways");
    pair.bond()?;
    told(
        begun,
        "a bond: files arrive, with either of its two interfaces down",
    );
    pair.tipc_up()?;
    pair.tipc_messages()?;
    told(begun, "TIPC: the link is up, messages are answered");

    pair.restart(1)?;
    told(begun, "one machine was killed, missed, and started again");
    pair.ping()?;
    pair.tipc_messages()?;
    told(begun, "TIPC: the link is up again, messages are answered");

    pair.guests[0].does("ip link set toe0 down")?;
    pair.guests[1].until("the link to go down", "! tipc link list | grep -q 'toe0.*: up'")?;
    pair.guests[0].does("ip link set toe0 up")?;
    pair.wait_for_link()?;
    pair.tipc_messages()?;
    pair.copy(0, &ipv4(0))?;
    told(
        begun,
        "TIPC: the interface was down and is up, and so is the link; files arrive",
    );
    pair.guests[0].does("toehold stat toe0")?;
    Ok(())
}

/// The file of the common memory, which exists while the machines run.
struct Memory(PathBuf);

impl Memory {
    fn new(work: &Path) -> Result<Memory> {
        let shared = Path::new("/dev/shm");
        let directory = if shared.is_dir() { shared } else { work };
        let path = directory.join(format!("toehold-vm-test-{}", std::process::id()));
        std::fs::File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Memory(path))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The two machines, members 0 and 1 of the segment.
struct Pair<'a> {
    guests: [Guest; 2],
    image: &'a Image,
    memory: &'a Memory,
}

impl<'a> Pair<'a> {
    fn boot(image: &'a Image, memory: &'a Memory) -> Result<Pair<'a>> {
        // Both start at once, as starting takes long.
        let guests = [0, 1].map(|number| start(number, image, memory));
        let [first, second] = guests;
        let mut pair = Pair {
            guests: [first?, second?],
            image,
            memory,
        };
        for number in 0..2 {
            pair.set_up(number)?;
        }
        Ok(pair)
    }

    /// Configures a machine up to its interface.
    fn set_up(&mut self, number: usize) -> Result<()> {
        let guest = &mut self.guests[number];
        guest.wait_for_shell()?;
        guest.does("echo 1 >/sys/bus/pci/devices/0000:00:04.0/enable")?;
        guest.does(&format!(
            "toehold device toe0 --segment {} --member {number} --segment-members {MEMBERS} \
             --mac 02:79:00:00:00:0{number} --ipv4 {}/24 --ipv6 {}/64",
            MEMORY,
            ipv4(number),
            ipv6(number)
        ))?;
        // Each machine has a fabric, with the kernel beside a node as a member. An
        // uplink joins the two fabrics as two more members of the segment.
        guest.does(&format!(
            "toehold up node{number} --tap=toe1 --mac 02:80:00:00:00:0{number} \
             --network 10.80.0.0/16 --network fd80::/64 --ipv4 {}/16 --ipv6 {}/64 --fabric vms",
            node_ipv4(number),
            node_ipv6(number)
        ))?;
        guest.does(&format!(
            "toehold uplink vm{number} --segment {} --member {} --fabric vms",
            MEMORY,
            number + 2
        ))?;
        guest.does("httpd -p 8080 -h /srv")?;
        guest.does(&format!("tipc node set identity vm{number}"))?;
        guest.does("tipc bearer enable media eth device toe0")?;
        guest.does("perl /tipc.pl serve </dev/null >/tipc.log 2>&1 &")?;
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        for (here, there) in [(0, 1), (1, 0)] {
            let guest = &mut self.guests[here];
            for to in [ipv4(there), node_ipv4(there)] {
                guest.until("way to the other machine", &format!("ping -c 1 -W 1 {to}"))?;
                guest.does(&format!("ping -c 3 -W 5 {to}"))?;
            }
            for to in [ipv6(there), node_ipv6(there)] {
                guest.until("way over IPv6", &format!("ping6 -c 1 -W 1 {to}"))?;
            }
        }
        Ok(())
    }

    /// Creates a file on one machine, which the other one fetches from `address`.
    fn copy(&mut self, from: usize, address: &str) -> Result<()> {
        let [first, second] = &mut self.guests;
        let (from, to) = if from == 0 {
            (first, second)
        } else {
            (second, first)
        };
        copy(from, to, address, "").map(drop)
    }

    /// Adds an interface for tagged frames on each machine.
    fn vlan(&mut self) -> Result<()> {
        for (number, guest) in self.guests.iter_mut().enumerate() {
            guest.does("ip link add link toe0 name tagged type vlan id 7")?;
            guest.does(&format!("ip address add {}/24 dev tagged", vlan_ipv4(number)))?;
            guest.does("ip link set tagged up")?;
        }
        for from in 0..2 {
            let address = vlan_ipv4(from);
            self.guests[1 - from].does(&format!("ping -c 3 -W 5 {address}"))?;
            self.copy(from, &address)?;
        }
        Ok(())
    }

    /// Bonds two interfaces, of which either may be down.
    fn bond(&mut self) -> Result<()> {
        for (number, guest) in self.guests.iter_mut().enumerate() {
            guest.does("ip link add both type bond mode active-backup miimon 100 fail_over_mac active")?;
            for (index, slave) in SLAVES.iter().enumerate() {
                guest.does(&format!(
                    "toehold device {slave} --bridged --segment {MEMORY} --member {} \
                     --mac 02:82:00:00:0{index}:0{number}",
                    4 + 2 * index + number
                ))?;
                guest.does(&format!(
                    "ip link set {slave} down && ip link set {slave} master both"
                ))?;
            }
            guest.does("ip link set both up")?;
            guest.does(&format!("ip address add {}/24 dev both", bond_ipv4(number)))?;
        }
        let address = bond_ipv4(0);
        self.guests[1].until("way over the bond", &format!("ping -c 1 -W 1 {address}"))?;
        self.copy(0, &address)?;
        for slave in SLAVES {
            self.guests[0].does(&format!("ip link set {slave} down"))?;
            self.guests[1].until(
                "way over the other interface of the bond",
                &format!("ping -c 1 -W 1 {address}"),
            )?;
            self.copy(0, &address)?;
            self.guests[0].does(&format!("ip link set {slave} up"))?;
            self.guests[0].until(
                "return of an interface of the bond",
                &format!(
                    "grep -A 1 'Slave Interface: {slave}' /proc/net/bonding/both | grep -q 'Status: up'"
                ),
            )?;
        }
        Ok(())
    }

    fn wait_for_link(&mut self) -> Result<()> {
        for guest in &mut self.guests {
            guest.until("the link of TIPC", "tipc link list | grep -q 'toe0.*: up'")?;
        }
        Ok(())
    }

    fn tipc_up(&mut self) -> Result<()> {
        self.wait_for_link()?;
        self.guests[0].does("tipc link list; tipc nametable show")?;
        Ok(())
    }

    /// Sends messages of many lengths, and a stream of them, which the other
    /// machine answers.
    fn tipc_messages(&mut self) -> Result<()> {
        self.wait_for_link()?;
        for (here, there) in [(0, 1), (1, 0)] {
            let guest = &mut self.guests[here];
            let said = guest.does(&format!("perl /tipc.pl ask {there}"))?;
            ensure!(said.contains("all answered"), "TIPC: {said}");
        }
        Ok(())
    }

    /// Kills a machine as a failing host would, waits until the other one has
    /// noticed, and starts it again.
    fn restart(&mut self, number: usize) -> Result<()> {
        self.guests[number].kill()?;
        self.guests[1 - number].until("the link to go down", "! tipc link list | grep -q 'toe0.*: up'")?;
        self.guests[number] = start(number, self.image, self.memory)?;
        self.set_up(number)
    }
}

/// Starts a machine, which begins to boot.
fn start(number: usize, image: &Image, Memory(memory): &Memory) -> Result<Guest> {
    let memory = format!(
        "memory-backend-file,id=common,share=on,size={SEGMENT},mem-path={}",
        memory.display()
    );
    let devices = [
        "-net",
        "none",
        "-object",
        &memory,
        "-device",
        "ivshmem-plain,memdev=common,addr=4",
    ];
    Guest::start(&format!("vm{number}"), image, &devices)
}

fn ipv4(number: usize) -> String {
    format!("10.79.0.{}", number + 1)
}

fn ipv6(number: usize) -> String {
    format!("fd79::{}", number + 1)
}

fn vlan_ipv4(number: usize) -> String {
    format!("10.79.7.{}", number + 1)
}

fn bond_ipv4(number: usize) -> String {
    format!("10.82.0.{}", number + 1)
}

fn node_ipv4(number: usize) -> String {
    format!("10.80.0.{}", number + 1)
}

fn node_ipv6(number: usize) -> String {
    format!("fd80::{}", number + 1)
}
