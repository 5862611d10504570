//! The path to a connection's peer: unresolved hardware addresses, and segment sizes that follow
//! the path MTU.

use toehold_shm::NONE;

use super::pcb::{State, flag};
use super::{Context, Tcp};
use crate::ip::{Ip, NeighborEvent, PathState};
use crate::socket::SocketError;

/// Most connections on a neighbour's list to pass when one leaves it.
const MOST_PASSED: u32 = 256;

impl Tcp {
    /// Makes sure that the connection's path is current. Returns `false` if the connection cannot
    /// send now: it waits for the neighbour, or was ended.
    #[inline]
    pub(super) fn refresh_path(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        if cx.ip.path_is_current(&self.pcbs[index].path) {
            return true;
        }
        self.find_path(cx, index)
    }

    #[cold]
    fn find_path(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let remote = self.pcbs[index].tuple.remote;
        match cx.ip.path(cx.now, remote) {
            PathState::Ready(mut path) => {
                let mut pcb = self.pcbs[index];
                if path.destination == pcb.path.destination {
                    path.arena = pcb.path.arena;
                }
                let mtu_changed = pcb.path.mtu != path.mtu;
                pcb.path = path;
                if mtu_changed && pcb.mss > 0 {
                    pcb.mss = self.segment_size(&pcb);
                    pcb.congestion.set_mss(pcb.mss.into());
                }
                self.pcbs[index] = pcb;
                true
            }
            PathState::Pending { neighbor } => {
                let pcb = &mut self.pcbs[index];
                if !pcb.has(flag::ON_NEIGHBOR | flag::ON_READY) {
                    pcb.path.neighbor = neighbor;
                    pcb.ready_next = cx.ip.waiting_head(neighbor);
                    pcb.set(flag::ON_NEIGHBOR);
                    cx.ip.set_waiting_head(neighbor, index);
                }
                false
            }
            PathState::Gone => {
                self.unreachable(index, SocketError::HostUnreachable);
                false
            }
            PathState::Unreachable => {
                self.unreachable(index, SocketError::NetworkUnreachable);
                false
            }
        }
    }

    /// Removes a closed connection without segments to send from its neighbour's list. A connection
    /// far down a long list stays until the neighbour has answered or failed.
    pub(crate) fn leave_neighbor(&mut self, ip: &mut Ip, index: u32) {
        let pcb = &self.pcbs[index];
        if !pcb.has(flag::ON_NEIGHBOR) || pcb.has(flag::RESET) || pcb.state() != State::Closed {
            return;
        }
        let neighbor = pcb.path.neighbor;
        let (mut previous, mut at) = (NONE, ip.waiting_head(neighbor));
        for _ in 0..MOST_PASSED {
            if at == index {
                let pcb = &mut self.pcbs[index];
                pcb.clear(flag::ON_NEIGHBOR);
                let next = std::mem::replace(&mut pcb.ready_next, NONE);
                if previous == NONE {
                    ip.set_waiting_head(neighbor, next);
                } else {
                    self.pcbs[previous].ready_next = next;
                }
                if self.pcbs[index].has(flag::FENCE_WANTED) {
                    self.mark_ready(index);
                }
                return;
            }
            if at == NONE {
                return;
            }
            previous = at;
            at = self.pcbs[at].ready_next;
        }
    }

    /// Wakes the connections that wait for a neighbour.
    pub(crate) fn neighbor_event(&mut self, cx: &mut Context<'_>, event: NeighborEvent) {
        let (neighbor, resolved) = match event {
            NeighborEvent::Resolved { neighbor } => (neighbor, true),
            NeighborEvent::Failed { neighbor } => (neighbor, false),
        };
        let mut index = cx.ip.waiting_head(neighbor);
        cx.ip.set_waiting_head(neighbor, NONE);
        while index != NONE {
            let pcb = &mut self.pcbs[index];
            let next = std::mem::replace(&mut pcb.ready_next, NONE);
            pcb.clear(flag::ON_NEIGHBOR);
            if !resolved {
                self.unreachable(index, SocketError::HostUnreachable);
                self.rearm(index);
            }
            if resolved || self.pcbs[index].has(flag::FENCE_WANTED) {
                self.mark_ready(index);
            }
            self.free_if_done(index);
            index = next;
        }
    }

    /// Handles the lack of a path to the peer. An attempt to connect ends. An established
    /// connection continues until its timers give up (RFC 1122 §4.2.3.9).
    fn unreachable(&mut self, index: u32, error: SocketError) {
        match self.pcbs[index].state() {
            State::SynSent | State::SynReceived => self.finish(index, Some(error)),
            State::Closed => self.pcbs[index].clear(flag::RESET),
            _ => {}
        }
    }

    /// Handles the report that a router could not forward a segment of this size.
    //= RFC 8201 §5.4 (retransmit what was too big without waiting, without reducing the window)
    pub(super) fn path_mtu_shrunk(&mut self, cx: &mut Context<'_>, index: u32, mtu: u16) {
        cx.ip.update_path_mtu(cx.now, self.pcbs[index].tuple.remote, mtu);
        let before = self.pcbs[index].mss;
        let is_found = self.find_path(cx, index);
        self.syn_too_large(index);
        if !is_found || self.pcbs[index].mss >= before {
            return;
        }
        let pcb = &mut self.pcbs[index];
        let mss = u32::from(pcb.mss);
        self.scoreboard.mark_lost_where(pcb, |record| record.len() > mss);
        self.mark_ready(index);
    }
}
