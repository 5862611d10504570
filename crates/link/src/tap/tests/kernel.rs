//! Two kernels, or one kernel twice, joined by two links in this process.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::capture::{Capture, CaptureSettings};
use crate::{Received, Transmit};

/// Forwards frames from one link to the other. Super-frames and partial checksums
/// stay unchanged.
fn forward(from: &mut impl Link, to: &mut impl Link) -> usize {
    let mut pass = |frame: &Received<'_>| {
        let frame = Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        };
        // As on any cable, refused frames are lost.
        let _ = to.transmit(&frame);
    };
    from.receive(0, 64, &mut pass)
}

/// Drives both ends of a cable until `done` is set.
fn cable(a: &mut impl Link, b: &mut impl Link, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        if forward(a, b) + forward(b, a) != 0 {
            continue;
        }
        let descriptors = [a.descriptor().unwrap(), b.descriptor().unwrap()];
        let mut waits = descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        poll(&mut waits, Some(&tick)).unwrap();
    }
}

/// Runs `act` while two hosts are connected. Returns the counters of both ends.
fn connected(hosts: [Host; 2], act: impl FnOnce([&Namespace; 2]) + Send) -> [TapStatistics; 2] {
    let [a, b] = hosts;
    let mut ends = [a.tap, b.tap];
    let namespaces = [&a.namespace, &b.namespace];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            // Stops the cable even if `act` panics.
            let _stop = Stop(&done);
            act(namespaces);
        });
        let [a, b] = &mut ends;
        cable(a, b, &done);
        if let Err(panic) = program.join() {
            std::panic::resume_unwind(panic);
        }
    });
    ends.map(|end| end.statistics())
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn byte(seed: usize, at: usize) -> u8 {
    ((at + seed) ^ (at >> 8) ^ (at >> 15)) as u8
}

fn write_all(mut stream: &TcpStream, seed: usize, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|at| byte(seed, at)).collect();
    stream.write_all(&bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

fn read_all(mut stream: &TcpStream, seed: usize, len: usize) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), len);
    let wrong = bytes
        .iter()
        .enumerate()
        .find(|&(at, &found)| found != byte(seed, at));
    assert_eq!(wrong, None);
}

/// Runs a stream in each direction at the same time.
fn both_ways(server: &TcpStream, client: &TcpStream, len: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| write_all(server, 1, len));
        scope.spawn(|| write_all(client, 2, len));
        scope.spawn(|| read_all(server, 2, len));
        read_all(client, 1, len);
    });
}

fn tcp([a, b]: [&Namespace; 2], address: IpAddr, len: usize) {
    let listener = a.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let client = b.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    both_ways(&server, &client, len);
}

fn hosts(change: impl Fn(&mut TapSettings)) -> [Host; 2] {
    [Host::new(1, &change), Host::new(2, &change)]
}

