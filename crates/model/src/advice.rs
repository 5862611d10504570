//! Which change of a site pays: each change alone and each pair, ranked by what the model says.

use serde::{Deserialize, Serialize};

use crate::cache::CacheFiles;
use crate::disk::DiskSpeeds;
use crate::site::{SiteError, SitePart, SitePlan, TierCores};

/// Changes in a list at most: pairs grow with the square.
pub const MOST_CHANGES: usize = 32;

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
    /// So many proxies.
    Proxies(u32),
    /// So many web servers.
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
    /// The busiest part after the change.
    pub bottleneck: Option<SitePart>,
}

/// Why there is no advice.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AdviceError {
    /// The list of changes is too long.
    #[error("{0} changes are too many; choose up to {MOST_CHANGES}")]
    Changes(usize),
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

/// Works out what changes would do, alone and in pairs.
///
/// # Errors
///
/// [`AdviceError`] if the site as it is cannot be modelled, or the list is too long.
pub fn advise(
    plan: &SitePlan,
    files: &CacheFiles,
    changes: &[SiteChange],
) -> Result<RankedAdvice, AdviceError> {
    if changes.len() > MOST_CHANGES {
        return Err(AdviceError::Changes(changes.len()));
    }
    let present = outcome(plan, files, &[], 1.0)?;
    let alone = (0..changes.len()).map(|one| vec![one]);
    let pairs =
        (0..changes.len()).flat_map(|one| (one + 1..changes.len()).map(move |other| vec![one, other]));
    let mut ranked: Vec<SiteAdvice> = alone
        .chain(pairs)
        .filter_map(|chosen| {
            let mut changed = plan.clone();
            for &index in &chosen {
                changes[index].apply(&mut changed);
            }
            outcome(&changed, files, &chosen, present.throughput).ok()
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

fn outcome(
    plan: &SitePlan,
    files: &CacheFiles,
    chosen: &[usize],
    present: f64,
) -> Result<SiteAdvice, SiteError> {
    let model = plan.model(files)?;
    let solved = model.solve()?;
    Ok(SiteAdvice {
        changes: chosen.to_vec(),
        throughput: solved.throughput,
        response: solved.response,
        gain: if chosen.is_empty() {
            1.0
        } else {
            solved.throughput / present
        },
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
        let advice = advise(&small(), &files(), &changes).unwrap();
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
        let advice = advise(&plan, &files(), &changes).unwrap();
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
        let advice = advise(&small(), &files(), &changes).unwrap();
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
        assert!(advise(&small(), &files(), &many).is_err());
    }
}
