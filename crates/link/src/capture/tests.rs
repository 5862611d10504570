use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use toehold_shm::{Carver, Region};

use crate::Checksum;
use crate::loopback::{Loopback, LoopbackSettings};
use crate::test_frames::{PARTIAL, receive_all, send, tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A writer with bytes that the test can read afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn loopback() -> Loopback {
    Loopback::new(
        MAC,
        LoopbackSettings {
            frames: 1 << 20,
            ..LoopbackSettings::default()
        },
    )
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// Cuts a file into blocks (type, body). Asserts that both lengths are right.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let len = u32_at(file, 4) as usize;
        assert!(
            len.is_multiple_of(4) && len >= 12 && len <= file.len(),
            "block of {len} bytes"
        );
        assert_eq!(u32_at(file, len - 4) as usize, len);
        blocks.push((u32_at(file, 0), &file[8..len - 4]));
        file = &file[len..];
    }
    blocks
}

/// Options (code, value) at the end of a block's body.
fn options(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut options = Vec::new();
    while u16_at(bytes, 0) != 0 {
        let len = usize::from(u16_at(bytes, 2));
        options.push((u16_at(bytes, 0), &bytes[4..4 + len]));
        bytes = &bytes[4 + len.next_multiple_of(4)..];
    }
    assert_eq!(bytes, [0; 4]);
    options
}

struct CapturedPacket<'a> {
    timestamp_ns: u64,
    data: &'a [u8],
    original_len: usize,
    flags: u32,
    lost: u64,
}

fn packets<'a>(blocks: &[(u32, &'a [u8])]) -> Vec<CapturedPacket<'a>> {
    let packet = |&(_, body): &(u32, &'a [u8])| {
        assert_eq!(u32_at(body, 0), 0, "interface");
        let len = u32_at(body, 12) as usize;
        let options = options(&body[20 + len.next_multiple_of(4)..]);
        let of = |code| {
            options
                .iter()
                .find(|option| option.0 == code)
                .map(|option| option.1)
        };
        CapturedPacket {
            timestamp_ns: u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8)),
            data: &body[20..20 + len],
            original_len: u32_at(body, 16) as usize,
            flags: of(2).map_or(0, |value| u32_at(value, 0)),
            lost: of(4).map_or(0, |value| u64::from_ne_bytes(value.try_into().unwrap())),
        }
    };
    blocks.iter().filter(|block| block.0 == 6).map(packet).collect()
}

#[test]
fn file_follows_format() {
    let out = Shared::default();
    let settings = CaptureSettings {
        clock: CaptureClock::Driver,
        snap_len: 1000,
        ..CaptureSettings::default()
    };
    let mut link = Capture::to_writer(loopback(), Box::new(out.clone()), &settings).unwrap();
    receive_all(&mut link, 5_000_000_007);
    send(&mut link, &tcp_ipv4(b"hello"), PARTIAL).unwrap();
    send(&mut link, &udp_ipv4(&[1; 1400]), PARTIAL).unwrap();
    link.flush();
    assert_eq!(receive_all(&mut link, 5_000_000_123).len(), 2);
    assert_eq!(
        link.statistics(),
        CaptureStatistics {
            frames: 4,
            lost: 0,
            write_errors: 0
        }
    );
    drop(link);

    let file = out.0.lock().unwrap();
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6, 5]);

    let section = blocks[0].1;
    assert_eq!(
        (u32_at(section, 0), u16_at(section, 4), u16_at(section, 6)),
        (0x1a2b_3c4d, 1, 0)
    );
    let interface = blocks[1].1;
    assert_eq!((u16_at(interface, 0), u32_at(interface, 4)), (1, 1000));
    assert_eq!(
        options(&interface[8..]),
        [(2, &b"toe0"[..]), (6, &MAC), (9, &[9])]
    );
    let statistics = blocks[6].1;
    assert_eq!(
        options(&statistics[12..]),
        [(4, &4u64.to_ne_bytes()[..]), (7, &0u64.to_ne_bytes())]
    );

    let packets = packets(&blocks);
    assert_eq!(
        packets.iter().map(|p| p.timestamp_ns).collect::<Vec<_>>(),
        [5_000_000_007, 5_000_000_007, 5_000_000_123, 5_000_000_123]
    );
    // Outbound unicast, outbound broadcast, inbound unicast, inbound broadcast.
    assert_eq!(
        packets.iter().map(|p| p.flags).collect::<Vec<_>>(),
        [0b110, 0b1110, 0b101, 0b1101]
    );
    assert_eq!((packets[0].data.len(), packets[0].original_len), (59, 59));
    assert_eq!((packets[1].data.len(), packets[1].original_len), (1000, 1442));
    // The copy is completed, but the traffic itself is unchanged.
    let mut expected = tcp_ipv4(b"hello");
    complete(&mut expected, true, &mut PARTIAL.clone());
    assert_eq!(packets[0].data, expected);
    assert_ne!(packets[0].data, tcp_ipv4(b"hello"));
}

