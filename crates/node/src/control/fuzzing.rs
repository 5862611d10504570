//! Entries for the fuzz targets: how either side of the control protocol takes whatever the other
//! one sends.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use super::message::{Answer, MAX_PACKET};
use super::packet::{self, Packet};
use super::{
    Attachment, CaptureRequest, CaptureSummary, Client, Connection, Counter, Host, Refusal, Server,
    SocketStatus, StackStatus,
};
use crate::fabric::NodeRecord;
use crate::placement::Placement;

/// A host that has a little of everything.
struct Little;

fn pair() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("descriptors")
}

impl Host for Little {
    fn attach(&self, _: Client) -> Result<Attachment, Refusal> {
        Ok(Attachment {
            process: 2,
            description: serde_json::Value::Null,
            descriptors: vec![pair().0],
        })
    }

    fn detached(&self, process: u16) {
        assert_eq!(process, 2);
    }

    fn peer(&self, _: u8, slot: u16, _: u16) -> Option<Vec<OwnedFd>> {
        (slot < 4).then(|| vec![pair().0])
    }

    fn holders(&self, process: u16, count: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal> {
        assert_eq!(process, 2);
        assert!(count <= super::MAX_HOLDERS);
        Ok((0..count).map(|number| (number.into(), pair().0)).collect())
    }

    fn identify(&self, process: u16, _: OwnedFd) -> Result<u32, Refusal> {
        assert_eq!(process, 2);
        Ok(7)
    }

    fn inherit(&self, process: u16, _: OwnedFd) -> Result<Option<(u32, OwnedFd)>, Refusal> {
        assert_eq!(process, 2);
        Ok(Some((7, pair().0)))
    }

    fn closings(&self) -> Result<OwnedFd, Refusal> {
        Ok(pair().0)
    }

    fn status(&self) -> StackStatus {
        StackStatus::default()
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        // More than a packet holds.
        let local = ([10, 77, 0, 1], 80).into();
        vec![SocketStatus::listener(local, 0, 1); 500]
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    fn set_placement(&self, _: Placement) -> Result<(), Refusal> {
        Ok(())
    }

    fn start_capture(&self, _: File, _: CaptureRequest) -> Result<(), Refusal> {
        Ok(())
    }

    fn stop_capture(&self) -> CaptureSummary {
        CaptureSummary::default()
    }

    fn leave_capture(&self) {}

    fn begin_anew(&self) {}

    fn stop(&self) {}
}

/// A node's server.
pub struct Serving {
    server: Server,
    /// The descriptor whose hang-up would end the server.
    _stop: OwnedFd,
}

impl Serving {
    /// A server that no client has reached yet.
    pub fn new() -> Serving {
        let ((listener, _), (stop, other)) = (pair(), pair());
        let record = include_bytes!("fuzzing/record.json");
        let record: NodeRecord = serde_json::from_slice(record).expect("a record");
        let server = Server::new(listener, stop, record, Arc::new(Little)).expect("descriptors");
        Serving { server, _stop: other }
    }

    /// Sends these packets as a client, each with so many descriptors. Asserts that what it is
    /// answered is an answer.
    pub fn client(&mut self, packets: &[(&[u8], u8)]) {
        let (client, server) = pair();
        let id = self.server.meet(server);
        let mut buffer = vec![0; MAX_PACKET];
        for (bytes, descriptors) in packets {
            let given: Vec<OwnedFd> = (0..*descriptors).map(|_| pair().0).collect();
            let flags = SendFlags::DONTWAIT;
            if packet::send(client.as_fd(), bytes, &given, flags).is_err() {
                break;
            }
            self.server.serve(id);
            while let Ok(Packet::Message(len, _)) =
                packet::receive(client.as_fd(), &mut buffer, RecvFlags::DONTWAIT)
            {
                serde_json::from_slice::<Answer>(&buffer[..len]).expect("an answer");
            }
        }
        drop(client);
        self.server.serve(id);
        assert!(self.server.sessions.is_empty(), "its end was not noticed");
    }
}

impl Default for Serving {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks one question of all there are as a client, which is answered with this packet. The packet
/// comes with so many descriptors, of which the first is `memory`, if there is any.
pub fn answer(question: u8, bytes: &[u8], memory: &[u8], descriptors: u8) {
    let (client, node) = pair();
    let mut given: Vec<OwnedFd> = (1..descriptors).map(|_| pair().0).collect();
    if descriptors > 0 {
        given.insert(0, packet::to_file(memory).expect("memory"));
    }
    // What is more than a packet may hold is none that a node could send.
    if packet::send(node.as_fd(), bytes, &given, SendFlags::DONTWAIT).is_err() {
        return;
    }
    drop(node);
    let mut connection = Connection::over(client, "node".parse().expect("a name"));
    let _ = match question % 12 {
        0 => connection.attach().map(drop),
        1 => connection.peer(0, 1, 1).map(drop),
        2 => connection.holders(3).map(drop),
        3 => connection.identify(pair().0.as_fd()).map(drop),
        4 => connection.status().map(drop),
        5 => connection.sockets().map(drop),
        6 => connection.counters().map(drop),
        7 => connection.set_placement(Placement::Inline),
        8 => connection.stop_capture().map(drop),
        9 => connection
            .take_port(7, ([10, 77, 0, 1], 80).into(), false)
            .map(drop),
        10 => connection.release_port(7),
        _ => connection.inherit(pair().0).map(drop),
    };
}
