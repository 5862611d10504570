//! About how long a plan takes.

use std::time::Duration;

use super::Plan;
use crate::testbed::Candidate;
use crate::workload::Cell;

/// What a measurement takes besides its traffic: to listen, connect, say what was counted.
const STEP: Duration = Duration::from_millis(15);

/// What it takes to start a candidate's processes, once a round.
const START: Duration = Duration::from_millis(150);

/// What each of several clients adds to that, in each of their cells.
const CLIENT: Duration = Duration::from_millis(60);

/// What programs of others add to that, with the nodes or namespaces that each cell has for itself.
const PROGRAMS: Duration = Duration::from_millis(600);

impl Plan {
    /// About how long it takes if every cell is sure after the rounds that the plan has.
    pub fn length(&self, known: &[Candidate]) -> Duration {
        let candidates = known
            .iter()
            .filter(|known| self.candidates.iter().any(|name| name == known.name));
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
        candidates.map(of_candidate).sum::<Duration>() * self.rounds
    }
}