#[test]
fn wall_clock_stamps_are_current() {
    let out = Shared::default();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut link =
        Capture::to_writer(loopback(), Box::new(out.clone()), &CaptureSettings::default()).unwrap();
    send(&mut link, &tcp_ipv4(b"now"), PARTIAL).unwrap();
    drop(link);
    let file = out.0.lock().unwrap();
    let stamp = packets(&blocks(&file))[0].timestamp_ns;
    assert!((before..before + 60_000_000_000).contains(&stamp));
}

#[test]
fn refused_frames_are_not_recorded() {
    let out = Shared::default();
    let small = Loopback::new(
        MAC,
        LoopbackSettings {
            frames: 1,
            ..LoopbackSettings::default()
        },
    );
    let mut link = Capture::to_writer(small, Box::new(out.clone()), &CaptureSettings::default()).unwrap();
    send(&mut link, &tcp_ipv4(b"one"), PARTIAL).unwrap();
    assert_eq!(
        send(&mut link, &tcp_ipv4(b"two"), PARTIAL),
        Err(TransmitError::Full)
    );
    drop(link);
    assert_eq!(packets(&blocks(&out.0.lock().unwrap())).len(), 1);
}

/// A writer that blocks in its first write until the test lets it continue.
struct Stuck(std::sync::mpsc::Receiver<()>, Shared);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stuck() -> (Sender<()>, Shared, Stuck) {
    let (go, wait) = channel();
    let out = Shared::default();
    (go, out.clone(), Stuck(wait, out))
}

#[test]
fn slow_file_loses_frames_of_capture_only() {
    let (go, out, writer) = stuck();
    let settings = CaptureSettings {
        buffer_len: 256 << 10,
        ..CaptureSettings::default()
    };
    let mut link = Capture::to_writer(loopback(), Box::new(writer), &settings).unwrap();
    for _ in 0..2000 {
        send(&mut link, &tcp_ipv4(&[1; 1400]), PARTIAL).unwrap();
    }
    let lost = link.statistics().lost;
    assert!(
        (1500..2000).contains(&lost),
        "{lost} of 2000 lost with room for about 200"
    );
    drop(go); // the writer continues
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut sent = 2000;
    let reported = || {
        packets(&blocks(&out.0.lock().unwrap()))
            .iter()
            .any(|packet| packet.lost != 0)
    };
    while !reported() {
        assert!(Instant::now() < deadline);
        send(&mut link, &tcp_ipv4(b"later"), PARTIAL).unwrap();
        link.prepare_sleep();
        sent += 1;
    }
    // This frame's block reports all frames lost before it.
    send(&mut link, &tcp_ipv4(b"last"), PARTIAL).unwrap();
    sent += 1;
    let lost = link.statistics().lost;
    drop(link);
    let file = out.0.lock().unwrap();
    let written = packets(&blocks(&file));
    assert_eq!(written.len() as u64, sent - lost);
    assert_eq!(written.iter().map(|packet| packet.lost).sum::<u64>(), lost);
}

