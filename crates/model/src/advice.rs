//! Which change of a site pays: each change alone and each pair, ranked by what the model says.

use serde::{Deserialize, Serialize};

use crate::cache::CacheFiles;
use crate::disk::DiskSpeeds;
use crate::site::{SiteError, SitePart, SitePlan, TierCores};

/// Changes in a list at most: pairs grow with the square.
pub const MOST_CHANGES: usize = 32;

/// Plans with other costs at most.
pub const MOST_RESAMPLED: usize = 256;

/// A change of a site.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteChange {
    /// Another disk in each web server.
    Disk(DiskSpeeds),
    /// Files of each web server spread over so many disks.
    Spread(u32),
    /// The page cache of each web server so many times as large.
    Memory(u32),
    /// The cache of each proxy so many times as large.
    ProxyCache(u32),
    /// Number of proxies.
    Proxies(u32),
    /// Number of web servers.
    Servers(u32),
    /// Each core of the proxies and web servers so many times as fast.
    Speed(f64),
    /// Each group of cores of the proxies and web servers with so many times as many cores.
    Cores(u32),
}

impl SiteChange {
    /// Applies the change to a plan.
    pub fn apply(&self, plan: &mut SitePlan) {
        match *self {
            Self::Disk(disk) => plan.disk = disk,
            Self::Spread(disks) => plan.disks = disks,
            Self::Memory(factor) => plan.servers.cache = plan.servers.cache.saturating_mul(factor.into()),
            Self::ProxyCache(factor) => plan.proxies.cache = plan.proxies.cache.saturating_mul(factor.into()),
            Self::Proxies(number) => plan.proxies.nodes = number,
            Self::Servers(number) => plan.servers.nodes = number,
            Self::Speed(factor) => {
                plan.proxies.speed *= factor;
                plan.servers.speed *= factor;
            }
            Self::Cores(factor) => more_cores(plan, factor),
        }
    }
}

/// Multiplies the cores of proxies and web servers; a group that both share once.
fn more_cores(plan: &mut SitePlan, factor: u32) {
    let mut groups = Vec::new();
    for tier in [&mut plan.proxies, &mut plan.servers] {
        match &mut tier.cores {
            TierCores::Own(cores) => *cores = cores.saturating_mul(factor),
            TierCores::Shared(group) if !groups.contains(group) => groups.push(*group),
            TierCores::Shared(_) => {}
        }
    }
    for group in groups {
        if let Some(cores) = plan.shared.get_mut(group) {
            *cores = cores.saturating_mul(factor);
        }
    }
}

/// What one change, or two together, would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteAdvice {
    /// Indices of the changes in the list.
    pub changes: Vec<usize>,
    /// Requests a second.
    pub throughput: f64,
    /// Seconds from a request to its answer.
    pub response: f64,
    /// Throughput over that of the site as it is.
    pub gain: f64,
    /// The middle nine tenths of the gains with other costs that the measurements allow, too. Both
    /// ends are the gain where there are no other costs.
    pub interval: [f64; 2],
    /// The busiest part after the change.
    pub bottleneck: Option<SitePart>,
}

/// Why there is no advice.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AdviceError {
    /// The list of changes is too long.
    #[error("{0} changes are too many; choose up to {MOST_CHANGES}")]
    Changes(usize),
    /// There are too many plans with other costs.
    #[error("{0} resampled plans are too many; choose up to {MOST_RESAMPLED}")]
    Resampled(usize),
    /// The site as it is cannot be modelled.
    #[error(transparent)]
    Site(#[from] SiteError),
}

/// What advice compares: the site as it is, and each change and pair of changes, the best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankedAdvice {
    /// The site as it is.
    pub present: SiteAdvice,
    /// Changes by gain. A change that makes no sense for this site is left out.
    pub ranked: Vec<SiteAdvice>,
}

impl RankedAdvice {
    /// Returns `true` if a change gains more than its interval leaves in doubt.
    pub fn is_any_worth_it(&self) -> bool {
        self.ranked.iter().any(|advice| advice.interval[0] > 1.0)
    }
}

/// Works out what changes would do, alone and in pairs. `resampled` are plans of the same site with
/// other costs that its measurements allow, too; they give each gain its interval.
///
/// # Errors
///
/// [`AdviceError`] if the site as it is cannot be modelled, or a list is too long.
pub fn advise(
    plan: &SitePlan,
    resampled: &[SitePlan],
    files: &CacheFiles,
    changes: &[SiteChange],
) -> Result<RankedAdvice, AdviceError> {
    if changes.len() > MOST_CHANGES {
        return Err(AdviceError::Changes(changes.len()));
    }
    if resampled.len() > MOST_RESAMPLED {
        return Err(AdviceError::Resampled(resampled.len()));
    }
    let present = outcome(plan, files, &[], 1.0)?;
    let others = resampled
        .iter()
        .map(|other| Ok((other, other.model(files)?.solve()?.throughput)));
    let others: Vec<(&SitePlan, f64)> = others.collect::<Result<_, SiteError>>()?;
    let alone = (0..changes.len()).map(|one| vec![one]);
    let pairs =
        (0..changes.len()).flat_map(|one| (one + 1..changes.len()).map(move |other| vec![one, other]));
    let mut ranked: Vec<SiteAdvice> = alone
        .chain(pairs)
        .filter_map(|chosen| {
            let mut advice = outcome(
                &changed(plan, &chosen, changes),
                files,
                &chosen,
                present.throughput,
            )
            .ok()?;
            let gains = others.iter().filter_map(|(other, before)| {
                let changed = changed(other, &chosen, changes);
                Some(changed.model(files).ok()?.solve().ok()?.throughput / before)
            });
            advice.interval = interval(gains.collect()).unwrap_or(advice.interval);
            Some(advice)
        })
        .collect();
    // Of equal gains, the change that stands alone comes first.
    ranked.sort_by(|one, other| {
        other
            .gain
            .total_cmp(&one.gain)
            .then(one.changes.len().cmp(&other.changes.len()))
    });
    Ok(RankedAdvice { present, ranked })
}

