//! Direct connections whose bytes the engine carries to and from a descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use toehold_shm::direct::{ConnectionId, SendError};

use super::*;
use crate::direct::Bank;

/// A connection whose client has a descriptor only, as any program of the kernel's.
struct Relayed {
    pair: Pair,
    program: OwnedFd,
    thread: ThreadNumber,
    bank: std::sync::Arc<Bank>,
    taken: ConnectionId,
    /// The client's bank.
    opening: std::sync::Arc<Bank>,
}

impl Relayed {
    fn new() -> Relayed {
        let pair = Pair::new();
        let (ours, theirs) = (pair.client(), pair.server());
        let (own, accepting) = (thread(ours), thread(theirs));
        let (_, listener) = pair.listen(pair.at(), 8);
        let opened = ours.connect(own, pair.at(), None, WINDOW).unwrap();
        let local = opened.local_addr();
        let shards = pair.client.shards().unwrap();
        let holder = shards.get(0).holder().unwrap();
        assert!(shards.hold_direct(&holder, opened.end()));
        let (opening, _) = opened.held();
        let (bank, taken) = theirs.accept(accepting, listener, WINDOW).unwrap().held();
        let copy = || holder.descriptor().unwrap().try_clone_to_owned().unwrap();
        let program = copy();
        assert!(!shards.is_direct_relayed(&holder));
        shards.relay_direct(&holder).unwrap();
        shards.relay_direct(&holder).unwrap();
        assert!(shards.is_direct_relayed(&holder));
        assert!(shards.identify_direct(copy()).unwrap().1.is_none());
        let ends = shards.relayed(copy()).unwrap().unwrap();
        assert_eq!((ends.local, ends.peer), (Some(local), Some(pair.at())));
        drop(holder);
        Relayed {
            pair,
            program,
            thread: accepting,
            bank,
            taken,
            opening,
        }
    }

    fn sends(&self, bytes: &[u8]) -> Result<usize, SendError> {
        let end = self.bank.end(self.taken).unwrap();
        end.send(self.thread, &[IoSlice::new(bytes)])
    }

    fn receives(&self, into: &mut [u8]) -> Result<usize, ReceiveError> {
        let end = self.bank.end(self.taken).unwrap();
        end.receive(self.thread, &mut [IoSliceMut::new(into)], Take::Remove, u64::MAX)
    }

    /// The bytes that the server receives next; none at the end.
    fn received(&self) -> Vec<u8> {
        eventually("the server receives nothing", || {
            let mut buffer = [0; 64];
            match self.receives(&mut buffer) {
                Ok(len) => Some(buffer[..len].to_vec()),
                Err(ReceiveError::Empty) => None,
                Err(error) => panic!("{error}"),
            }
        })
    }

