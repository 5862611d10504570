//! Measures bytes per second over a TAP device between Toehold and Linux's TCP, in
//! both directions. Also measures two Linux ends whose devices are joined here.
//! Candidates take turns.
//!
//! ```sh
//! cargo run --release -p toehold-sim --example tap_throughput -- --seconds 2 --rounds 5
//! ```
//!
//! Needs root, or `unshare --map-root-user --net`.

#[path = "../tests/tap/harness.rs"]
#[allow(dead_code)] // The tests need more of it.
mod harness;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant as Clock};

use harness::{Cable, Machine};
use toehold_link::interface::Namespace;
use toehold_link::tap::{Offloads, Tap, TapSettings};
use toehold_link::{Link, Received, Transmit, Transmitter};
use toehold_stack::{ConnectionId, ReceiveFlags, SendFlags};

const CHUNK: usize = 128 << 10;

#[derive(Debug, Clone, Copy)]
enum Candidate {
    OursToLinux,
    LinuxToOurs,
    LinuxToLinux,
}

const CANDIDATES: [Candidate; 3] = [
    Candidate::OursToLinux,
    Candidate::LinuxToOurs,
    Candidate::LinuxToLinux,
];

fn main() {
    let argument = |name: &str, default: u64| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
        arguments
            .next()
            .map_or(default, |value| value.parse().expect("a number"))
    };
    let span = Duration::from_secs(argument("--seconds", 2));
    let rounds = argument("--rounds", 5);
    println!(
        "Gb/s, median and range of {rounds} rounds of {} s",
        span.as_secs()
    );
    for (name, settings) in devices() {
        let mut rates = CANDIDATES.map(|_| Vec::new());
        for _ in 0..rounds {
            for (candidate, rates) in CANDIDATES.into_iter().zip(&mut rates) {
                rates.push(measure(candidate, &settings, span));
            }
        }
        for (candidate, rates) in CANDIDATES.into_iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let (least, median, most) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
            println!("{name:<28} {candidate:<14?} {median:6.2}  ({least:.2} to {most:.2})");
        }
    }
}

fn devices() -> [(&'static str, TapSettings); 4] {
    let settings = |mtu, offloads| TapSettings {
        mtu,
        offloads,
        super_frames: offloads != Offloads::NONE,
        vnet_header: offloads != Offloads::NONE,
        ..TapSettings::new("toe0", Cable::ADDRESS)
    };
    [
        ("MTU 1500, super-frames", settings(1500, Offloads::ALL)),
        ("MTU 1500, no offloads", settings(1500, Offloads::NONE)),
        ("MTU 9000, super-frames", settings(9000, Offloads::ALL)),
        ("MTU 9000, no offloads", settings(9000, Offloads::NONE)),
    ]
}

fn measure(candidate: Candidate, settings: &TapSettings, span: Duration) -> f64 {
    let bytes = match candidate {
        Candidate::OursToLinux => ours_to_linux(settings, span),
        Candidate::LinuxToOurs => linux_to_ours(settings, span),
        Candidate::LinuxToLinux => linux_to_linux(settings, span),
    };
    bytes as f64 * 8.0 / span.as_secs_f64() / 1e9
}

/// Selects Reno. The kernel's default depends on the host.
fn use_reno(namespace: &Namespace) {
    let set = || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
    namespace
        .run(set)
        .expect("the namespace is there")
        .expect("reno is there");
}

/// Reads until the connection ends.
fn drain(mut stream: TcpStream, bytes: &AtomicU64) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(len @ 1..) = stream.read(&mut chunk) {
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Writes until `done` is set or the connection ends.
fn fill(mut stream: TcpStream, done: &AtomicBool) {
    let chunk = vec![7; CHUNK];
    while !done.load(Ordering::Relaxed) && stream.write_all(&chunk).is_ok() {}
}

fn ours_to_linux(settings: &TapSettings, span: Duration) -> u64 {
    let cable = Cable::new(settings);
    use_reno(&cable.namespace);
    let (namespace, mut machine) = (cable.namespace, cable.machine);
    let listener = listen(&namespace, Cable::THEIRS);
    let to = listener.local_addr().expect("it has an address");
    let stack_settings = machine.stack.default_settings();
    let now = machine.now();
    let connection = machine
        .stack
        .connect(now, None, to, &stack_settings)
        .expect("a connection");
    let bytes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| drain(listener.accept().expect("our stack connects").0, &bytes));
        let chunk = vec![7; CHUNK];
        let send = |machine: &mut Machine, connection: ConnectionId| {
            while machine
                .stack
                .send(connection, &chunk, SendFlags::default())
                .is_ok_and(|len| len > 0)
            {}
        };
        while bytes.load(Ordering::Relaxed) == 0 {
            machine.round();
            send(&mut machine, connection);
        }
        let (before, end) = (bytes.load(Ordering::Relaxed), Clock::now() + span);
        while Clock::now() < end {
            machine.round();
            send(&mut machine, connection);
        }
        let carried = bytes.load(Ordering::Relaxed) - before;
        machine.stack.abort(connection).expect("it is there");
        machine.round();
        carried
    })
}

