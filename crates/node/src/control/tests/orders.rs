//! Clients that ask, read and leave in any order: whatever they do, each one's
//! place in the node is given up exactly once.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const CLIENTS: usize = 4;

#[derive(Debug, Clone)]
enum Act {
    /// Leaves, if it is there, and comes (again).
    Connect,
    Leave,
    Say(String),
    /// Takes an answer, if there is one.
    Read,
}

fn act() -> impl Strategy<Value = Act> {
    let said = [
        &attach_request(),
        r#"{"attach":{"version":0,"build":""}}"#,
        r#"{"peer":{"shard":0,"slot":1,"generation":2}}"#,
        r#"{"holders":{"count":40}}"#,
        r#"{"take_port":{"holder":1,"address":"10.77.0.1:80","only_ipv6":false}}"#,
        r#"{"release_port":{"holder":1}}"#,
        r#""entrust""#,
        r#""inherit""#,
        r#"{"start_capture":{"settings":{"snap_len":64}}}"#,
        r#""stop_capture""#,
        r#""sockets""#,
        r#""status""#,
        "nonsense",
    ]
    .map(str::to_owned);
    prop_oneof![
        2 => Just(Act::Connect),
        1 => Just(Act::Leave),
        6 => prop::sample::select(said.to_vec()).prop_map(Act::Say),
        3 => Just(Act::Read),
    ]
}

fn perform(served: &Served, client: &mut Option<Raw>, act: &Act) {
    let connected = match (act, client.as_ref()) {
        (Act::Connect, _) => {
            *client = Some(served.raw());
            return;
        }
        (Act::Leave, _) => {
            *client = None;
            return;
        }
        (_, None) => return,
        (_, Some(connected)) => connected,
    };
    let socket = connected.0.as_fd();
    match act {
        // The server may have hung up, or may not keep up.
        Act::Say(said) => {
            let takes_one = ["start_capture", "entrust"]
                .iter()
                .any(|word| said.contains(word));
            let file = takes_one.then(|| memory(b"holder 1"));
            let files: Vec<_> = file.into_iter().collect();
            let _ = packet::send(socket, said.as_bytes(), &files, SendFlags::DONTWAIT);
        }
        _ => drop(packet::receive(
            socket,
            &mut vec![0; MAX_PACKET],
            RecvFlags::DONTWAIT,
        )),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_process_that_attaches_is_detached_once(
        acts in prop::collection::vec((0..CLIENTS, act()), 0..60),
    ) {
        let served = Served::with(50, Limits::default());
        let mut clients: [Option<Raw>; CLIENTS] = std::array::from_fn(|_| None);
        for (client, act) in &acts {
            perform(&served, &mut clients[*client], act);
        }
        drop(clients);
        let (server, told) = served.finish();
        let mut attached = 0;
        // Those that the server had not yet seen leave are still in the node.
        let mut known: Vec<u16> = server.sessions.values().filter_map(|session| Some(session.process?.0)).collect();
        let mut captures = 0;
        for told in told {
            match told {
                Told::Attached(_) => attached += 1,
                Told::Detached(process) => known.push(process),
                Told::CaptureStarted(_) => captures += 1,
                Told::CaptureStopped => captures -= 1,
                Told::Placement(_) | Told::BegunAnew => {}
            }
        }
        let once: HashSet<_> = known.iter().collect();
        prop_assert_eq!((known.len(), once.len()), (attached, attached));
        prop_assert_eq!(captures, 0);
    }
}
