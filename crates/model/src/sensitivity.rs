//! What each station's demand does to a site: the slope that slowing a station measures, too.

use crate::network::{ClosedNetwork, NetworkError};

/// The part by which a demand is changed, up and down.
const STEP: f64 = 1e-3;

/// Returns d ln X / d ln D for each station of a network with so many clients. The slope is the
/// relative change of throughput over a small relative change of that demand. It is 0 or negative.
///
/// ```
/// use toehold_model::network::{ClosedNetwork, ModelStation};
/// use toehold_model::sensitivity::demand_slopes;
///
/// let site = ClosedNetwork::new(vec![ModelStation::queue(0.5), ModelStation::delay(1.5)]).unwrap();
/// let alone = demand_slopes(&site, 1).unwrap();
/// assert!((alone[0] + 0.25).abs() < 1e-5 && (alone[1] + 0.75).abs() < 1e-5);
/// ```
///
/// # Errors
///
/// [`NetworkError`] as [`ClosedNetwork::solve`] has it.
pub fn demand_slopes(network: &ClosedNetwork, clients: usize) -> Result<Vec<f64>, NetworkError> {
    let slopes = (0..network.stations().len()).map(|index| {
        let log_throughput = |factor: f64| {
            let mut stations = network.stations().to_vec();
            stations[index].demand *= factor;
            Ok(ClosedNetwork::new(stations)?.solve(clients)?.throughput.ln())
        };
        if network.stations()[index].demand <= 0.0 || clients == 0 {
            return Ok(0.0);
        }
        let (more, less) = (log_throughput(1.0 + STEP)?, log_throughput(1.0 - STEP)?);
        Ok((more - less) / ((1.0 + STEP).ln() - (1.0 - STEP).ln()))
    });
    slopes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::ModelStation;

    #[test]
    fn slopes_of_all_stations_add_up_to_minus_one() {
        let stations = vec![
            ModelStation::servers(0.4, 2),
            ModelStation::queue(0.3),
            ModelStation::queue(0.1),
            ModelStation::delay(1.0),
        ];
        let network = ClosedNetwork::new(stations).unwrap();
        for clients in [1, 4, 30] {
            let slopes = demand_slopes(&network, clients).unwrap();
            // All demands twice as long halve the throughput.
            assert!(
                (slopes.iter().sum::<f64>() + 1.0).abs() < 1e-5,
                "{clients}: {slopes:?}"
            );
            assert!(slopes.iter().all(|slope| *slope <= 1e-9), "{clients}: {slopes:?}");
        }
    }

    #[test]
    fn full_station_alone_decides() {
        let network = ClosedNetwork::new(vec![ModelStation::queue(1.0), ModelStation::queue(0.2)]).unwrap();
        let slopes = demand_slopes(&network, 50).unwrap();
        assert!(
            (slopes[0] + 1.0).abs() < 1e-6 && slopes[1].abs() < 1e-6,
            "{slopes:?}"
        );
    }
}
