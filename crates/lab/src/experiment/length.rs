//! The approximate duration of a plan.

use std::time::Duration;

use super::Plan;
use crate::testbed::Candidate;
use crate::workload::Cell;

/// Overhead of a measurement: to listen, connect and report counts.
const STEP: Duration = Duration::from_millis(15);

/// Time to start a candidate's processes, once a round.
const START: Duration = Duration::from_millis(150);

/// Overhead of each of several clients, in each of their cells.
const CLIENT: Duration = Duration::from_millis(60);

/// Overhead of unmodified programs, with the nodes or namespaces that each cell creates.
const PROGRAMS: Duration = Duration::from_millis(600);

/// Overhead of a site, which is new in each measurement.
const SITE: Duration = Duration::from_millis(2500);

impl Plan {
    /// The approximate duration if every cell is certain after the plan's rounds.
    pub fn length(&self, known: &[Candidate]) -> Duration {
        let candidates = known.iter().filter(|known| {
            self.deployments.is_empty() && self.candidates.iter().any(|name| name == known.name)
        });
        let of_candidate = |candidate: &Candidate| {
            let cells = self
                .cells
                .iter()
                .filter(|cell| (candidate.supports)(&cell.workload));
            let length = |cell: &Cell| {
                let processes = match cell.workload.clients() {
                    _ if candidate.is_of_programs(&cell.workload) => PROGRAMS,
                    0 | 1 => Duration::ZERO,
                    clients => START + CLIENT * clients.into(),
                };
                cell.workload.length(&self.settings) + STEP + processes
            };
            cells.map(length).sum::<Duration>() + START
        };
        let sites = self
            .cells
            .iter()
            .map(|cell| cell.workload.length(&self.settings) + SITE);
        let sites = sites.sum::<Duration>() * u32::try_from(self.deployments.len()).unwrap_or(1);
        (candidates.map(of_candidate).sum::<Duration>() + sites) * self.rounds
    }
}
