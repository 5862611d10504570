//! Costs of events, from measured times: what a hit, a miss, a byte costs each.
//!
//! A measured cell has a time, and numbers of events in it. The costs are the non-negative numbers
//! that explain all cells best, by least squares (Lawson and Hanson, "Solving least squares
//! problems", 1974, chapter 23).

use serde::{Deserialize, Serialize};

/// Kinds of events at most.
const MOST_EVENTS: usize = 64;

/// A diagonal entry below this part of the largest one has no digits left.
const SINGULAR: f64 = 1e-12;

/// A gradient below this part of the largest possible one is none.
const FLAT: f64 = 1e-10;

/// A measured cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostCell {
    /// Numbers of events a request, one for each kind.
    pub events: Vec<f64>,
    /// Seconds of processor time a request.
    pub seconds: f64,
}

/// Why no costs can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The cells are fewer than the kinds of events, or events are none or too many.
    #[error(
        "{cells} cells cannot tell {events} kinds of events; measure as many cells, up to {MOST_EVENTS} kinds"
    )]
    Cells {
        /// Measured cells.
        cells: usize,
        /// Kinds of events.
        events: usize,
    },
    /// A cell has another number of events, a number that is not finite, or no time.
    #[error("cell {0} makes no sense: it has finite numbers of all events, and a time above 0")]
    Cell(usize),
}

/// Finds the cost of each kind of event, in seconds. Errors count relative to each cell's time, so
/// that long cells do not decide alone.
///
/// ```
/// use toehold_model::costs::{CostCell, event_costs};
///
/// let cell = |events: [f64; 2], seconds| CostCell { events: events.to_vec(), seconds };
/// let cells = [cell([1.0, 0.0], 2.0), cell([1.0, 10.0], 7.0), cell([1.0, 4.0], 4.0)];
/// let costs = event_costs(&cells).unwrap();
/// assert!((costs[0] - 2.0).abs() < 1e-9 && (costs[1] - 0.5).abs() < 1e-9);
/// ```
///
/// # Errors
///
/// [`CostError`] says which cell makes no sense, or that there are too few.
pub fn event_costs(cells: &[CostCell]) -> Result<Vec<f64>, CostError> {
    let events = cells.first().map_or(0, |cell| cell.events.len());
    if events == 0 || events > MOST_EVENTS || cells.len() < events {
        let cells = cells.len();
        return Err(CostError::Cells { cells, events });
    }
    for (index, cell) in cells.iter().enumerate() {
        let is_meant = cell.events.iter().all(|number| number.is_finite());
        let has_time = cell.seconds.is_finite() && cell.seconds > 0.0;
        if cell.events.len() != events || !is_meant || !has_time {
            return Err(CostError::Cell(index));
        }
    }
    Ok(Normal::of(cells, events).solve())
}

/// The normal equations of the cells, with each kind of event scaled to length 1.
#[derive(Debug)]
struct Normal {
    matrix: Vec<Vec<f64>>,
    right: Vec<f64>,
    scales: Vec<f64>,
}

impl Normal {
    fn of(cells: &[CostCell], events: usize) -> Self {
        let column = |event: usize| cells.iter().map(move |cell| cell.events[event] / cell.seconds);
        let scales: Vec<f64> = (0..events)
            .map(|event| {
                let length = column(event).map(|entry| entry * entry).sum::<f64>().sqrt();
                if length > 0.0 { length } else { 1.0 }
            })
            .collect();
        let product = |one: usize, other: usize| {
            let sum: f64 = column(one).zip(column(other)).map(|(a, b)| a * b).sum();
            sum / scales[one] / scales[other]
        };
        let row = |one| (0..events).map(|other| product(one, other)).collect();
        Self {
            matrix: (0..events).map(row).collect(),
            right: (0..events)
                .map(|event| column(event).sum::<f64>() / scales[event])
                .collect(),
            scales,
        }
    }

    /// Lawson and Hanson's method: events enter one by one while that helps, and leave when their
    /// cost would be negative.
    fn solve(&self) -> Vec<f64> {
        let events = self.right.len();
        let mut costs = vec![0.0; events];
        let mut used = vec![false; events];
        let flat = FLAT * self.right.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
        for _ in 0..3 * events {
            let gradient = |event: usize| {
                let row = self.matrix[event].iter().zip(&costs);
                self.right[event] - row.map(|(entry, cost)| entry * cost).sum::<f64>()
            };
            let unused = (0..events).filter(|&event| !used[event]);
            let steepest = unused
                .map(|event| (event, gradient(event)))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((event, _)) = steepest.filter(|(_, gradient)| *gradient > flat) else {
                break;
            };
            used[event] = true;
            self.settle(&mut costs, &mut used);
        }
        let pairs = costs.iter().zip(&self.scales);
        pairs.map(|(cost, scale)| cost / scale).collect()
    }

    /// Moves to the best costs of the used events; events that reach 0 on the way leave.
    fn settle(&self, costs: &mut [f64], used: &mut [bool]) {
        for _ in 0..=used.len() {
            let best = self.best_of(used);
            let negative = (0..used.len()).filter(|&event| used[event] && best[event] <= 0.0);
            let step =
                negative.map(|event| costs[event] / (costs[event] - best[event]).max(f64::MIN_POSITIVE));
            let step = step.fold(1.0, f64::min);
            for event in 0..used.len() {
                costs[event] += step * (best[event] - costs[event]);
                if used[event] && best[event] <= 0.0 && costs[event] <= 1e-15 {
                    costs[event] = 0.0;
                    used[event] = false;
                }
            }
            if step >= 1.0 {
                return;
            }
        }
    }