/// Regression: the end waited for two seconds, and left later blocks out.
#[test]
fn slow_file_is_complete_at_end() {
    let (go, out, writer) = stuck();
    let mut link = Capture::to_writer(loopback(), Box::new(writer), &CaptureSettings::default()).unwrap();
    for _ in 0..500 {
        send(&mut link, &tcp_ipv4(&[1; 1400]), PARTIAL).unwrap();
    }
    assert_eq!(link.statistics().lost, 0);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2500));
        drop(go);
    });
    drop(link);
    let file = out.0.lock().unwrap();
    let blocks = blocks(&file);
    assert_eq!(packets(&blocks).len(), 500);
    assert_eq!(blocks.last().unwrap().0, 5, "statistics are the last block");
    late.join().unwrap();
}

/// A writer that takes some bytes and then fails.
struct DiskFull(usize);

impl Write for DiskFull {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 {
            Err(io::Error::other("no space"))
        } else {
            Ok(taken)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn write_errors_are_counted_and_traffic_continues() {
    let mut link = Capture::to_writer(
        loopback(),
        Box::new(DiskFull(100_000)),
        &CaptureSettings::default(),
    )
    .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while link.statistics().write_errors == 0 {
        assert!(Instant::now() < deadline);
        send(&mut link, &tcp_ipv4(&[1; 1400]), PARTIAL).unwrap();
    }
    send(&mut link, &tcp_ipv4(b"still alive"), PARTIAL).unwrap();
    link.flush();
    assert!(!receive_all(&mut link, 0).is_empty());
    assert_eq!(link.statistics().write_errors, 1);
}

/// Checks a capture with Wireshark's tshark, if it is installed.
#[test]
fn tshark_finds_no_error() {
    let path = std::env::temp_dir().join(format!("toehold-capture-{}.pcapng", std::process::id()));
    let mut link = Capture::create(loopback(), &path, &CaptureSettings::default()).unwrap();
    let super_frame = Offload {
        checksum: Checksum::Partial,
        segment_size: 1460,
    };
    send(&mut link, &tcp_ipv4(&[1; 60_000]), super_frame).unwrap();
    send(&mut link, &tcp_ipv6_vlan(&[2; 100]), PARTIAL).unwrap();
    send(&mut link, &udp_ipv4(b"odd"), PARTIAL).unwrap();
    drop(link);
    let tshark = |extra: &[&str]| {
        let check = [
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
        ];
        std::process::Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(check)
            .args(extra)
            .output()
    };
    let (all, bad) = match (
        tshark(&[]),
        tshark(&[
            "-Y",
            "_ws.malformed || _ws.expert.severity >= 6291456 || tcp.checksum.status == 0 || udp.checksum.status == 0 || ip.checksum.status == 0",
        ]),
    ) {
        (Ok(all), Ok(bad)) => (all, bad),
        _ => {
            eprintln!("tshark is not installed: not checked");
            return;
        }
    };
    std::fs::remove_file(&path).unwrap();
    assert!(
        all.status.success() && bad.status.success(),
        "{}",
        String::from_utf8_lossy(&all.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&all.stdout).lines().count(), 3);
    assert_eq!(String::from_utf8_lossy(&bad.stdout), "");
}

/// Creates a tap in memory of its own, and a file that it plays into.
fn tap(snap_len: u32) -> (Tap, Player, CaptureFile, Shared) {
    let region = Region::private(Tap::bytes_needed()).unwrap();
    let tap = Tap::create(&mut Carver::new(region).unwrap()).unwrap();
    let out = Shared::default();
    let file = CaptureFile::new(Box::new(out.clone()), snap_len, "web", MAC);
    let mut player = tap.player();
    player.start(snap_len);
    (tap, player, file, out)
}

fn sent<'a>(headers: &'a [u8], payload: &'a Gather<'a>, offload: Offload) -> Transmit<'a> {
    Transmit {
        headers,
        payload,
        offload,
    }
}

/// Threads of two processes record to one tape, and one of the threads stops in the middle.
#[test]
fn shared_tap_loses_frames_while_stopped_thread_records() {
    let region = Region::private(SharedTap::bytes_needed()).unwrap();
    let tap = SharedTap::create(&mut Carver::new(region).unwrap()).unwrap();
    let frame = tcp_ipv4(&[7; 50]);
    let record = |thread| tap.record(thread, 30, true, (&frame[..54], &frame[54..]));
    assert!(!tap.is_open());
    let mut player = tap.player();
    player.start(1000);
    assert!(tap.is_open());
    let out = Shared::default();
    let mut file = CaptureFile::new(Box::new(out.clone()), 1000, "web", MAC);
    record(1);
    tap.stop_within(2);
    record(1);
    tap.forget(3);
    record(1);
    tap.forget(2);
    record(1);
    player.stop();
    player.play(&mut file, 0);
    player.settle(&mut file);
    let CaptureStatistics { frames, lost, .. } = file.statistics();
    assert_eq!((frames, lost), (4, 2));
}