const LEN: usize = 8 << 20;

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_between_kernels_cross_as_super_frames() {
    for mtu in [1500, 9000] {
        let counted = connected(hosts(|settings| settings.mtu = mtu), |namespaces| {
            for address in Host::addresses(1) {
                tcp(namespaces, address, LEN);
            }
        });
        for end in counted {
            assert!(end.super_frames_received > 100, "{end:?}");
            assert!(end.super_frames_sent > 100, "{end:?}");
            assert_eq!(
                (end.bad_headers, end.bad_length, end.refused, end.segmented),
                (0, 0, 0, 0),
                "{end:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_between_kernels_cross_without_offloads() {
    for mtu in [1500, 9000] {
        let plain = |settings: &mut TapSettings| {
            settings.mtu = mtu;
            settings.vnet_header = false;
        };
        let counted = connected(hosts(plain), |namespaces| {
            for address in Host::addresses(1) {
                tcp(namespaces, address, LEN / 4);
            }
        });
        for end in counted {
            assert_eq!(
                (end.super_frames_received, end.super_frames_sent, end.bad_length),
                (0, 0, 0),
                "{end:?}"
            );
        }
    }
}

/// One end has all offloads, the other has none.
#[test]
#[ignore = "needs namespaces, tun"]
fn frames_for_receiver_without_offloads_are_completed() {
    for vnet_header in [true, false] {
        let without = Host::new(2, |settings| {
            settings.vnet_header = vnet_header;
            settings.super_frames = false;
            settings.offloads = Offloads::NONE;
        });
        let with = Host::new(1, |_| {});
        let [sender, receiver] = connected([with, without], |namespaces| {
            for address in Host::addresses(1) {
                tcp(namespaces, address, LEN / 4);
            }
        });
        assert!(sender.super_frames_received > 0);
        assert_eq!(receiver.segmented, sender.super_frames_received, "{receiver:?}");
        assert_eq!(
            (receiver.super_frames_received, receiver.refused),
            (0, 0),
            "{receiver:?}"
        );
    }
}

/// Sends as sendmsg with UDP_SEGMENT does.
#[test]
#[ignore = "needs namespaces, tun"]
fn udp_super_frame_crosses_and_arrives_as_datagrams() {
    const UDP_SEGMENT: libc::c_int = 103;
    let hosts = hosts(|_| {});
    if !hosts.iter().all(|host| host.tap.description().offloads.udp) {
        eprintln!("SKIPPED: this kernel has no segmentation offload for UDP (it is in Linux 6.2)");
        return;
    }
    let counted = connected(hosts, |[a, b]| {
        for address in Host::addresses(1) {
            let server = a.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            let client = b.run(|| UdpSocket::bind(any_address(address))).unwrap().unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            let size: libc::c_int = 1000;
            // SAFETY: the option's value is `size`, a local int of four bytes, which lives until
            // the call returns.
            let set = unsafe {
                libc::setsockopt(
                    std::os::fd::AsRawFd::as_raw_fd(&client),
                    libc::SOL_UDP,
                    UDP_SEGMENT,
                    (&raw const size).cast(),
                    4,
                )
            };
            assert_eq!(set, 0);
            let bytes: Vec<u8> = (0..10_500).map(|at| byte(3, at)).collect();
            assert_eq!(client.send(&bytes).unwrap(), bytes.len());
            let mut got = Vec::new();
            let mut lens = Vec::new();
            while got.len() < bytes.len() {
                let mut datagram = [0; 2000];
                let len = server.recv(&mut datagram).unwrap();
                lens.push(len);
                got.extend_from_slice(&datagram[..len]);
            }
            assert_eq!(got, bytes);
            assert_eq!(lens, [vec![1000; 10], vec![500]].concat());
        }
    });
    // The server's end passed super-frames on, the client's end received them.
    assert_eq!(counted[1].super_frames_received, 2, "{counted:?}");
    assert_eq!(counted[0].super_frames_sent, 2, "{counted:?}");
}

fn any_address(like: IpAddr) -> SocketAddr {
    match like {
        IpAddr::V4(_) => "0.0.0.0:0".parse().unwrap(),
        IpAddr::V6(_) => "[::]:0".parse().unwrap(),
    }
}

/// Two threads have a queue each. One of them forwards, whichever queue the kernel
/// chooses.
#[test]
#[ignore = "needs namespaces, tun"]
fn several_queues_carry_streams_of_one_host() {
    let hosts = hosts(|settings| settings.multi_queue = true);
    let [mut a, mut b] = [&hosts[0], &hosts[1]].map(|host| host.tap.another_queue(&host.namespace).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| cable(&mut a, &mut b, &done));
        let _stop = Stop(&done);
        connected(hosts, |namespaces| {
            std::thread::scope(|scope| {
                for address in Host::addresses(1).into_iter().cycle().take(6) {
                    scope.spawn(move || tcp(namespaces, address, LEN / 8));
                }
            });
        });
    });
}

#[test]
#[ignore = "needs namespaces, tun"]
fn mtu_bounds_frames_of_kernel() {
    let counted = connected(hosts(|settings| settings.mtu = MAX_MTU), |namespaces| {
        tcp(namespaces, Host::addresses(1)[0], LEN);
    });
    assert!(counted.iter().all(|end| end.bad_length == 0), "{counted:?}");
}

/// tshark reads super-frames and partial checksums from a capture as complete
/// frames.
#[test]
#[ignore = "needs namespaces, tun, tshark"]
fn tshark_finds_no_error_in_crossing_frames() {
    let [a, b] = hosts(|_| {});
    let path = std::env::temp_dir().join(format!("toehold-tap-{}.pcapng", std::process::id()));
    let mut near = Capture::create(a.tap, &path, &CaptureSettings::default()).unwrap();
    let mut far = b.tap;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let namespaces = [&a.namespace, &b.namespace];
        let done = &done;
        scope.spawn(move || {
            let _stop = Stop(done);
            for address in Host::addresses(1) {
                tcp(namespaces, address, LEN / 8);
            }
        });
        cable(&mut near, &mut far, done);
    });
    assert_eq!(near.statistics().lost, 0);
    drop(near);
    let count = |filter: &str| {
        let output = std::process::Command::new("tshark")
            .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            .args(["-Y", filter, "-r"])
            .arg(&path)
            .output()
            .expect("tshark runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout.iter().filter(|&&byte| byte == b'\n').count()
    };
    let wrong = count("ip.checksum.status == 0 || tcp.checksum.status == 0");
    let (right, long) = (count("tcp.checksum.status == 1"), count("tcp.len > 1500"));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(wrong, 0);
    assert!(right > 0 && long > 0, "{right} frames, {long} long ones");
}
