//! `cargo xtask vm-test`: two virtual machines whose only common device is a piece of memory.
//!
//! Each has Debian's kernel, a shell, and on the memory of its ivshmem device an interface
//! (`toehold device --segment`) and an uplink of a fabric (`toehold uplink --segment`) with a
//! node that has the kernel beside it. Shown are ping, TCP in both directions, and TIPC: the
//! link comes up, messages are answered, a machine is killed and started again, an interface
//! goes down and up. TIPC is in no host's kernel that one could rely on, and needs Ethernet to
//! stand on.
//!
//! What the machines say lies in `target/vm-test/`. Every wait has an end.

mod guest;
mod image;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::guest::Guest;
use crate::requirements::{self, Program};
use crate::shell::{cargo, run as run_shown, target};

/// What it needs on top of what the tests do.
const FOR_MACHINES: &[Program] = &[
    Program {
        name: "qemu-system-x86_64",
        package: "qemu-system-x86",
        purpose: "runs virtual machines",
    },
    Program {
        name: "tipc",
        package: "iproute2",
        purpose: "sets TIPC up",
    },
    Program {
        name: "busybox",
        package: "busybox-static",
        purpose: "is the machines' shell",
    },
    Program {
        name: "strip",
        package: "binutils",
        purpose: "shortens what the machines load",
    },
];

/// Bytes of the common memory, and how many could share it.
const SEGMENT: &str = "16M";
/// Bytes of a file that goes through TCP.
const FILE: u64 = 8 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// What is there to build on.
pub(crate) struct Means {
    /// Where everything goes.
    work: PathBuf,
    /// The kernel's package, unpacked.
    kernel: PathBuf,
}

/// Builds, boots, shows.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    run_with(&means()?)
}

/// Installs and downloads what it takes. An error says what is not to be had here.
pub(crate) fn means() -> Result<Means> {
    let missing = requirements::provide(FOR_MACHINES);
    let names: Vec<_> = missing.iter().map(|program| program.name).collect();
    ensure!(names.is_empty(), "{} not to be had here", names.join(" and "));
    let work = target().join("vm-test");
    std::fs::create_dir_all(&work)?;
    let kernel = image::kernel(&work).context("no kernel for the machines")?;
    Ok(Means { work, kernel })
}

/// Builds, boots, shows.
pub(crate) fn run_with(Means { work, kernel }: &Means) -> Result<()> {
    let begun = Instant::now();
    // A test beside it, so that the features are those of a build of all tests: cargo would
    // make everything anew for others.
    run_shown(&mut cargo([
        "build",
        "--workspace",
        "--bin",
        "toehold",
        "--test",
        "nodes",
    ]))?;
    let image = image::make(work, kernel)?;
    let memory = Memory::new(work)?;
    told(begun, "the machines' image is made");
    let pair = Pair::boot(&image, &memory)?;
    told(begun, "both machines are up");
    show(pair, begun)?;
    println!(
        "\nping, TCP and TIPC between two virtual machines in {:.0} s; what they said lies in {}",
        begun.elapsed().as_secs_f64(),
        work.display()
    );
    Ok(())
}

fn told(begun: Instant, what: &str) {
    println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
}

fn show(mut pair: Pair, begun: Instant) -> Result<()> {
    pair.ping()?;
    told(
        begun,
        "ping goes both ways, over IPv4 and IPv6, between devices and between joined fabrics",
    );
    for (from, to) in [(0, 1), (1, 0)] {
        pair.copy(from, to, &ipv4(from))?;
        pair.copy(from, to, &node_ipv4(from))?;
    }
    told(begun, "files arrive over TCP as they were sent, both ways");
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
    pair.copy(0, 1, &ipv4(0))?;
    told(
        begun,
        "TIPC: the interface was down and is up, and so is the link; files arrive",
    );
    pair.guests[0].does("toehold stat toe0")?;
    Ok(())
}

/// The file under the common memory, for as long as the machines run.
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
    image: &'a image::Image,
    memory: &'a Memory,
}

impl<'a> Pair<'a> {
    fn boot(image: &'a image::Image, memory: &'a Memory) -> Result<Pair<'a>> {
        // Both at once: what takes long is their start.
        let guests = [0, 1].map(|number| Guest::start(number, image, &memory.0));
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

    /// Until it has its interface.
    fn set_up(&mut self, number: usize) -> Result<()> {
        let guest = &mut self.guests[number];
        guest.wait_for_shell()?;
        guest.does(&format!(
            "toehold device toe0 --segment {} --member {number} --segment-members 4 \
             --mac 02:79:00:00:00:0{number} --ipv4 {}/24 --ipv6 {}/64",
            guest::MEMORY,
            ipv4(number),
            ipv6(number)
        ))?;
        // A fabric in each machine, of which the kernel beside a node is a member: an uplink
        // joins the two, as two more members of the segment.
        guest.does(&format!(
            "toehold up node{number} --tap=toe1 --mac 02:80:00:00:00:0{number} \
             --network 10.80.0.0/16 --network fd80::/64 --ipv4 {}/16 --ipv6 {}/64 --fabric vms",
            node_ipv4(number),
            node_ipv6(number)
        ))?;
        guest.does(&format!(
            "toehold uplink vm{number} --segment {} --member {} --fabric vms",
            guest::MEMORY,
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

    /// One machine makes a file, the other one fetches it from one of its addresses.
    fn copy(&mut self, from: usize, to: usize, address: &str) -> Result<()> {
        let make = format!("head -c {FILE} /dev/urandom >/srv/file && sha256sum </srv/file");
        let made = self.guests[from].does(&make)?;
        let fetch = format!("perl /fetch.pl {address} 8080 /file | sha256sum");
        let fetched = self.guests[to].does(&fetch)?;
        if made != fetched || made.len() < 64 {
            bail!("a file of {FILE} bytes was {made:?}, and came as {fetched:?}");
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

    /// Messages of many lengths, and a stream of them, answered by the other machine.
    fn tipc_messages(&mut self) -> Result<()> {
        self.wait_for_link()?;
        for (here, there) in [(0, 1), (1, 0)] {
            let guest = &mut self.guests[here];
            let said = guest.does(&format!("perl /tipc.pl ask {there}"))?;
            ensure!(said.contains("all answered"), "TIPC: {said}");
        }
        Ok(())
    }

    /// Kills a machine as a failing host would, waits until the other one has noticed, and
    /// starts it again.
    fn restart(&mut self, number: usize) -> Result<()> {
        self.guests[number].kill()?;
        self.guests[1 - number].until("the link to go down", "! tipc link list | grep -q 'toe0.*: up'")?;
        self.guests[number] = Guest::start(number, self.image, &self.memory.0)?;
        self.set_up(number)
    }
}

fn ipv4(number: usize) -> String {
    format!("10.79.0.{}", number + 1)
}

fn ipv6(number: usize) -> String {
    format!("fd79::{}", number + 1)
}

fn node_ipv4(number: usize) -> String {
    format!("10.80.0.{}", number + 1)
}

fn node_ipv6(number: usize) -> String {
    format!("fd80::{}", number + 1)
}
