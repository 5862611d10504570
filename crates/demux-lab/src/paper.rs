//! The paper's numbers and figures, beside the values of models and simulation.

use serde::Serialize;
use toehold_stack::DemuxStrategy;

use crate::model::exact::{self, Spread};
use crate::model::{self, Users};
use crate::simulation::{Simulated, simulate};
use crate::tpca;

/// The size of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Look-ups for each number.
    pub lookups: u64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// A number of the paper with its counterparts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Description of the number.
    pub what: String,
    /// The printed value; `None` if the paper has none.
    pub paper: Option<f64>,
    /// The value of the paper's equation.
    pub equation: f64,
    /// The value of the closed loop's equation.
    pub exact: f64,
    /// The count of the simulation.
    pub simulated: f64,
}

/// Users of the paper's example.
const USERS: f64 = 2000.0;

/// The paper's response times in seconds, with its values for move-to-front: PCBs
/// that precede at entries, at acknowledgements, and on average.
const MOVE_TO_FRONT: [(f64, [f64; 3]); 4] = [
    (0.2, [1019.0, 78.0, 549.0]),
    (0.5, [1045.0, 190.0, 618.0]),
    (1.0, [1086.0, 362.0, 724.0]),
    (2.0, [1150.0, 659.0, 904.0]),
];

/// Compares the numbers of §3, for 2000 users.
pub fn section_3(effort: Effort) -> Vec<Number> {
    let run = |strategy, of: &Users| simulate(strategy, of, effort.lookups, effort.seed);
    let fast = Users::thinking_ten_seconds(USERS, 0.2);
    let bsd = run(DemuxStrategy::Bsd, &fast);
    let mut numbers = vec![Number {
        what: "bsd, examined (eq. 1)".to_owned(),
        paper: Some(1001.0),
        equation: model::bsd(USERS),
        exact: exact::bsd(&fast),
        simulated: bsd.together.examined,
    }];
    for (response, printed) in MOVE_TO_FRONT {
        let of = Users::thinking_ten_seconds(USERS, response);
        numbers.extend(move_to_front(&of, printed, &run(DemuxStrategy::MoveToFront, &of)));
    }
    // With 100 chains the paper says "less than 9".
    for (chains, printed) in [(19, Some(53.0)), (51, None), (100, Some(9.0))] {
        let simulated = run(DemuxStrategy::Sequent { chains }, &fast);
        numbers.extend(sequent(&fast, chains, printed, &simulated));
    }
    let simulated = run(DemuxStrategy::HashedMoveToFront { chains: 19 }, &fast);
    let hashed = exact::hashed_move_to_front(&fast, 19.0, Spread::Random);
    numbers.push(ours("hashed-move-to-front:19, examined", hashed, &simulated));
    let simulated = run(DemuxStrategy::FlowTable, &fast);
    numbers.push(ours("flow-table, examined", exact::flow_table(&fast), &simulated));
    numbers
}

/// Returns a number without an equation of the paper.
fn ours(what: &str, exact: f64, simulated: &Simulated) -> Number {
    Number {
        what: what.to_owned(),
        paper: None,
        equation: exact,
        exact,
        simulated: simulated.together.examined,
    }
}

fn move_to_front(of: &Users, printed: [f64; 3], simulated: &Simulated) -> [Number; 3] {
    let response = of.response_time;
    let exact = model::closed_loop(DemuxStrategy::MoveToFront, of);
    let number = |what: &str, printed, equation, exact: Option<f64>, examined: f64| Number {
        what: format!("move-to-front, R = {response} s, preceding {what}"),
        paper: Some(printed),
        equation,
        exact: exact.unwrap_or(f64::NAN) - 1.0,
        simulated: examined - 1.0,
    };
    [
        number(
            "at entries (eq. 5)",
            printed[0],
            model::printed_entry(of),
            exact.entry,
            simulated.entries.examined,
        ),
        number(
            "at acknowledgements (N(2R))",
            printed[1],
            model::printed_acknowledgement(of),
            exact.acknowledgement,
            simulated.acknowledgements.examined,
        ),
        number(
            "(eq. 6)",
            printed[2],
            model::printed_move_to_front(of),
            Some(exact.examined),
            simulated.together.examined,
        ),
    ]
}

