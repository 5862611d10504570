//! Requests of people to a node: its status, its placement, recordings of its link, its end.

use std::fs::File;
use std::time::Duration;

use super::{Answer, Connection, ControlError, Request};
use crate::control::host::{CaptureRequest, CaptureSummary};
use crate::control::status::{Counter, NodeStatus, SocketStatus};
use crate::placement::Placement;

impl Connection {
    /// Asks for the node's status.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn status(&mut self) -> Result<NodeStatus, ControlError> {
        match self.ask(&Request::Status, &[])? {
            (Answer::Status(status), _) => Ok(*status),
            _ => Err(self.nonsense()),
        }
    }

    /// Asks for the node's sockets.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn sockets(&mut self) -> Result<Vec<SocketStatus>, ControlError> {
        match self.ask(&Request::Sockets, &[])? {
            (Answer::Sockets(sockets), _) => Ok(sockets),
            _ => Err(self.nonsense()),
        }
    }

    /// Asks for the node's counters.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn counters(&mut self) -> Result<Vec<Counter>, ControlError> {
        match self.ask(&Request::Counters, &[])? {
            (Answer::Counters(counters), _) => Ok(counters),
            _ => Err(self.nonsense()),
        }
    }

    /// Changes the threads that run the node's stack.
    ///
    /// # Errors
    ///
    /// If the node refuses or does not answer.
    pub fn set_placement(&mut self, placement: Placement) -> Result<(), ControlError> {
        self.done(&Request::SetPlacement { placement }, &[])
    }

    /// Begins to record the node's frames in a file, as pcapng, until
    /// [`Connection::stop_capture`] or the connection's end.
    ///
    /// # Errors
    ///
    /// If the node refuses or does not answer.
    pub fn start_capture(&mut self, file: File, settings: CaptureRequest) -> Result<(), ControlError> {
        self.done(&Request::StartCapture { settings }, &[file.into()])
    }

    /// Ends the recording. Call again, after a pause, if the summary says that the file is not
    /// complete yet: the node waits for no file.
    ///
    /// # Errors
    ///
    /// If this connection has not begun one, or the node does not answer.
    pub fn stop_capture(&mut self) -> Result<CaptureSummary, ControlError> {
        match self.ask(&Request::StopCapture, &[])? {
            (Answer::Captured(summary), _) => Ok(summary),
            _ => Err(self.nonsense()),
        }
    }

    /// Ends the node, and waits for its end for at most `patience`.
    ///
    /// # Errors
    ///
    /// If the node does not answer, or has not ended by then.
    pub fn down(mut self, patience: Duration) -> Result<(), ControlError> {
        match self.done(&Request::Down, &[]) {
            Ok(()) => {}
            // Another client has just done so.
            Err(ControlError::HungUp(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.timeout = patience;
        match self.receive() {
            Err(ControlError::HungUp(_)) => Ok(()),
            Ok(_) => Err(self.nonsense()),
            Err(error) => Err(error),
        }
    }
}