    /// Solves the equations of the used events by Cholesky's factors; an event that others explain
    /// wholly has no cost.
    fn best_of(&self, used: &[bool]) -> Vec<f64> {
        let chosen: Vec<usize> = (0..used.len()).filter(|&event| used[event]).collect();
        let size = chosen.len();
        let mut lower = vec![vec![0.0; size]; size];
        for row in 0..size {
            for column in 0..=row {
                let sum: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
                let rest = self.matrix[chosen[row]][chosen[column]] - sum;
                lower[row][column] = if row == column {
                    rest.max(0.0).sqrt()
                } else if lower[column][column] > SINGULAR {
                    rest / lower[column][column]
                } else {
                    0.0
                };
            }
        }
        let divided = |value: f64, by: f64| if by > SINGULAR { value / by } else { 0.0 };
        let mut solution = vec![0.0; size];
        for row in 0..size {
            let sum: f64 = (0..row).map(|k| lower[row][k] * solution[k]).sum();
            solution[row] = divided(self.right[chosen[row]] - sum, lower[row][row]);
        }
        for row in (0..size).rev() {
            let sum: f64 = (row + 1..size).map(|k| lower[k][row] * solution[k]).sum();
            solution[row] = divided(solution[row] - sum, lower[row][row]);
        }
        let mut best = vec![0.0; used.len()];
        for (event, value) in chosen.into_iter().zip(solution) {
            best[event] = value;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(events: &[f64], seconds: f64) -> CostCell {
        CostCell {
            events: events.to_vec(),
            seconds,
        }
    }

    /// The sum of squares of relative errors.
    fn error(cells: &[CostCell], costs: &[f64]) -> f64 {
        let square = |cell: &CostCell| {
            let sum: f64 = cell
                .events
                .iter()
                .zip(costs)
                .map(|(number, cost)| number * cost)
                .sum();
            (sum / cell.seconds - 1.0).powi(2)
        };
        cells.iter().map(square).sum()
    }

    proptest! {
        /// Times that are sums of costs give these costs back.
        #[test]
        fn exact_times_give_their_costs(
            costs in prop::collection::vec(prop_oneof![Just(0.0), 0.1f64..10.0], 3),
            numbers in prop::collection::vec(prop::collection::vec(0.1f64..20.0, 3), 8..15),
        ) {
            let time = |events: &[f64]| events.iter().zip(&costs).map(|(number, cost)| number * cost).sum::<f64>();
            prop_assume!(costs.iter().any(|cost| *cost > 0.0));
            let cells: Vec<CostCell> = numbers.iter().map(|events| cell(events, time(events))).collect();
            let found = event_costs(&cells).unwrap();
            prop_assert!(error(&cells, &found) < 1e-9, "{:?} {:?}", costs, found);
        }

        /// No costs near the found ones, or 0 for some of them, explain the cells better.
        #[test]
        fn noisy_times_give_the_least_error(
            numbers in prop::collection::vec(prop::collection::vec(0.0f64..20.0, 3), 6..12),
            times in prop::collection::vec(0.5f64..50.0, 12),
        ) {
            let cells: Vec<CostCell> = numbers.iter().zip(&times).map(|(events, time)| cell(events, *time)).collect();
            let found = event_costs(&cells).unwrap();
            prop_assert!(found.iter().all(|cost| *cost >= 0.0));
            let least = error(&cells, &found);
            for event in 0..3 {
                for change in [-0.01, 0.01, -1.0, 1.0] {
                    let mut other = found.clone();
                    other[event] = (other[event] + change).max(0.0);
                    prop_assert!(error(&cells, &other) >= least - 1e-9, "{:?} {:?}", found, other);
                }
            }
        }
    }

    #[test]
    fn cost_below_zero_becomes_none() {
        let cells = [
            cell(&[1.0, 1.0], 1.0),
            cell(&[1.0, 2.0], 0.5),
            cell(&[1.0, 3.0], 0.4),
        ];
        let costs = event_costs(&cells).unwrap();
        assert!(costs[0] > 0.0 && costs[1] == 0.0, "{costs:?}");
    }

    #[test]
    fn events_that_cannot_be_told_apart_share_a_cost() {
        let cells = [
            cell(&[1.0, 1.0], 2.0),
            cell(&[2.0, 2.0], 4.0),
            cell(&[3.0, 3.0], 6.0),
        ];
        let costs = event_costs(&cells).unwrap();
        assert!((costs[0] + costs[1] - 2.0).abs() < 1e-6, "{costs:?}");
    }

    #[test]
    fn cells_without_sense_are_refused() {
        assert!(event_costs(&[]).is_err());
        assert!(event_costs(&[cell(&[1.0, 2.0], 1.0)]).is_err());
        assert_eq!(event_costs(&[cell(&[1.0], 0.0)]), Err(CostError::Cell(0)));
        assert_eq!(
            event_costs(&[cell(&[1.0], 1.0), cell(&[], 1.0)]),
            Err(CostError::Cell(1))
        );
        assert_eq!(event_costs(&[cell(&[f64::NAN], 1.0)]), Err(CostError::Cell(0)));
    }
}
