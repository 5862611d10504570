//! Two virtual machines with a network card each, on one wire. On one of them an
//! uplink has the card (`toehold uplink --interface --xdp zero-copy`), and a node
//! shares it with the kernel. The other one does not use Toehold.
//!
//! The card is virtio's. Since Linux 6.13 its driver reads and writes the frames of
//! an AF_XDP socket in place, if the card uses platform addresses. The other
//! machines' kernel is older, so this test needs another one.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::guest::Guest;
use super::image::Image;
use super::kernel::Kernel;
use super::{copy, told};

/// Debian's suite that always has a current kernel.
const SUITE: &str = "sid";

/// Modules that the machines' kernel has to load.
const MODULES: [&str; 4] = ["tun", "failover", "net_failover", "virtio_net"];

/// Prefix of a command for the kernel beside the node. The shell has an `ip` of its
/// own.
const BESIDE: &str = "/usr/local/bin/ip netns exec beside";

/// Number of the machine with the uplink; the other machine is `FAR`.
const NEAR: usize = 0;
const FAR: usize = 1;

/// Runs the test. Returns `false`, with the reason printed, if no current kernel is
/// available.
pub(super) fn run(work: &Path) -> Result<bool> {
    let kernel = match Kernel::of_suite(work, SUITE) {
        Ok(kernel) => kernel,
        Err(error) => {
            println!("*** SKIPPED the virtual machines with cards: no current kernel: {error:#} ***");
            return Ok(false);
        }
    };
    let begun = Instant::now();
    let image = Image::make(work, &kernel, &MODULES)?;
    let wire = tempfile::tempdir()?;
    let [near, far] = [NEAR, FAR].map(|number| boot(number, &image, wire.path()));
    let (mut near, mut far) = (near?, far?);
    far.does("httpd -p 8080 -h /srv")?;
    near.does("mkdir -p /var/run/netns")?;
    near.does(
        "toehold uplink lan --interface eth0 --xdp zero-copy --network 10.81.0.0/16 --network fd81::/64",
    )?;
    near.does("toehold up node --ipv4 10.81.0.11/16 --tap --netns beside")?;
    near.does(&format!("{BESIDE} httpd -p 8080 -h /srv"))?;
    told(begun, "both machines are up, one is an uplink without copies");
    near.until(
        "way to the other machine",
        &format!("{BESIDE} ping -c 1 -W 1 10.81.0.2"),
    )?;
    far.does("ping -c 3 -W 5 10.81.0.11")?;
    copy(&mut near, &mut far, "10.81.0.11", "")?;
    copy(&mut far, &mut near, "10.81.0.2", BESIDE)?;
    told(
        begun,
        "files arrive over the kernel's TCP as they were sent, both ways",
    );
    let with = "toehold run --node node --stats --";
    let said = copy(&mut far, &mut near, "10.81.0.2", with)?;
    let opened = said
        .lines()
        .find(|line| line.contains("connections opened on the node"));
    ensure!(
        opened.is_some_and(|line| line.trim_end().ends_with('1')),
        "{said}"
    );
    told(begun, "a file arrives over the node's TCP");
    let said = near.does("toehold stat lan")?;
    ensure!(said.contains("AF_XDP without copies"), "{said}");
    Ok(true)
}

/// Starts a machine on the wire, which is a directory.
fn boot(number: usize, image: &Image, wire: &Path) -> Result<Guest> {
    let end = |number: usize| wire.join(number.to_string()).display().to_string();
    let cable = format!(
        "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        end(number),
        end(1 - number)
    );
    let card = format!(
        "virtio-net-pci,netdev=wire,disable-legacy=on,iommu_platform=on,mac=02:81:00:00:00:0{number}"
    );
    let mut guest = Guest::start(
        &format!("card{number}"),
        image,
        &["-netdev", &cable, "-device", &card],
    )?;
    guest.wait_for_shell()?;
    guest.does("ip link set eth0 up")?;
    guest.does(&format!("ip address add 10.81.0.{}/16 dev eth0", number + 1))?;
    Ok(guest)
}
