//! One connection whose bytes are carried.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use toehold_stack::{ConnectionId, ReceiveFlags, SocketError};

use super::forward::Caller;
use crate::engine::host::ends::{Lent, is_alone};
use crate::shards::OneShard;
use crate::wait::{Gone, Guard};

/// A connection whose bytes are carried.
pub(super) struct Relay {
    pub(super) id: ConnectionId,
    pub(super) end: End,
    /// Whether the peer will send no more, and the program knows.
    is_delivered: bool,
    /// Whether the program will send no more, and the stack knows.
    is_sent: bool,
}

/// The engine's end of the socket that the program has of a connection.
pub(in crate::engine::host) enum End {
    /// The engine's end of the descriptor that stood for the connection from the start.
    Descriptor(Lent),
    /// A connection that the engine has made to the program's listener of the kernel's.
    Caller(Caller),
}

impl End {
    pub(in crate::engine::host) fn socket(&self) -> &OwnedFd {
        match self {
            End::Descriptor(lent) => lent.socket(),
            End::Caller(caller) => caller.socket(),
        }
    }

    /// Whether it still waits for room at the program's listener.
    pub(in crate::engine::host) fn is_connecting(&self) -> bool {
        match self {
            End::Caller(caller) => caller.is_connecting(),
            End::Descriptor(_) => false,
        }
    }
}

/// The course of the carrying of a connection's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Course {
    /// The carrying waits for something.
    Waits,
    GoesOn,
    IsOver,
}

impl Relay {
    pub(super) fn new(id: ConnectionId, end: End) -> Relay {
        Relay {
            id,
            end,
            is_delivered: false,
            is_sent: false,
        }
    }

    /// Carries some of the bytes that wait, both ways.
    pub(super) fn carry(&mut self, way: &OneShard, buffer: &mut [u8]) -> Result<Course, Gone> {
        let out = self.carry_out(way, buffer)?;
        Ok(match out {
            Course::IsOver => out,
            _ => out.max(self.carry_in(way, buffer)?),
        })
    }

    /// Carries bytes from the program to its peer.
    fn carry_out(&mut self, way: &OneShard, buffer: &mut [u8]) -> Result<Course, Gone> {
        let socket = self.end.socket();
        if self.is_sent {
            return Ok(match is_alone(socket) {
                true => Course::IsOver,
                false => Course::Waits,
            });
        }
        let peeked = rustix::net::recv(socket, &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let bytes = match peeked {
            Ok((_, 0)) => {
                self.is_sent = true;
                let mut shard = enter(way)?;
                let now = shard.now;
                // One that has failed is told of on the other way.
                let _ = shard.stack.shutdown(now, self.id, toehold_stack::Shutdown::Write);
                respond(way, &mut shard);
                return Ok(Course::GoesOn);
            }
            Ok((_, len)) => &buffer[..len],
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Course::Waits),
            Err(_) => {
                // It has left without reading everything.
                let mut shard = enter(way)?;
                let _ = shard.stack.abort(self.id);
                respond(way, &mut shard);
                return Ok(Course::IsOver);
            }
        };
        let mut shard = enter(way)?;
        let queued = shard
            .stack
            .send(self.id, bytes, toehold_stack::SendFlags::default());
        respond(way, &mut shard);
        drop(shard);
        match queued {
            Ok(queued) => {
                let taken = rustix::net::recv(socket, &mut buffer[..queued], RecvFlags::DONTWAIT);
                debug_assert!(taken.is_ok());
                Ok(Course::GoesOn)
            }
            Err(error) => Ok(self.course(error)),
        }
    }

    /// Carries bytes from the peer to the program.
    fn carry_in(&mut self, way: &OneShard, buffer: &mut [u8]) -> Result<Course, Gone> {
        if self.is_delivered {
            return Ok(Course::Waits);
        }
        let peek = ReceiveFlags {
            peek: true,
            urgent: false,
        };
        let mut shard = enter(way)?;
        // It goes alone, as what it is.
        let urgent = shard.stack.at_mark(self.id) == Ok(true);
        let room = if urgent { 1 } else { buffer.len() };
        let received = shard.stack.receive(self.id, &mut buffer[..room], peek);
        respond(way, &mut shard);
        drop(shard);
        let socket = self.end.socket();
        let sent = match received {
            // To end it before it is connected would be to give up.
            Ok(0) if self.end.is_connecting() => return Ok(Course::Waits),
            Ok(0) => {
                self.is_delivered = true;
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
                return Ok(Course::Waits);
            }
            Ok(len) => match deliver(socket, &buffer[..len], urgent) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Course::Waits),
                Err(_) if is_alone(socket) => {
                    if let End::Caller(_) = self.end {
                        // No program will ever read what the peer has sent.
                        let mut shard = enter(way)?;
                        let _ = shard.stack.abort(self.id);
                        respond(way, &mut shard);
                    }
                    return Ok(Course::IsOver);
                }
                // It wants to read no more, and the peer does not have to know.
                Err(_) => len,
            },
            Err(error) => return Ok(self.course(error)),
        };
        let mut shard = enter(way)?;
        let taken = shard
            .stack
            .receive(self.id, &mut buffer[..sent], ReceiveFlags::default());
        debug_assert_eq!(taken, Ok(sent));
        respond(way, &mut shard);
        Ok(Course::GoesOn)
    }

    /// The course after an error of the stack's.
    fn course(&self, error: SocketError) -> Course {
        match (error, &self.end) {
            (SocketError::WouldBlock | SocketError::InProgress | SocketError::Taken, _) => Course::Waits,
            (_, End::Caller(caller)) => {
                caller.reset();
                Course::IsOver
            }
            _ => Course::IsOver,
        }
    }
}

/// Gives bytes to the program. Where Unix sockets have no urgent data, they go with the rest.
fn deliver(socket: &OwnedFd, bytes: &[u8], urgent: bool) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match urgent.then(|| rustix::net::send(socket, bytes, flags | SendFlags::OOB)) {
        Some(Err(Errno::OPNOTSUPP)) | None => rustix::net::send(socket, bytes, flags),
        Some(sent) => sent,
    }
}

pub(super) fn enter(way: &OneShard) -> Result<Guard<'_>, Gone> {
    let mut shard = way.enter()?;
    shard.tick();
    Ok(shard)
}

pub(super) fn respond(way: &OneShard, shard: &mut Guard<'_>) {
    shard.respond();
    way.settle(shard);
}
