//! A link to other uplinks, over which pages are exchanged beside everything else.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use toehold_link::{
    Capabilities, Link, NeighborChange, Offload, Received, Transmit, TransmitError, Transmitter, Watch,
};
use toehold_shm::Gather;

use super::exchange::Exchange;
use super::page::is_page;

/// Passes everything on but pages, which are the roster's; and nothing while it stands by.
#[derive(Debug)]
pub(in crate::uplink) struct Announced<L> {
    link: L,
    exchange: Arc<Exchange>,
    statistics: AnnouncedStatistics,
}

/// The statistics of the announced link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::uplink) struct AnnouncedStatistics {
    /// Pages that came.
    pub(in crate::uplink) pages_received: u64,
    /// Pages that were sent.
    pub(in crate::uplink) pages_sent: u64,
    /// Frames of members that looked like pages.
    pub(in crate::uplink) forged: u64,
    /// Frames that were not passed on while this uplink stood by.
    pub(in crate::uplink) stood_by: u64,
}

impl<L: Link> Announced<L> {
    pub(in crate::uplink) fn new(link: L, exchange: &Arc<Exchange>) -> Announced<L> {
        Announced {
            link,
            exchange: Arc::clone(exchange),
            statistics: AnnouncedStatistics::default(),
        }
    }

    pub(in crate::uplink) fn link(&self) -> &L {
        &self.link
    }

    pub(in crate::uplink) fn statistics(&self) -> AnnouncedStatistics {
        self.statistics
    }

    pub(in crate::uplink) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    #[cold]
    fn announce(&mut self, pages: &[Vec<u8>]) {
        for page in pages {
            let frame = Transmit {
                headers: page,
                payload: &Gather::EMPTY,
                offload: Offload::default(),
            };
            // What finds no room will be repeated.
            if self.link.transmit(&frame).is_ok() {
                self.statistics.pages_sent += 1;
            }
        }
        self.link.flush();
    }
}

impl<L: Link> Transmitter for Announced<L> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if is_page(frame.headers) {
            self.statistics.forged += 1;
            return Ok(());
        }
        if self.exchange.stands_by() {
            self.statistics.stood_by += 1;
            return Ok(());
        }
        self.link.transmit(frame)
    }
}

impl<L: Link> Link for Announced<L> {
    fn capabilities(&self) -> Capabilities {
        self.link.capabilities()
    }

    fn address(&self) -> [u8; 6] {
        self.link.address()
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        if let Some(pages) = self.exchange.outgoing() {
            self.announce(&pages);
        }
        let (exchange, statistics) = (&*self.exchange, &mut self.statistics);
        self.link.receive(now_ns, budget, &mut |frame| {
            if is_page(frame.private) {
                statistics.pages_received += 1;
                exchange.hear(whole(frame));
            } else if exchange.stands_by() {
                statistics.stood_by += 1;
            } else {
                handler(frame);
            }
        })
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        self.link.longest_sleep()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.link.prepare_sleep()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.link.finish_sleep(now_ns);
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        let change = self.link.next_change();
        if change.is_some() {
            self.exchange.note_host();
        }
        change
    }

    fn note_beyond(&mut self, change: NeighborChange) {
        self.exchange.note_member(change);
        self.link.note_beyond(change);
    }

    fn watch(&self, watch: &mut Watch) -> bool {
        self.link.watch(watch)
    }
}

fn whole(frame: &Received<'_>) -> Vec<u8> {
    let mut bytes = frame.private.to_vec();
    bytes.resize(frame.len(), 0);
    frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
    bytes
}
