//! The kernel's layout of a real ping-pong over loopback.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toehold_trace::clock_source::ClockSource;
use toehold_trace::kernel::tracefs::{TraceInstance, Tracefs};
use toehold_trace::kernel::{
    KernelAccount, KernelBlockUse, KernelPingPong, KernelPlan, KernelStage, measure_kernel,
};

const BYTES: usize = 64;

/// Tells the child of a test to hold an instance.
const HOLD: &str = "TOEHOLD_TRACE_TEST_HOLDS";

/// Two threads with a connection over loopback.
struct Loopback {
    threads: [u32; 2],
    begin: Sender<u32>,
    done: Receiver<io::Result<Vec<u64>>>,
    _both: [JoinHandle<io::Result<()>>; 2],
}

impl Loopback {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (tell, told) = channel();
        let (begin, beginning) = channel();
        let (finish, done) = channel();
        let telling = tell.clone();
        let near = thread::spawn(move || {
            pin(0);
            let _ = telling.send((0, own_thread()));
            for count in beginning {
                let _ = finish.send(exchange(&near, count));
            }
            Ok(())
        });
        let far = thread::spawn(move || {
            pin(1);
            let _ = tell.send((1, own_thread()));
            answer(&far)
        });
        let mut threads = [0; 2];
        for (side, thread) in told.iter().take(2) {
            threads[side] = thread;
        }
        Ok(Self {
            threads,
            begin,
            done,
            _both: [near, far],
        })
    }
}

impl KernelPingPong for Loopback {
    fn threads(&self) -> [u32; 2] {
        self.threads
    }

    fn message_bytes(&self) -> u32 {
        BYTES as u32
    }

    fn round_trips(&mut self, count: u32) -> io::Result<Vec<u64>> {
        let broken = || io::ErrorKind::BrokenPipe;
        self.begin.send(count).map_err(|_| broken())?;
        self.done.recv().map_err(|_| broken())?
    }
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Keeps the thread on one of the first two processors, if there are two.
fn pin(cpu: usize) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &cpus);
}

fn exchange(mut stream: &TcpStream, count: u32) -> io::Result<Vec<u64>> {
    let mut buffer = [7; BYTES];
    let mut times = Vec::with_capacity(count as usize);
    let mut began = Instant::now();
    for number in 0..=count {
        let now = Instant::now();
        if number > 0 {
            times.push((now - began).as_nanos() as u64);
        }
        began = now;
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
    }
    Ok(times)
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; BYTES];
    loop {
        match stream.read_exact(&mut buffer) {
            Ok(()) => stream.write_all(&buffer)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Rounds and round trips of a block. Two variables ask for a longer measurement than the test needs.
fn plan() -> KernelPlan {
    let asked = |name: &str, usual: u32| {
        let asked = std::env::var(format!("TOEHOLD_TRACE_TEST_{name}")).ok();
        asked.and_then(|number| number.parse().ok()).unwrap_or(usual)
    };
    KernelPlan {
        rounds: asked("ROUNDS", 2),
        trips: asked("TRIPS", 200),
    }
}

#[test]
#[ignore = "needs root"]
fn ping_pong_over_loopback_is_followed_through_the_kernel() {
    let tracefs = Tracefs::private().unwrap();
    let clock = ClockSource::of_this_machine();
    let mut work = Loopback::new().unwrap();
    // Another program may keep the threads from their processors: a few measurements are enough.
    let (found, account) = (0..5)
        .find_map(|_| {
            let found = measure_kernel(&tracefs, clock, plan(), &mut work).unwrap();
            let account = KernelAccount::of(&found.blocks, found.ns_per_tick).unwrap();
            eprintln!("{account:#?}\n{:?}: {}", account.verdict(), account.verdict());
            assert_eq!(account.malformed_lines, 0);
            (account.lost_events == 0 && account.unmatched < 0.5).then_some((found, account))
        })
        .expect("five times events are lost, or most messages have too few");
    let own = format!("toehold-{}-", std::process::id());
    let left = std::fs::read_dir(tracefs.instances()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
    assert_eq!(left.count(), 0, "the instances are removed");

    let stages: f64 = account.stages.iter().map(|stage| stage.traced_ns).sum();
    assert!((stages / account.traced_ns - 1.0).abs() < 1e-9);
    let time = |stage: KernelStage| account.stages[stage.index()].traced_ns;
    for stage in [
        KernelStage::Send,
        KernelStage::Tcp,
        KernelStage::CopyOut,
        KernelStage::Program,
    ] {
        assert!(time(stage) > 0.0, "{stage}");
    }
    let ticks: u64 = found.blocks.iter().map(|block| block.messages.len() as u64).sum();
    assert!(ticks > 0);
    for block in &found.blocks {
        assert_eq!(block.round_trips_ns.len(), plan().trips as usize);
        assert_eq!(block.block_use, KernelBlockUse::of(block.block));
        // The clock of the trace, with its measured rate, and the program's clock tell one time.
        for message in &block.messages {
            let ns = message.total_ticks() as f64 * found.ns_per_tick;
            let all: u64 = block.round_trips_ns.iter().sum();
            assert!(ns < 2.0 * all as f64 + 1e9, "{ns} of {all}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn instance_of_a_killed_owner_is_removed() {
    let tracefs = Tracefs::private().unwrap();
    if std::env::var_os(HOLD).is_some() {
        let instance = TraceInstance::new(&tracefs, ClockSource::of_this_machine()).unwrap();
        println!("holds {}", instance.name());
        // The parent kills this process.
        loop {
            thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([
        "--ignored",
        "--nocapture",
        "--exact",
        "instance_of_a_killed_owner_is_removed",
    ]);
    let mut child = child.env(HOLD, "1").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let name = lines.map_while(Result::ok).find_map(|line| {
        let (_, name) = line.split_once("holds ")?;
        Some(name.to_owned())
    });
    let place = tracefs.instances().join(name.unwrap());
    assert!(place.is_dir());
    assert!(
        std::fs::remove_dir(&place).is_err(),
        "the kernel protects a living owner's"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while place.exists() {
        assert!(
            Instant::now() < deadline,
            "the guard does not remove {}",
            place.display()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Regression: opening a file of an instance failed if another process had just removed it.
#[test]
#[ignore = "needs root"]
fn instance_taken_for_a_leftover_is_made_again() {
    let tracefs = Tracefs::private().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    TraceInstance::new(&tracefs, ClockSource::of_this_machine()).unwrap();
                }
            });
        }
    });
}

#[test]
fn mounted_tracefs_is_found_or_the_reason_is_told() {
    if let Err(error) = Tracefs::mounted() {
        let reason = error.to_string();
        assert!(
            reason.contains("not mounted") || reason.contains("not permitted"),
            "{reason}"
        );
    }
}
