//! Reads that several heads serve at once: a request is done when its last head is.

use serde::{Deserialize, Serialize};

use super::closed::ModelStation;

/// Steps of the integral for the last of several.
const STEPS: u32 = 2000;

/// Standard deviations over which the integral runs, to both sides.
const WIDTH: f64 = 8.0;

/// Reads over the heads of an array.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ForkedReads {
    /// Heads of the array.
    pub heads: u32,
    /// Heads that each read needs in the mean, 1 to `heads`.
    pub touched: f64,
    /// Seconds that a read needs of each of these in the mean.
    pub mean: f64,
    /// The standard deviation of that, in seconds.
    pub deviation: f64,
    /// Seconds that a read needs of the bus.
    pub bus: f64,
}

impl ForkedReads {
    /// The stations of the array. Heads that a read needs together count as one station with the
    /// mean demand; the wait for the last of them is a delay.
    ///
    /// This is an approximation: it takes the heads of a read as independent, and their times as
    /// normal. The bus is no station but a bound: [`ForkedReads::most_throughput`].
    pub fn stations(&self) -> Vec<ModelStation> {
        let heads = f64::from(self.heads.max(1));
        let touched = self.touched.clamp(1.0, heads);
        let groups = (heads / touched).round().max(1.0);
        let group = ModelStation::queue(self.mean / groups);
        let mut stations = vec![group; groups as usize];
        stations.push(ModelStation::delay(self.deviation * last_of(touched)));
        stations
    }

    /// Reads a second that the bus lets pass at most.
    pub fn most_throughput(&self) -> f64 {
        if self.bus > 0.0 {
            1.0 / self.bus
        } else {
            f64::INFINITY
        }
    }
}

/// By how many standard deviations the last of `number` normal times is above the mean.
fn last_of(number: f64) -> f64 {
    // The mean of the largest is the integral of 1 − F(x)ⁿ above 0 less that of F(x)ⁿ below.
    let step = WIDTH / f64::from(STEPS);
    let at = |index: u32| (f64::from(index) + 0.5) * step;
    (0..STEPS)
        .map(|index| {
            let (above, below) = (normal(at(index)), normal(-at(index)));
            (1.0 - above.powf(number) - below.powf(number)) * step
        })
        .sum::<f64>()
        .max(0.0)
}

/// The normal distribution function, to seven digits (Abramowitz and Stegun, 26.2.17).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let factors = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::super::closed::ClosedNetwork;
    use super::*;

    fn reads(touched: f64) -> ForkedReads {
        ForkedReads {
            heads: 4,
            touched,
            mean: 0.01,
            deviation: 0.002,
            bus: 0.001,
        }
    }

    #[test]
    fn last_of_several_normal_times_is_the_known_one() {
        for (number, expected) in [
            (1.0, 0.0),
            (2.0, 0.5642),
            (3.0, 0.8463),
            (5.0, 1.1630),
            (10.0, 1.5388),
        ] {
            assert!(
                (last_of(number) - expected).abs() < 1e-3,
                "{number}: {}",
                last_of(number)
            );
        }
    }

    #[test]
    fn read_of_all_heads_takes_the_last_one() {
        let network = ClosedNetwork::new(reads(4.0).stations()).unwrap();
        let response = network.solve(1).unwrap().response;
        assert!((response - (0.01 + 0.002 * 1.0294)).abs() < 1e-5, "{response}");
    }

    #[test]
    fn reads_of_one_head_each_use_all() {
        let network = ClosedNetwork::new(reads(1.0).stations()).unwrap();
        assert!((network.solve(1).unwrap().response - 0.01).abs() < 1e-9);
        let many = network.solve(500).unwrap().throughput;
        assert!((many / 400.0 - 1.0).abs() < 0.01, "{many}");
        assert_eq!(reads(1.0).most_throughput(), 1000.0);
    }
}