fn sequent(of: &Users, chains: u32, printed: Option<f64>, simulated: &Simulated) -> [Number; 2] {
    let count = f64::from(chains);
    let quiet = match chains {
        19 => Some(1.5),
        51 => Some(21.0),
        _ => None,
    };
    let exact = model::closed_loop(DemuxStrategy::Sequent { chains }, of);
    [
        Number {
            what: format!("sequent:{chains}, examined (eq. 11)"),
            paper: printed,
            equation: model::printed_sequent(of, count),
            exact: exact.examined,
            simulated: simulated.together.examined,
        },
        Number {
            what: format!("sequent:{chains}, acknowledgements that hit, in % (eq. 9)"),
            paper: quiet,
            equation: 100.0 * model::undisturbed(of, count),
            exact: 100.0 * exact.hits.unwrap_or(f64::NAN),
            simulated: 100.0 * simulated.acknowledgements.cache_hits,
        },
    ]
}

/// A point of figure 4.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Entered {
    /// The span in seconds.
    pub span: f64,
    /// Number of users that enter a transaction within the span, by equation 3.
    pub equation: f64,
    /// Mean number of users that do so in the simulation.
    pub simulated: f64,
}

/// Computes figure 4 for users that never wait, as the equation assumes.
pub fn figure_4(effort: Effort) -> Vec<Entered> {
    let of = Users::thinking_ten_seconds(USERS, 0.0);
    let point = |&span: &f64| Entered {
        span,
        equation: model::others_within(USERS, of.rate, span),
        simulated: tpca::entered_within(&of, span, effort.seed),
    };
    model::FIGURE_4_SPANS.iter().map(point).collect()
}

/// A point of a curve of figure 9: PCBs examined.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The strategy.
    pub strategy: String,
    /// Seconds from a transaction's entry to its result.
    pub response_time: f64,
    /// Number of users.
    pub users: f64,
    /// The paper's value; `None` for a strategy that it does not plot.
    pub paper: Option<f64>,
    /// The value of the closed loop's equations.
    pub exact: f64,
    /// The count of the simulation.
    pub simulated: f64,
}

/// Computes figure 9, with the strategies that the paper does not plot.
pub fn figure_9(users: &[f64], effort: Effort) -> Vec<Point> {
    use DemuxStrategy::{Bsd, FlowTable, HashedMoveToFront, MoveToFront, Sequent};
    let mut points = Vec::new();
    for (strategy, response_time) in [
        (Bsd, 0.2),
        (MoveToFront, 2.0),
        (MoveToFront, 0.2),
        (Sequent { chains: 19 }, 0.2),
        (Sequent { chains: 100 }, 0.2),
        (HashedMoveToFront { chains: 19 }, 0.2),
        (FlowTable, 0.2),
    ] {
        for &users in users {
            let of = &Users::thinking_ten_seconds(users, response_time);
            let simulated = simulate(strategy, of, effort.lookups, effort.seed);
            points.push(Point {
                strategy: strategy.to_string(),
                response_time,
                users,
                paper: model::printed(strategy, of).map(|printed| printed.examined),
                exact: model::closed_loop(strategy, of).examined,
                simulated: simulated.together.examined,
            });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_entries_match_figure_4() {
        for point in figure_4(Effort { lookups: 0, seed: 1 }) {
            let ratio = point.simulated / point.equation;
            // The shortest span sees only eight hundred entries in 20 windows.
            let close = if point.span < 1.0 { 0.08 } else { 0.02 };
            assert!((ratio - 1.0).abs() < close, "{point:?}");
        }
    }

    #[test]
    fn every_number_has_simulated_value() {
        let effort = Effort {
            lookups: 20_000,
            seed: 4,
        };
        for number in section_3(effort).iter().filter(|number| number.exact > 5.0) {
            let ratio = number.simulated / number.exact;
            assert!((ratio - 1.0).abs() < 0.04, "{number:?}");
        }
    }

    #[test]
    fn figure_9_has_every_curve() {
        let effort = Effort {
            lookups: 5_000,
            seed: 4,
        };
        let points = figure_9(&[200.0, 400.0], effort);
        assert_eq!(points.len(), 14);
        for point in &points {
            assert!((point.simulated / point.exact - 1.0).abs() < 0.1, "{point:?}");
        }
    }
}
