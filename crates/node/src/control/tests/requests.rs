use std::io::Read;
use std::time::Instant;

use super::*;

fn refusal<T: std::fmt::Debug>(asked: Result<T, ControlError>) -> String {
    match asked.unwrap_err() {
        ControlError::Refused { refusal, .. } => refusal.why,
        other => panic!("{other}"),
    }
}

#[test]
fn a_node_says_how_it_is() {
    let served = Served::new();
    let mut node = served.connect();
    let status = node.status().unwrap();
    assert_eq!(status.node, served.fabric().resolve("web").unwrap());
    assert_eq!(status.stack.connections, 7);
    assert!(status.processes.is_empty());
    let sockets = node.sockets().unwrap();
    assert_eq!(sockets[0].local, "10.77.0.1:80".parse().unwrap());
    let counters = node.counters().unwrap();
    let retransmits = counters
        .iter()
        .find(|counter| counter.name == "tcp_retransmits")
        .unwrap();
    assert_eq!(
        (retransmits.value, retransmits.doc.as_str()),
        (5, "Segments retransmitted for any reason.")
    );
    assert!(status.cpu_time <= node.status().unwrap().cpu_time);
    served.end();
}

/// A node that was stopped for longer than a client is patient answers when it goes on.
#[test]
fn late_answers_belong_to_the_questions_they_answer() {
    let (client, node) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut connection = Connection::over(client, "web".parse().unwrap()).timeout(Duration::from_millis(1));
    for _ in 0..2 {
        assert!(matches!(
            connection.holders(1),
            Err(ControlError::TimedOut { .. })
        ));
    }
    let node = Raw(node);
    for number in [1, 2] {
        node.send_with(
            format!(r#"{{"holders":[{number}]}}"#).as_bytes(),
            &[memory(b"late")],
        );
    }
    node.send_with(br#"{"holders":[3]}"#, &[memory(b"in time")]);
    let mut connection = connection.timeout(PATIENCE);
    let held = connection.holders(1).unwrap();
    assert_eq!((held.len(), held[0].0), (1, 3));
    assert_eq!(contents(&held[0].1), "in time");
    node.send(br#""done""#);
    connection.set_placement(Placement::Engine).unwrap();
}

#[test]
fn placements_are_changed_and_refusals_told() {
    let served = Served::new();
    let mut node = served.connect();
    node.set_placement(Placement::Engine).unwrap();
    assert_eq!(served.told(), Told::Placement(Placement::Engine));
    assert_eq!(
        refusal(node.set_placement(Placement::Inline)),
        "not while it rains"
    );
    node.status().unwrap();
    served.end();
}

#[test]
fn who_attaches_gets_descriptors_and_a_number() {
    let served = Served::new();
    let mut node = served.connect();
    let attachment = node.attach().unwrap().attachment;
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    assert_eq!(attachment.process, 1);
    assert_eq!(attachment.description["shards"], 1);
    let held: Vec<_> = attachment.descriptors.iter().map(contents).collect();
    assert_eq!(held, ["region", "bell"]);
    let peer = node.peer(0, 3, 9).unwrap().unwrap();
    assert_eq!(contents(&peer[0]), "section 3.9");
    assert!(node.peer(0, 8, 1).unwrap().is_none());
    let mut holders = node.holders(5).unwrap();
    assert_eq!(holders.len(), 5);
    let (number, holder) = holders.remove(3);
    assert_eq!((number, node.identify(holder.as_fd()).unwrap()), (3, 3));
    assert!(refusal(node.identify(memory(b"region").as_fd())).contains("none"));
    let (_, inherited) = node.inherit(holders.remove(2).1).unwrap().unwrap();
    assert_eq!(contents(&inherited), "inherited");
    assert!(node.inherit(holder).unwrap().is_none());
    let mut take = |holder, address: &str| node.take_port(holder, address.parse().unwrap(), false);
    assert_eq!(take(3, "10.77.0.1:80").unwrap(), 80);
    assert_eq!(take(3, "[::]:0").unwrap(), 4242);
    let error = take(3, "10.77.0.1:9").unwrap_err();
    assert!(
        matches!(
            error,
            ControlError::System {
                source: Errno::ADDRINUSE,
                ..
            }
        ),
        "{error}"
    );
    assert!(refusal(take(4, "10.77.0.1:80")).contains("none"));
    node.release_port(3).unwrap();
    assert_eq!(node.holders(MAX_HOLDERS).unwrap().len(), usize::from(MAX_HOLDERS));
    assert!(refusal(node.holders(u16::MAX)).starts_with("at most"));
    assert!(refusal(node.attach()).contains("already"));
    let process = &node.status().unwrap().processes[0];
    assert_eq!((process.process, process.pid), (1, std::process::id()));
    assert!(!process.command.is_empty());
    drop(node);
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

#[test]
fn only_the_attached_get_descriptors_of_peers() {
    let served = Served::new();
    let mut node = served.connect();
    assert!(refusal(node.peer(0, 1, 1)).contains("attached"));
    assert!(refusal(node.holders(1)).contains("attached"));
    let address = "10.77.0.1:80".parse().unwrap();
    assert!(refusal(node.take_port(1, address, false)).contains("attached"));
    assert!(refusal(node.release_port(1)).contains("attached"));
    served.end();
}

#[test]
fn another_version_is_told_so() {
    let served = Served::new();
    for attach in [
        r#"{"attach":{"version":0,"build":"0.1.0"}}"#,
        r#"{"attach":{"version":1,"build":"0.0.1"}}"#,
    ] {
        let client = served.raw();
        client.send(attach.as_bytes());
        let Some(Answer::Refused(Refusal { why, .. })) = client.answer() else {
            panic!("it was let in");
        };
        assert!(why.contains("same version"), "{why}");
    }
    served.end();
}

/// A list of sockets that is far longer than a packet.
#[test]
fn long_answers_come_in_memory() {
    let served = Served::with(100_000, Limits::default());
    let mut node = served.connect();
    assert_eq!(node.sockets().unwrap().len(), 100_000);
    assert_eq!(node.sockets().unwrap().len(), 100_000);
    served.end();
}

#[test]
fn a_capture_ends_with_whoever_began_it() {
    let served = Served::new();
    let settings = CaptureRequest { snap_len: 96 };
    let file = || tempfile::tempfile().unwrap();
    let mut first = served.connect();
    first.start_capture(file(), settings).unwrap();
    assert_eq!(served.told(), Told::CaptureStarted(96));
    assert!(refusal(served.connect().stop_capture()).contains("only whoever"));
    assert_eq!(first.stop_capture().unwrap().frames, 9);
    assert_eq!(served.told(), Told::CaptureStopped);
    let mut second = served.connect();
    second.start_capture(file(), settings).unwrap();
    assert_eq!(served.told(), Told::CaptureStarted(96));
    drop(second);
    assert_eq!(served.told(), Told::CaptureStopped);
    served.end();
}

#[test]
fn a_capture_that_runs_is_ended_with_the_server() {
    let mut served = Served::new();
    let mut node = served.connect();
    node.start_capture(tempfile::tempfile().unwrap(), CaptureRequest { snap_len: 1 })
        .unwrap();
    assert_eq!(served.told(), Told::CaptureStarted(1));
    served.stop.take();
    assert_eq!(served.told(), Told::CaptureStopped);
}

#[test]
fn a_node_that_is_told_to_end_ends() {
    let mut served = Served::new();
    let mut other = served.connect();
    other.status().unwrap();
    let node = served.connect();
    let down = std::thread::spawn(move || node.down(PATIENCE));
    let server = served.thread.take().unwrap().join().unwrap();
    // The node is not gone before the server is.
    assert!(!down.is_finished() && !other.wait_for_end(Duration::ZERO).unwrap());
    drop(server);
    down.join().unwrap().unwrap();
    assert!(other.wait_for_end(PATIENCE).unwrap());
    assert!(matches!(other.status(), Err(ControlError::HungUp(_))));
}

#[test]
fn a_node_that_does_not_run_is_told_from_one_that_does_not_answer() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = || Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let unknown = Connection::open(&fabric(), "web").unwrap_err();
    assert!(matches!(unknown, ControlError::Unknown { .. }), "{unknown}");
    assert!(matches!(
        Connection::open(&fabric(), "../web"),
        Err(ControlError::Name(_))
    ));
    // No server accepts here.
    let _place = fabric().take("web", &NodeSettings::default(), &[]).unwrap();
    let node = Connection::open(&fabric(), "web").unwrap();
    let mut node = node.timeout(Duration::from_millis(10));
    let began = Instant::now();
    assert!(matches!(node.status(), Err(ControlError::TimedOut { .. })));
    assert!(began.elapsed() >= Duration::from_millis(10));
    // Its answer can still come.
    assert!(matches!(node.counters(), Err(ControlError::TimedOut { .. })));
}

/// Descriptors that nothing was to be done with are closed, not collected.
#[test]
fn descriptors_that_come_uncalled_for_are_closed() {
    let served = Served::new();
    let client = served.raw();
    let (mut here, there) = UnixStream::pair().unwrap();
    client.send_with(br#""status""#, &[there.into()]);
    assert!(matches!(client.answer(), Some(Answer::Status(_))));
    assert_eq!(here.read(&mut [0]).unwrap(), 0);
    served.end();
}