/// A plan with the chosen ones of a list of changes.
fn changed(plan: &SitePlan, chosen: &[usize], changes: &[SiteChange]) -> SitePlan {
    let mut changed = plan.clone();
    for &index in chosen {
        changes[index].apply(&mut changed);
    }
    changed
}

/// The middle nine tenths of values.
fn interval(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = values.len().checked_sub(1)?;
        values.get((last as f64 * share).round() as usize).copied()
    };
    Some([at(0.05)?, at(0.95)?])
}

fn outcome(
    plan: &SitePlan,
    files: &CacheFiles,
    chosen: &[usize],
    present: f64,
) -> Result<SiteAdvice, SiteError> {
    let model = plan.model(files)?;
    let solved = model.solve()?;
    let gain = if chosen.is_empty() {
        1.0
    } else {
        solved.throughput / present
    };
    Ok(SiteAdvice {
        changes: chosen.to_vec(),
        throughput: solved.throughput,
        response: solved.response,
        gain,
        interval: [gain; 2],
        bottleneck: model.bottleneck(&solved),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::tests::{files, small};

    fn faster_disk() -> SiteChange {
        SiteChange::Disk(DiskSpeeds {
            positioning: 5.5e-3,
            rate: 60e6,
            ..small().disk
        })
    }

    #[test]
    fn site_with_slow_disks_is_told_to_change_them() {
        let changes = [SiteChange::Speed(2.0), faster_disk(), SiteChange::Proxies(5)];
        let advice = advise(&small(), &[], &files(), &changes).unwrap();
        let alone: Vec<usize> = advice
            .ranked
            .iter()
            .filter(|one| one.changes.len() == 1)
            .map(|one| one.changes[0])
            .collect();
        assert_eq!(alone[0], 1, "{advice:?}");
        assert_eq!(advice.ranked.len(), 6);
        assert_eq!(advice.present.bottleneck, Some(SitePart::Disk));
    }

    #[test]
    fn site_with_all_in_memory_is_told_to_change_cores() {
        let mut plan = small();
        plan.servers.cache = 1 << 30;
        let changes = [faster_disk(), SiteChange::Cores(2), SiteChange::Memory(2)];
        let advice = advise(&plan, &[], &files(), &changes).unwrap();
        assert_eq!(advice.ranked[0].changes[0], 1, "{advice:?}");
        let disk = advice.ranked.iter().find(|one| one.changes == [0]).unwrap();
        assert!((disk.gain - 1.0).abs() < 1e-9);
    }

    #[test]
    fn pair_of_changes_is_at_least_its_better_half() {
        let changes = [
            faster_disk(),
            SiteChange::Memory(2),
            SiteChange::Cores(2),
            SiteChange::Spread(3),
        ];
        let advice = advise(&small(), &[], &files(), &changes).unwrap();
        let gain = |chosen: &[usize]| {
            advice
                .ranked
                .iter()
                .find(|one| one.changes == chosen)
                .unwrap()
                .gain
        };
        for one in 0..changes.len() {
            for other in one + 1..changes.len() {
                let better = gain(&[one]).max(gain(&[other]));
                assert!(gain(&[one, other]) > better - 1e-9, "{one} {other}");
            }
        }
    }

    #[test]
    fn change_without_sense_is_left_out() {
        let advice = advise(
            &small(),
            &[],
            &files(),
            &[SiteChange::Proxies(0), SiteChange::Memory(2)],
        )
        .unwrap();
        assert_eq!(
            advice
                .ranked
                .iter()
                .map(|one| one.changes.clone())
                .collect::<Vec<_>>(),
            [[1]]
        );
        let many = [SiteChange::Memory(2); MOST_CHANGES + 1];
        assert!(advise(&small(), &[], &files(), &many).is_err());
    }

    #[test]
    fn gain_within_its_interval_is_not_worth_it() {
        let mut plan = small();
        plan.servers.cache = 1 << 30;
        let cost = |factor: f64| {
            let mut other = plan.clone();
            other.servers.costs.hit *= factor;
            other
        };
        let resampled = [cost(0.8), cost(0.9), cost(1.1), cost(1.2)];
        let advise = |change| advise(&plan, &resampled, &files(), &[change]).unwrap();
        let cores = advise(SiteChange::Cores(2));
        let [least, most] = cores.ranked[0].interval;
        assert!(
            cores.is_any_worth_it() && least < cores.ranked[0].gain && cores.ranked[0].gain < most,
            "{cores:?}"
        );
        assert!(!advise(SiteChange::Memory(2)).is_any_worth_it());
        let many = vec![plan.clone(); MOST_RESAMPLED + 1];
        assert!(super::advise(&plan, &many, &files(), &[]).is_err());
    }
}
