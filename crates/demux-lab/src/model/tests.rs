//! The equations against the paper's printed results and their check values.

use super::exact::Spread;
use super::*;

/// The paper's response times, in seconds.
const RESPONSES: [f64; 4] = [0.2, 0.5, 1.0, 2.0];

/// Asserts that a value equals the printed one to its last digit.
#[track_caller]
fn prints(value: f64, printed: &str) {
    let digits = printed.split_once('.').map_or(0, |(_, digits)| digits.len());
    assert_eq!(format!("{value:.digits$}"), printed, "the value is {value}");
}

fn two_thousand(response: f64) -> Users {
    Users::thinking_ten_seconds(2000.0, response)
}

#[test]
fn equation_1_matches_print() {
    prints(bsd(2000.0), "1000.99975");
    // "a linear scan of 1,001 PCBs"
    prints(bsd(2000.0), "1001");
}

#[test]
fn equation_3_matches_figure_4() {
    let expected = [
        "39.6", "190.2", "362.4", "786.5", "1263.6", "1728.5", "1899.5", "1985.5",
    ];
    for (point, expected) in figure_4(2000.0, 0.1, &FIGURE_4_SPANS).iter().zip(expected) {
        prints(point.users, expected);
    }
}

/// The closed form equals the paper's sum.
#[test]
fn equation_3_equals_printed_sum() {
    for (users, span) in [(1, 1.0), (2, 5.0), (50, 0.2), (300, 7.0)] {
        let others = users - 1;
        let entered = entered_within(0.1, span);
        let mut ways = 1.0;
        let mut sum = 0.0;
        for i in 0..=others {
            sum += f64::from(i) * ways * entered.powi(i) * (1.0 - entered).powi(others - i);
            ways *= f64::from(others - i) / f64::from(i + 1);
        }
        let closed = others_within(f64::from(users), 0.1, span);
        assert!((sum - closed).abs() < 1e-9 * (1.0 + closed), "{sum} {closed}");
    }
}

/// The closed form equals the paper's two integrals.
#[test]
fn equation_5_equals_printed_integrals() {
    for response in RESPONSES {
        let of = two_thousand(response);
        let precede = |think: f64| {
            let span = if think < response {
                2.0 * think
            } else {
                think + response
            };
            0.1 * (-0.1 * think).exp() * others_within(2000.0, 0.1, span)
        };
        // By the midpoint rule, up to thirty mean think times.
        let step = 0.001;
        let sum: f64 = (0..300_000)
            .map(|i| precede((f64::from(i) + 0.5) * step) * step)
            .sum();
        assert!((sum - printed_entry(&of)).abs() < 1e-3, "{sum}");
    }
}

#[test]
fn equation_5_matches_print() {
    for (response, expected) in RESPONSES
        .into_iter()
        .zip(["1018.9", "1045.9", "1085.9", "1149.8"])
    {
        prints(printed_entry(&two_thousand(response)), expected);
    }
}

#[test]
fn acknowledgements_in_order_of_use_match_print() {
    for (response, expected) in RESPONSES.into_iter().zip(["78.4", "190.2", "362.4", "659.0"]) {
        prints(printed_acknowledgement(&two_thousand(response)), expected);
    }
}

#[test]
fn equation_6_matches_print() {
    let expected = ["548.6", "618.1", "724.1", "904.4"];
    for ((response, check), printed) in RESPONSES
        .into_iter()
        .zip(expected)
        .zip(["549", "618", "724", "904"])
    {
        prints(printed_move_to_front(&two_thousand(response)), check);
        prints(printed_move_to_front(&two_thousand(response)), printed);
    }
    prints(corrected_move_to_front(&two_thousand(0.2)), "549.6");
}

#[test]
fn equations_8_and_11_match_print() {
    prints(sequent_uniform(2000.0, 19.0), "53.63");
    for (chains, printed, corrected) in [
        (19.0, "52.98", "53.47"),
        (51.0, "18.28", "18.67"),
        (100.0, "8.52", "8.78"),
    ] {
        let of = two_thousand(0.2);
        prints(printed_sequent(&of, chains), printed);
        prints(corrected_sequent(&of, chains), corrected);
        let mean = (sequent_uniform(2000.0, chains) + printed_sequent_acknowledgement(&of, chains)) / 2.0;
        assert!((mean - printed_sequent(&of, chains)).abs() < 1e-9);
        // The misprinted equation does not give the paper's figures.
        assert!(misprinted_sequent(&of, chains) > 9.0 * mean);
    }
}

