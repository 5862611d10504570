//! One request and its answer over the connection's socket.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Connection, ControlError, process_at};
use crate::control::message::{Answer, MAX_PACKET, Request};
use crate::control::packet::{self, Packet};

impl Connection {
    pub(super) fn ask(
        &mut self,
        request: &Request,
        descriptors: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        match self.exchange(request, descriptors)? {
            (_, descriptors) if self.cut => {
                drop(descriptors);
                Err(self.system(Errno::MFILE))
            }
            answered => Ok(answered),
        }
    }

    pub(super) fn exchange(
        &mut self,
        request: &Request,
        descriptors: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        let asked = self.post(request, descriptors).and_then(|()| self.take(0));
        self.heard(asked)
    }

    /// Tells a refusal from another answer, and remembers an error after which nothing can be
    /// asked any more.
    pub(super) fn heard(
        &mut self,
        asked: Result<(Answer, Vec<OwnedFd>), ControlError>,
    ) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        match asked {
            Ok((Answer::Refused(refusal), _)) => Err(ControlError::Refused {
                node: self.node,
                refusal,
            }),
            Ok(answered) => Ok(answered),
            Err(error) => {
                self.broken |= !matches!(error, ControlError::TimedOut { .. });
                Err(error)
            }
        }
    }

    /// Asks, without waiting for the answer.
    pub(super) fn post(&mut self, request: &Request, descriptors: &[OwnedFd]) -> Result<(), ControlError> {
        if self.broken {
            return Err(ControlError::HungUp(self.node));
        }
        self.send(request, descriptors)?;
        self.owed += 1;
        Ok(())
    }

    /// Takes answers until `left` are still to come, and returns the last one taken.
    pub(super) fn take(&mut self, left: u32) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        loop {
            let answered = self.receive()?;
            self.owed -= 1;
            if self.owed == left {
                return Ok(answered);
            }
        }
    }

    pub(super) fn send(&self, request: &Request, descriptors: &[OwnedFd]) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(request).map_err(|_| self.nonsense())?;
        let deadline = Instant::now() + self.timeout;
        loop {
            match packet::send(self.socket.as_fd(), &bytes, descriptors, SendFlags::DONTWAIT) {
                // The node has hung up; it may have said why.
                Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(errno) => return Err(self.system(errno)),
            }
        }
    }

    pub(super) fn receive(&mut self) -> Result<(Answer, Vec<OwnedFd>), ControlError> {
        let deadline = Instant::now() + self.timeout;
        let mut buffer = vec![0; MAX_PACKET];
        let mut reset = false;
        let (len, mut descriptors) = loop {
            match packet::receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
                Ok(Packet::Message(len, descriptors)) => {
                    self.cut = false;
                    break (len, descriptors);
                }
                Ok(Packet::Cut(len, descriptors)) => {
                    self.cut = true;
                    break (len, descriptors);
                }
                Ok(Packet::HungUp) => return Err(ControlError::HungUp(self.node)),
                Ok(Packet::Oversized) => return Err(self.nonsense()),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                // That what was sent was not read comes first; what the node has
                // said before it hung up comes after it.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(_) => return Err(ControlError::HungUp(self.node)),
            }
        };
        let answer = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|_| self.nonsense());
        match answer(&buffer[..len])? {
            Answer::InMemory { bytes } if !descriptors.is_empty() => {
                let file = descriptors.remove(0);
                let bytes = packet::from_file(&file, bytes).map_err(|_| self.nonsense())?;
                Ok((answer(&bytes)?, descriptors))
            }
            answer => Ok((answer, descriptors)),
        }
    }

    pub(super) fn wait(&self, flags: PollFlags, deadline: Instant) -> Result<(), ControlError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ControlError::TimedOut {
                node: self.node,
                process: process_at(self.socket.as_fd()),
            });
        }
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.system(errno)),
        }
    }
}

pub(in crate::control) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}
