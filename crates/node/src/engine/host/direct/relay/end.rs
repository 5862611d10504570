//! One end whose bytes are carried.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use toehold_shm::direct::{
    ConnectionId, End, ReceiveError, SendError, StreamState, Take, ThreadNumber, WaiterNumber, Wish,
};

use super::super::super::ends::is_alone;
use super::super::super::relay::RelayEnd;
use crate::direct::Bank;

/// The course of the carrying of an end's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Course {
    /// The carrying waits for something.
    Waits,
    GoesOn,
    IsOver,
}

/// An end whose bytes are carried.
pub(super) struct Relay {
    pub(super) bank: Arc<Bank>,
    pub(super) connection: ConnectionId,
    pub(super) socket: RelayEnd,
    /// Whether the ear has the bell of the end's bank.
    pub(super) is_heard: bool,
    /// Whether the peer will send no more, and the program knows.
    pub(super) is_delivered: bool,
    /// Whether the program will send no more, and the peer knows.
    pub(super) is_sent: bool,
    /// Whether bytes that the program has sent wait for room in the ring.
    pub(super) wants_room: bool,
    /// Whether bytes that the peer has sent wait for room in the socket.
    pub(super) is_socket_full: bool,
}

impl Relay {
    /// Carries bytes from the program to its peer.
    pub(super) fn carry_out(&mut self, end: &End<'_>, thread: ThreadNumber, buffer: &mut [u8]) -> Course {
        let socket = self.socket.socket();
        if self.is_sent {
            return match is_alone(socket) {
                true => Course::IsOver,
                false => Course::Waits,
            };
        }
        self.wants_room = false;
        let bytes = match recv(socket, &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                self.is_sent = true;
                let _ = end.shut_write(thread);
                return Course::GoesOn;
            }
            Ok((_, len)) => &buffer[..len],
            Err(Errno::AGAIN | Errno::INTR) => return Course::Waits,
            Err(_) => {
                // It has left without reading everything.
                let _ = end.reset(thread);
                return Course::IsOver;
            }
        };
        match end.send(thread, &[IoSlice::new(bytes)]) {
            Ok(sent) => {
                let taken = recv(socket, &mut buffer[..sent], RecvFlags::DONTWAIT);
                debug_assert!(taken.is_ok());
                Course::GoesOn
            }
            Err(SendError::Full) => {
                self.wants_room = true;
                Course::Waits
            }
            Err(SendError::Closed | SendError::Shut) => {
                // The program's next bytes fail with EPIPE; those before are lost, as over TCP.
                self.is_sent = true;
                let _ = shutdown(socket, Shutdown::Read);
                Course::GoesOn
            }
            Err(SendError::Offence(_) | SendError::Reentered(_)) => Course::IsOver,
        }
    }

    /// Carries bytes from the peer to the program.
    pub(super) fn carry_in(&mut self, end: &End<'_>, thread: ThreadNumber, buffer: &mut [u8]) -> Course {
        if self.is_delivered {
            return Course::Waits;
        }
        self.is_socket_full = false;
        let socket = self.socket.socket();
        let received = end.receive(thread, &mut [IoSliceMut::new(buffer)], Take::Peek, u64::MAX);
        let taken = match received {
            // To end it before it is connected would be to give up.
            Ok(0) if self.socket.is_connecting() => return Course::Waits,
            Ok(0) => {
                self.is_delivered = true;
                let _ = shutdown(socket, Shutdown::Write);
                return Course::Waits;
            }
            Ok(len) => match send(socket, &buffer[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.is_socket_full = true;
                    return Course::Waits;
                }
                Err(_) if is_alone(socket) => {
                    if let RelayEnd::Caller(_) = self.socket {
                        // The program will never read what the peer has sent.
                        let _ = end.reset(thread);
                    }
                    return Course::IsOver;
                }
                // It wants to read no more, and the peer does not have to know.
                Err(_) => len,
            },
            Err(ReceiveError::Empty) => return Course::Waits,
            Err(_) => {
                if let RelayEnd::Caller(caller) = &self.socket {
                    caller.reset();
                }
                return Course::IsOver;
            }
        };
        let taken = end.receive(
            thread,
            &mut [IoSliceMut::new(&mut buffer[..taken])],
            Take::Remove,
            u64::MAX,
        );
        debug_assert!(taken.is_ok());
        Course::GoesOn
    }

    /// Has the waiter woken by the events it waits for. They may have occurred already.
    pub(super) fn arm(&self, end: &End<'_>, thread: ThreadNumber, waiter: WaiterNumber) -> Course {
        let reads = !self.is_delivered && !self.is_socket_full;
        let wish = Wish {
            read: reads.then_some(1),
            edge: false,
            room: self.wants_room,
        };
        let Ok(look) = end.arm(thread, waiter, wish) else {
            return Course::IsOver;
        };
        let may_read = reads && (look.readable > 0 || look.peer != StreamState::Open);
        let may_write = self.wants_room && (look.has_room || look.is_peer_closed);
        match may_read || may_write {
            true => Course::GoesOn,
            false => Course::Waits,
        }
    }
}
