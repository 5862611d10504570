//! The pairs of processes of a candidate that run at the same time: commonly one. A server with
//! several clients counts as a pair.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::pair::{Between, Pair, PairError, Place};
use crate::process::Launcher;
use crate::samples::Side;
use crate::settings::Settings;
use crate::workload::Workload;

/// All pairs. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Group {
    pairs: Vec<Pair>,
    is_pinned: bool,
}

impl Group {
    /// Starts the processes of a workload.
    pub(crate) fn start(
        launcher: &Launcher,
        between: Option<Between<'_>>,
        settings: &Settings,
        workload: Workload,
    ) -> io::Result<Self> {
        let pairs =
            (0..workload.pairs()).map(|_| Pair::start(launcher, between, settings, workload.clients()));
        Ok(Self {
            pairs: pairs.collect::<io::Result<_>>()?,
            is_pinned: workload.is_pinned(),
        })
    }

    /// Makes the processes the sides of `candidate`.
    pub(crate) fn enter(
        &mut self,
        candidate: &str,
        mtu: Option<u16>,
        scratch: &Path,
        settings: &Settings,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<(), PairError> {
        for (number, pair) in (0..).zip(&mut self.pairs) {
            let place = Place {
                number,
                is_pinned: self.is_pinned,
                mtu,
                seed,
            };
            pair.enter(candidate, place, scratch, settings, stop)?;
        }
        Ok(())
    }

    /// Runs a workload on all pairs; returns the counts of the clients and of the servers.
    pub(crate) fn measure(
        &mut self,
        workload: Workload,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<(Side, Side), PairError> {
        let length = workload.length(settings);
        let addresses = self.pairs.iter_mut().map(|pair| pair.listen(workload, stop));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        for (pair, address) in self.pairs.iter_mut().zip(addresses) {
            pair.begin(workload, address, length)?;
        }
        let sides = self.pairs.iter_mut().map(|pair| pair.counted(stop));
        let (clients, servers): (Vec<_>, Vec<_>) = sides.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok((Side::together(clients), Side::together(servers)))
    }

    /// Ends all pairs; returns the last part of their output, for people.
    pub(crate) fn end(self) -> String {
        self.pairs.into_iter().map(Pair::end).collect()
    }

    /// Lets all pairs end by themselves, or ends them.
    pub(crate) fn dismiss(self) {
        self.pairs.iter().for_each(Pair::dismiss);
        self.pairs.into_iter().for_each(Pair::see_off);
    }
}