#[test]
fn equation_9_matches_print() {
    let of = two_thousand(0.2);
    let one = format!("{:.2e}", undisturbed(&of, 1.0));
    assert_eq!(one, "1.88e-35");
    prints(100.0 * undisturbed(&of, 19.0), "1.54");
    prints(100.0 * undisturbed(&of, 51.0), "21.7");
}

#[test]
fn figure_9_has_printed_curves() {
    let expected = [
        ("251", "225.8", "137.0", "11.6", "2.3"),
        ("501", "452.0", "274.2", "25.4", "4.2"),
        ("1001", "904.4", "548.6", "53.0", "8.5"),
        ("2501", "2261.7", "1372.0", "132.3", "24.0"),
        ("5001", "4523.9", "2744.3", "263.9", "50.3"),
    ];
    for (point, (bsd, slow, fast, few, many)) in figure_9(&FIGURE_9_USERS).iter().zip(expected) {
        prints(point.bsd, bsd);
        prints(point.move_to_front[0], slow);
        prints(point.move_to_front[3], fast);
        prints(point.sequent_19, few);
        prints(point.sequent_100, many);
    }
}

/// Move-to-front in a closed loop, counted in preceding PCBs.
#[test]
fn closed_loop_in_order_of_use_matches_closed_form() {
    for (response, expected) in RESPONSES.into_iter().zip(["548.4", "616.4", "718.1", "885.0"]) {
        let of = two_thousand(response);
        prints(exact::preceding(&of), expected);
        // The integral in closed form: the thinking half, and the edge at R.
        let load = of.load();
        let entry = (0.5 + load - entered_within(1.0, load)) / (1.0 + load);
        let acknowledgement = (-load).exp() / (1.0 + load);
        let closed = 1999.0 * (1.0 - (entry + acknowledgement) / 2.0);
        assert!((exact::preceding(&of) - closed).abs() < 1e-6);
        assert_eq!(exact::move_to_front(&of), exact::preceding(&of) + 1.0);
    }
}

/// Compares with recorded simulations of the closed loop, with even chains and with
/// a random hash. They have noise, and their chains are only nearly even.
#[test]
fn closed_loop_in_chains_matches_simulation() {
    for (chains, even, random) in [(19.0, 53.5, 53.9), (51.0, 18.7, 19.2), (100.0, 8.84, 9.38)] {
        let of = two_thousand(0.2);
        for (spread, simulated) in [(Spread::Even, even), (Spread::Random, random)] {
            let exact = exact::sequent(&of, chains, spread);
            assert!((exact / simulated - 1.0).abs() < 0.005, "{exact}, {simulated}");
        }
    }
    prints(exact::bsd(&two_thousand(0.2)), "1001");
    prints(exact::flow_table(&two_thousand(0.2)), "2.00");
}

/// The closed form equals the summed mean of the binomial distribution.
#[test]
fn random_chains_equal_mean_over_all_chains() {
    let of = Users::thinking_ten_seconds(40.0, 2.0);
    let chains = 7.0;
    let mut ways = 1.0;
    let mut sum = 0.0;
    for k in 0..40 {
        let likely = ways * f64::powi(1.0 / chains, k) * f64::powi(1.0 - 1.0 / chains, 39 - k);
        let chain = Users::thinking_ten_seconds(f64::from(k) + 1.0, 2.0);
        sum += likely * exact::sequent(&chain, 1.0, Spread::Even);
        ways *= f64::from(39 - k) / f64::from(k + 1);
    }
    assert!((sum - exact::sequent(&of, chains, Spread::Random)).abs() < 1e-9);
}

#[test]
fn model_has_all_equations() {
    let model = Model::of(two_thousand(0.2), 19);
    assert_eq!(model.bsd, bsd(2000.0));
    prints(model.sequent_printed, "52.98");
    prints(model.exact.hashed_move_to_front, "29.9");
    assert!(model.exact.sequent_cache_hits > model.undisturbed / 2.0);
}