    /// The bytes that the program reads next; none at the end.
    fn read(&self) -> Vec<u8> {
        eventually("the program reads nothing", || {
            let mut buffer = [0; 64];
            match recv(&self.program, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, len)) => Some(buffer[..len].to_vec()),
                Err(Errno::AGAIN) => None,
                Err(errno) => panic!("{errno}"),
            }
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.program, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    fn closes(&self, abort: bool) {
        let server = self.pair.server();
        server.close(self.thread, &self.bank, self.taken, abort);
    }
}

#[test]
fn bytes_of_a_relayed_connection_go_both_ways_and_end_one_after_the_other() {
    let relayed = Relayed::new();
    for _ in 0..3 {
        assert_eq!(relayed.write(b"question"), Ok(8));
        assert_eq!(relayed.received(), b"question");
        assert_eq!(relayed.sends(b"answer"), Ok(6));
        assert_eq!(relayed.read(), b"answer");
    }
    shutdown(&relayed.program, Shutdown::Write).unwrap();
    assert_eq!(relayed.received(), b"", "the end of the program's stream");
    relayed.sends(b"last").unwrap();
    assert_eq!(relayed.read(), b"last");
    relayed.closes(false);
    assert_eq!(relayed.read(), b"", "the end of the server's stream");
    let Relayed { program, opening, .. } = relayed;
    drop(program);
    eventually("the number did not come back", || {
        (opening.ends.in_use() == 0).then_some(())
    });
}

#[test]
fn server_that_closes_first_leaves_a_program_that_can_write_no_more() {
    let relayed = Relayed::new();
    relayed.sends(b"bye").unwrap();
    relayed.closes(false);
    assert_eq!((relayed.read(), relayed.read()), (b"bye".to_vec(), Vec::new()));
    eventually("the program can write for ever", || {
        (relayed.write(b"x") == Err(Errno::PIPE)).then_some(())
    });
}

#[test]
fn reset_of_a_relayed_connection_ends_its_descriptor() {
    let relayed = Relayed::new();
    relayed.write(b"unread").unwrap();
    relayed.closes(true);
    eventually("the program can write for ever", || {
        // Or ECONNRESET first, if its bytes were still in the socket.
        (relayed.write(b"x") == Err(Errno::PIPE)).then_some(())
    });
}

#[test]
fn program_that_leaves_bytes_unread_resets_the_connection() {
    let relayed = Relayed::new();
    relayed.write(b"some").unwrap();
    assert_eq!(relayed.received(), b"some");
    relayed.sends(b"unread").unwrap();
    eventually("the bytes are not in the socket", || {
        let mut buffer = [0; 8];
        recv(
            &relayed.program,
            &mut buffer[..],
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        )
        .ok()
    });
    let Relayed { pair, program, .. } = relayed;
    drop(program);
    let end = relayed.bank.end(relayed.taken).unwrap();
    eventually("the connection is not reset", || {
        let mut buffer = [0; 8];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = end.receive(relayed.thread, &mut parts, Take::Remove, u64::MAX);
        (received == Err(ReceiveError::Reset)).then_some(())
    });
    drop(pair);
}

#[test]
fn relay_holds_up_a_side_whose_other_side_does_not_read() {
    let relayed = Relayed::new();
    // More than the sockets and the ring hold, in each direction.
    const BYTES: usize = 8 << 20;
    let block = vec![7; 64 << 10];
    let fill = |send: &dyn Fn(&[u8]) -> Option<usize>| {
        let (mut sent, mut idle) = (0, Instant::now());
        // It is full when nothing has gone for a while.
        while idle.elapsed() < Duration::from_millis(200) {
            assert!(sent < BYTES, "nothing holds it up");
            if let Some(len) = send(&block) {
                (sent, idle) = (sent + len, Instant::now());
            }
        }
        sent
    };
    let sent = fill(&|bytes| relayed.write(bytes).ok());
    let answered = fill(&|bytes| relayed.sends(bytes).ok());
    assert!(sent > 0 && answered > 0);
    let drain = |receive: &dyn Fn(&mut [u8]) -> Option<usize>, count: usize| {
        let mut buffer = vec![0; 64 << 10];
        let mut received = 0;
        eventually("bytes are lost", || {
            while let Some(len) = receive(&mut buffer) {
                assert!(buffer[..len].iter().all(|byte| *byte == 7));
                received += len;
            }
            (received == count).then_some(())
        });
    };
    drain(&|into| relayed.receives(into).ok(), sent);
    let read = |into: &mut [u8]| recv(&relayed.program, into, RecvFlags::DONTWAIT).ok();
    drain(&|into| read(into).map(|(_, len)| len), answered);
}

#[test]
fn end_of_the_peers_node_ends_a_relayed_connection_after_its_bytes() {
    let mut relayed = Relayed::new();
    relayed.sends(b"last words").unwrap();
    drop(relayed.pair.engines.pop());
    assert_eq!(
        (relayed.read(), relayed.read()),
        (b"last words".to_vec(), Vec::new())
    );
}
