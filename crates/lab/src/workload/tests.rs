use super::reading::read_whole;
use super::sides::{BULK_WRITE, WAKE_UP_PAUSE};
use super::*;
use crate::samples::Side;
use crate::testbed::{Context, Testbed, TestbedError};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

const PACE: Pace = Pace {
    warm_up: Duration::from_millis(1),
    span: Duration::from_millis(5),
    overlap: Duration::ZERO,
};

/// Socket pairs between two threads.
enum Pairs {
    Server(Receiver<UnixStream>),
    Client(Sender<UnixStream>),
}

impl Testbed for Pairs {
    const NAME: &'static str = "pairs";
    const ABOUT: &'static str = "socket pairs";
    type Listener = ();
    type Connection = UnixStream;

    fn enter(_: &Context) -> Result<Self, TestbedError> {
        Err(TestbedError::Unavailable("made by the test".into()))
    }

    fn listen(&mut self, _: &Workload) -> io::Result<((), String)> {
        Ok(((), String::new()))
    }

    fn accept(&mut self, (): &mut ()) -> io::Result<UnixStream> {
        match self {
            Self::Server(accepted) => accepted.recv().map_err(io::Error::other),
            Self::Client(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn connect(&mut self, _: &str, _: &Workload) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        match self {
            Self::Client(accepted) => accepted.send(theirs).map_err(io::Error::other)?,
            Self::Server(_) => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(ours)
    }

    /// In this test, all bytes count as acknowledged at once.
    fn unacknowledged(&mut self, _: &UnixStream) -> io::Result<usize> {
        Ok(0)
    }
}

/// The counts of the client and of the server.
fn run(workload: Workload) -> (Side, Side) {
    let (sender, receiver) = channel();
    let server = std::thread::spawn(move || {
        workload
            .serve(&mut Pairs::Server(receiver), &mut (), &PACE)
            .unwrap()
    });
    let client = workload.drive(&mut Pairs::Client(sender), "", &PACE).unwrap();
    (client, server.join().unwrap())
}

#[test]
fn both_sides_of_a_ping_pong_count_the_same_bytes() {
    for text in ["1", "7", "64", "1M"] {
        let (client, server) = run(Workload::PingPong {
            size: text.parse().unwrap(),
        });
        assert_eq!(client.total_bytes, server.total_bytes, "{text}");
        let durations = client.durations.unwrap();
        assert_eq!(2 * durations.total(), client.messages);
        assert!(server.durations.is_none());
        assert!(client.total_bytes > client.bytes, "the warm-up does not count");
    }
}

#[test]
fn wake_up_excludes_pauses() {
    let (client, server) = run(Workload::WakeUp);
    assert_eq!(client.total_bytes, server.total_bytes);
    let durations = client.durations.unwrap();
    assert_eq!(2 * durations.total(), client.messages);
    // Both fit into the span, one beside the other.
    let fastest_ns = durations.quantile_ns(0.0).unwrap();
    let pauses_ns = (durations.total() - 1) * WAKE_UP_PAUSE.as_nanos() as u64;
    assert!(durations.total() * fastest_ns + pauses_ns <= client.span_ns);
}

#[test]
fn both_sides_of_a_stream_count_the_same_bytes() {
    for workload in [
        Workload::Stream {
            size: "1".parse().unwrap(),
        },
        Workload::Bulk,
    ] {
        let (client, server) = run(workload);
        assert_eq!(client.total_bytes, server.total_bytes);
        for side in [&client, &server] {
            // All of them if the side had no processor time.
            assert!(side.bytes > 0 && side.bytes <= side.total_bytes);
            assert!(side.span_ns > 0);
        }
        // The receiver's span begins when it gets processor time.
        assert!(client.span_ns >= 5_000_000);
    }
}

/// Regression: the receiver of a long path was still counting when the sender was done. It counted
/// to the end of the stream, which arrived earlier without retransmissions.
#[test]
fn stream_over_long_path_continues_while_receiver_counts() {
    const BYTES: usize = 16 * BULK_WRITE;
    let (sender, receiver) = channel::<UnixStream>();
    let server = std::thread::spawn(move || {
        let mut stream = receiver.recv().unwrap();
        let mut buffer = vec![0; BULK_WRITE];
        let (mut total, mut ended) = (0, false);
        while total < BYTES && !ended {
            // So slow that the window of both sides would end long before.
            std::thread::sleep(PACE.span);
            let bytes = stream.read(&mut buffer).unwrap();
            total += bytes;
            ended = bytes == 0;
        }
        ended
    });
    let faults = Faults {
        delay_ms: u16::MAX,
        ..Faults::default()
    };
    let broken = Workload::Impaired { faults }.drive(&mut Pairs::Client(sender), "", &PACE);
    assert!(!server.join().unwrap(), "it ended before the receiver");
    assert!(broken.is_err());
}

#[test]
fn connections_are_counted_and_timed() {
    let (client, server) = run(Workload::Connect);
    assert_eq!(client.durations.unwrap().total(), client.messages);
    assert!(client.messages > 0 && server.messages > 0);
    assert!(client.span_ns >= 5_000_000);
}

#[test]
fn every_message_to_computing_program_is_timed() {
    let (client, server) = run(Workload::Acknowledgement { times: 4 });
    assert_eq!(client.total_bytes, server.total_bytes);
    assert_eq!(client.durations.unwrap().total(), 4);
    // It computes before each counted message, and at the end.
    assert!(server.span_ns >= 5 * 10_000_000);
}

#[test]
fn idle_connections_carry_no_messages() {
    let (client, server) = run(Workload::Idle { pairs: 1, span_ms: 5 });
    for side in [client, server] {
        assert_eq!((side.messages, side.total_bytes), (0, 0));
        assert!(side.span_ns >= 5_000_000);
    }
}

#[test]
fn a_loop_computes_beside_a_stream() {
    let (client, server) = run(Workload::Availability {
        size: "64K".parse().unwrap(),
    });
    assert_eq!(client.total_bytes, server.total_bytes);
    let computed = server.computed.unwrap();
    assert!(computed.alone > 0 && computed.beside > 0, "{computed:?}");
    assert!(computed.beside_ns >= server.span_ns && computed.availability() > 0.0);
    assert!(client.computed.is_none());
}

#[test]
fn every_window_without_a_change_has_its_pause() {
    let (client, server) = run(Workload::Switching {
        times: 20,
        still: true,
    });
    assert_eq!(client.total_bytes, server.total_bytes);
    let windows = client.durations.unwrap().total();
    assert!((1..=20).contains(&windows), "{windows}");
}

/// The counts of several clients together, and of their server.
fn run_several(workload: Workload) -> (Side, Side) {
    let (sender, receiver) = channel();
    let server = std::thread::spawn(move || {
        workload
            .serve(&mut Pairs::Server(receiver), &mut (), &PACE)
            .unwrap()
    });
    let client = || {
        let sender = sender.clone();
        std::thread::spawn(move || workload.drive(&mut Pairs::Client(sender), "", &PACE).unwrap())
    };
    let clients: Vec<_> = (0..workload.clients()).map(|_| client()).collect();
    let clients = clients.into_iter().map(|client| client.join().unwrap());
    (Side::together(clients), server.join().unwrap())
}

#[test]
fn several_clients_and_their_server_count_the_same_bytes() {
    let size = "1K".parse().unwrap();
    let clients = 3;
    for workload in [
        Workload::HotSpot { clients, size },
        Workload::FanIn { clients, size },
        Workload::FanOut { clients, size },
        Workload::Incast { clients, size },
        Workload::MultiStream { streams: 3, size },
        Workload::Bidirectional { size },
    ] {
        let (clients, server) = run_several(workload);
        assert_eq!(clients.total_bytes, server.total_bytes, "{workload:?}");
        let metrics = workload.metrics(&clients, &server);
        assert!(
            metrics[0].main && metrics[0].value > 0.0,
            "{workload:?}: {metrics:?}"
        );
    }
}

#[test]
fn server_answers_all_sizes_on_kept_and_short_connections() {
    for workload in [
        Workload::Mixed {
            size: "64K".parse().unwrap(),
        },
        Workload::Churn {
            size: "64".parse().unwrap(),
        },
        Workload::OpenLoop {
            rate: 5000,
            size: "64".parse().unwrap(),
        },
    ] {
        let (client, server) = run(workload);
        assert_eq!(client.total_bytes, server.total_bytes, "{workload:?}");
        assert!(client.durations.unwrap().total() > 0, "{workload:?}");
    }
}

/// A stack that stops for a while delays all requests that are due meanwhile.
#[test]
fn waiting_requests_are_timed_from_when_they_are_due() {
    const STOP: Duration = Duration::from_millis(20);
    let (sender, receiver) = channel::<UnixStream>();
    let server = std::thread::spawn(move || {
        let mut stream = receiver.recv().unwrap();
        let mut message = [0; 64];
        let mut answered = 0;
        while read_whole(&mut stream, &mut message).unwrap() {
            if answered == 5 {
                std::thread::sleep(STOP);
            }
            answered += 1;
            std::io::Write::write_all(&mut stream, &message).unwrap();
        }
    });
    let workload = Workload::OpenLoop {
        rate: 1000,
        size: "64".parse().unwrap(),
    };
    let pace = Pace {
        warm_up: Duration::ZERO,
        span: 4 * STOP,
        overlap: Duration::ZERO,
    };
    let client = workload.drive(&mut Pairs::Client(sender), "", &pace).unwrap();
    server.join().unwrap();
    let late = client
        .durations
        .unwrap()
        .0
        .into_iter()
        .filter(|(ns, _)| *ns > 1_000_000);
    let late: u64 = late.map(|(_, count)| count).sum();
    // A closed loop would have one.
    assert!(late > 3, "{late}");
}

#[test]
fn testbed_without_placements_refuses_change() {
    let (ours, _theirs) = channel();
    let workload = Workload::Switching {
        times: 1,
        still: false,
    };
    let error = workload.drive(&mut Pairs::Client(ours), "", &PACE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn wrong_answer_is_an_error() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let liar = std::thread::spawn(move || {
        use std::io::Write;
        let mut message = [0; 64];
        while read_whole(&mut theirs, &mut message).unwrap_or(false) {
            message[0] ^= 1;
            if theirs.write_all(&message).is_err() {
                break;
            }
        }
    });
    let error = ping_pong::drive(ours, 64, Duration::ZERO, &PACE).unwrap_err();
    assert!(error.to_string().contains("not the message"), "{error}");
    liar.join().unwrap();
}

#[test]
fn connection_ending_within_message_is_an_error() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut theirs, &[0; 63]).unwrap();
    drop(theirs);
    let error = ping_pong::serve(ours, 64, &PACE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn names_of_metrics_are_stable_and_distinct() {
    let size = "1K".parse().unwrap();
    let names = |workload: Workload| Cell::from(workload).metric_names();
    assert_eq!(
        names(Workload::PingPong { size })[..5],
        [
            "latency_1K",
            "latency_p99_1K",
            "latency_p999_1K",
            "cpu_client_latency_1K",
            "cpu_server_latency_1K"
        ]
    );
    assert_eq!(
        names(Workload::Stream { size })[..5],
        [
            "stream_1K",
            "cpu_client_stream_1K",
            "cpu_server_stream_1K",
            "cpu_messages_client_stream_1K",
            "cpu_messages_server_stream_1K"
        ]
    );
    assert_eq!(names(Workload::Bulk)[0], "stream");
    assert_eq!(names(Workload::Bulk)[5], "share_client_stream");
    assert_eq!(
        names(Workload::Connect)[..5],
        [
            "connect",
            "connect_p50",
            "connect_p99",
            "cpu_client_connect",
            "cpu_server_connect"
        ]
    );
    assert_eq!(
        names(Workload::Acknowledgement { times: 1 }),
        ["ack", "ack_p99", "ack_max"]
    );
    let idle = |pairs| names(Workload::Idle { pairs, span_ms: 1 });
    assert_eq!(idle(1), ["idle", "waiting_idle", "away_idle"]);
    assert_eq!(idle(8), ["idle_16", "waiting_idle_16", "away_idle_16"]);
    assert_eq!(
        names(Workload::Crowd { pairs: 8, size })[..2],
        ["pingpong_16", "pingpong_p50_16"]
    );
    assert_eq!(
        names(Workload::Availability { size }),
        [
            "availability_1K",
            "received_availability_1K",
            "core_availability_1K"
        ]
    );
    let pauses = |still| names(Workload::Switching { times: 9, still });
    assert_eq!(pauses(false), ["pause", "pause_p50", "pause_p99"]);
    assert_eq!(
        pauses(true),
        ["pause_still", "pause_p50_still", "pause_p99_still"]
    );
    let bulk = Workload::Stream {
        size: "128K".parse().unwrap(),
    };
    assert_ne!(
        names(bulk),
        names(Workload::Bulk),
        "the bulk stream has names of its own"
    );
}