#[test]
fn tap_writes_frames_as_capture_does() {
    let (mut tap, mut player, mut file, out) = tap(1000);
    let frame = tcp_ipv4(&[7; 50]);
    tap.record_sent(
        30,
        &sent(&frame[..54], &Gather::from_slice(&frame[54..]), PARTIAL),
    );
    // The other processor's clock is behind.
    let inbound = Received {
        private: &frame[..60],
        rest: Gather::from_slice(&frame[60..]),
        offload: PARTIAL,
    };
    tap.record_received(20, &inbound);
    player.stop();
    assert!(!tap.is_open());
    player.play(&mut file, 1_000_000_000_000);
    player.settle(&mut file);
    file.end(1_000_000_000_040);

    let file = out.0.lock().unwrap();
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 5]);
    let packets = packets(&blocks);
    let mut expected = frame.clone();
    complete(&mut expected, true, &mut PARTIAL.clone());
    for (packet, flags) in packets.iter().zip([0b110, 0b101]) {
        assert_eq!((packet.timestamp_ns, packet.flags), (1_000_000_000_030, flags));
        assert_eq!((packet.data, packet.original_len), (&expected[..], frame.len()));
    }
}

#[test]
fn tapped_super_frame_is_truncated_with_original_length() {
    let (mut tap, mut player, mut file, out) = tap(64);
    let mut frame = tcp_ipv4(&[7; 9000]);
    frame[16..18].fill(0);
    let offload = Offload {
        segment_size: 1460,
        ..PARTIAL
    };
    tap.record_sent(0, &sent(&frame[..54], &Gather::from_slice(&frame[54..]), offload));
    player.play(&mut file, 0);
    file.end(0);
    let file = out.0.lock().unwrap();
    let blocks = blocks(&file);
    let packets = packets(&blocks);
    assert_eq!((packets[0].data.len(), packets[0].original_len), (64, 9054));
    assert_eq!(packets[0].data[16..18], 9040u16.to_be_bytes());
}

#[test]
fn frames_beyond_tape_are_counted() {
    let (mut tap, mut player, mut file, out) = tap(262_144);
    let frame = tcp_ipv4(&[7; 65_000]);
    for _ in 0..100 {
        tap.record_sent(0, &sent(&frame[..54], &Gather::from_slice(&frame[54..]), PARTIAL));
    }
    player.play(&mut file, 0);
    assert_eq!(file.statistics().frames, 64);
    tap.record_sent(0, &sent(&frame[..54], &Gather::from_slice(&frame[54..]), PARTIAL));
    player.play(&mut file, 0);
    for _ in 0..100 {
        tap.record_sent(0, &sent(&frame[..54], &Gather::from_slice(&frame[54..]), PARTIAL));
    }
    player.stop();
    player.play(&mut file, 0);
    player.settle(&mut file);
    file.end(0);
    let statistics = file.statistics();
    assert_eq!((statistics.frames, statistics.write_errors), (201, 0));
    let file = out.0.lock().unwrap();
    let blocks = blocks(&file);
    let packets = packets(&blocks).len() as u64;
    assert_eq!(packets, 201 - statistics.lost);
}

/// A disk that is full after the given number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn failed_file_of_tap_is_not_written_again() {
    let (mut tap, mut player, _, _) = tap(262_144);
    let mut file = CaptureFile::new(Box::new(Full(1000)), 262_144, "web", MAC);
    for round in 0..3 {
        tap.record_sent(round, &sent(&tcp_ipv4(&[7; 500]), &Gather::EMPTY, PARTIAL));
        player.play(&mut file, 0);
    }
    file.end(0);
    let expected = CaptureStatistics {
        frames: 3,
        lost: 2,
        write_errors: 1,
    };
    assert_eq!(file.statistics(), expected);
}