fn linux_to_ours(settings: &TapSettings, span: Duration) -> u64 {
    let cable = Cable::new(settings);
    use_reno(&cable.namespace);
    let (namespace, mut machine) = (cable.namespace, cable.machine);
    let stack_settings = machine.stack.default_settings();
    let at: SocketAddr = (Cable::OURS, 80).into();
    let listener = machine
        .stack
        .listen(machine.now(), at, 8, &stack_settings)
        .expect("a listener");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connected = namespace
                .run(|| TcpStream::connect(at))
                .expect("the namespace is there");
            fill(connected.expect("the kernel connects"), &done);
        });
        let connection = loop {
            machine.round();
            if let Ok(connection) = machine.stack.accept(listener) {
                break connection;
            }
        };
        let mut chunk = vec![0; CHUNK];
        let mut receive = |machine: &mut Machine| {
            let mut bytes = 0;
            while let Ok(len @ 1..) = machine
                .stack
                .receive(connection, &mut chunk, ReceiveFlags::default())
            {
                bytes += len as u64;
            }
            bytes
        };
        while receive(&mut machine) == 0 {
            machine.round();
        }
        let (mut carried, end) = (0, Clock::now() + span);
        while Clock::now() < end {
            machine.round();
            carried += receive(&mut machine);
        }
        done.store(true, Ordering::Relaxed);
        machine.stack.abort(connection).expect("it is there");
        machine.round();
        carried
    })
}

fn linux_to_linux(settings: &TapSettings, span: Duration) -> u64 {
    let addresses = [IpAddr::from([10, 7, 0, 2]), IpAddr::from([10, 7, 0, 3])];
    let mut ends = addresses.map(|address| {
        let namespace = Namespace::create().expect("a network namespace");
        use_reno(&namespace);
        let (tap, mut interface) = Tap::create(settings, &namespace).expect("a TAP device");
        interface.add_address(address, 24).expect("an address");
        interface.set_up(true).expect("the interface goes up");
        (namespace, tap)
    });
    let [(from, a), (to, b)] = &mut ends;
    let (bytes, done, over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if forward(a, b) + forward(b, a) == 0 {
                    yield_now();
                }
            }
        });
        let listener = listen(to, addresses[1]);
        let at = listener.local_addr().expect("it has an address");
        let sender = from
            .run(|| TcpStream::connect(at))
            .expect("the namespace is there");
        let sender = sender.expect("the kernel connects");
        let (receiver, _) = listener.accept().expect("the kernel connects");
        let ends = [
            scope.spawn(|| fill(sender, &done)),
            scope.spawn(|| drain(receiver, &bytes)),
        ];
        while bytes.load(Ordering::Relaxed) == 0 {
            yield_now();
        }
        let before = bytes.load(Ordering::Relaxed);
        std::thread::sleep(span);
        let carried = bytes.load(Ordering::Relaxed) - before;
        done.store(true, Ordering::Relaxed);
        for end in ends {
            end.join().expect("no panic");
        }
        over.store(true, Ordering::Relaxed);
        carried
    })
}

fn forward(from: &mut Tap, to: &mut Tap) -> usize {
    from.receive(0, 64, &mut |frame: &Received<'_>| {
        let _ = to.transmit(&Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        });
    })
}

fn listen(namespace: &Namespace, at: IpAddr) -> TcpListener {
    let listening = namespace
        .run(|| TcpListener::bind((at, 0)))
        .expect("the namespace is there");
    listening.expect("the kernel listens")
}
