//! The machine and the build of the figures. Unreadable facts are absent.

use std::fmt::{self, Display};
use std::fs;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// Facts about the machine that affect figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the processor.
    pub cpu: Option<String>,
    /// Cores online.
    pub cores: usize,
    /// Whether the processor reports a virtual machine.
    pub virtual_machine: bool,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The frequency governor of the first core.
    pub governor: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// Cost of reading the clock, in nanoseconds: it is part of every round trip.
    pub clock_ns: f64,
    /// Transparent huge pages: always, madvise or never.
    pub huge_pages: Option<String>,
    /// The kernel's default congestion control.
    pub default_congestion: Option<String>,
    /// Runnable processes over the minute before the run.
    pub load: Option<f64>,
}

/// The measured build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Version of Toehold.
    pub version: String,
    /// The commit of the build, `unknown` outside of a repository.
    pub commit: String,
    /// Whether files differed from the commit.
    pub dirty: bool,
    /// Cargo's profile: figures of `debug` are meaningless.
    pub profile: String,
}

impl Host {
    /// The facts about this machine, now.
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo
                .lines()
                .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let load = line_of("/proc/loadavg");
        Self {
            cpu: field("model name"),
            cores: sysconf(SysconfVar::_NPROCESSORS_ONLN)
                .ok()
                .flatten()
                .and_then(|n| n.try_into().ok())
                .unwrap_or(1),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            memory: memory(),
            kernel: line_of("/proc/sys/kernel/osrelease"),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_ns: clock_ns(),
            huge_pages: line_of("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| bracketed(&text)),
            default_congestion: line_of("/proc/sys/net/ipv4/tcp_congestion_control"),
            load: load.and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

impl Build {
    /// The build of this program.
    pub fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("TOEHOLD_COMMIT").into(),
            dirty: env!("TOEHOLD_DIRTY") == "true",
            profile: env!("TOEHOLD_PROFILE").into(),
        }
    }
}

/// What two cores share: the less, the longer a cache line takes between them. In a virtual machine
/// it is the reported topology, which may differ from the real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbours {
    /// Threads of one core.
    Threads,
    /// A cache of this level, and none below it.
    Cache(u8),
    /// Memory only.
    Memory,
}

impl Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Neighbours::Threads => f.write_str("threads of one core"),
            Neighbours::Cache(level) => write!(f, "which share a cache of level {level}"),
            Neighbours::Memory => f.write_str("which share no cache"),
        }
    }
}

/// What two cores share, as the kernel reports it.
pub(crate) fn neighbours([one, other]: [usize; 2]) -> Option<Neighbours> {
    let of_one = format!("/sys/devices/system/cpu/cpu{one}");
    let other_is_in = |list: &str| Some(holds(&line_of(&format!("{of_one}/{list}"))?, other));
    if other_is_in("topology/thread_siblings_list")? {
        return Some(Neighbours::Threads);
    }
    // They are numbered from the closest one on.
    let caches = (0..).map_while(|index| {
        let level = line_of(&format!("{of_one}/cache/index{index}/level"))?
            .parse()
            .ok()?;
        Some((
            level,
            other_is_in(&format!("cache/index{index}/shared_cpu_list"))?,
        ))
    });
    let caches = caches.collect::<Vec<(u8, bool)>>();
    let shared = caches.iter().filter(|(_, is_shared)| *is_shared);
    match shared.map(|(level, _)| *level).min() {
        Some(level) => Some(Neighbours::Cache(level)),
        None if caches.is_empty() => None,
        None => Some(Neighbours::Memory),
    }
}

/// Whether a list of the kernel, such as `0-3,8`, contains a core.
fn holds(list: &str, core: usize) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        bounds.is_some_and(|(first, last)| (first..=last).contains(&core))
    })
}

/// Restricts this thread, and those it starts, to the cores.
pub(crate) fn pin(cores: &[usize]) -> nix::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core))?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// The cores on which this process may run, in ascending order.
pub fn usable_cores() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else {
        return vec![0];
    };
    (0..CpuSet::count())
        .filter(|&core| allowed.is_set(core).unwrap_or(false))
        .collect()
}

fn line_of(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The selected word of `always [madvise] never`.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kilobytes
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes * 1024)
}

/// The cost of reading the clock: the least mean of a few series.
fn clock_ns() -> f64 {
    const LOOKS: u32 = 2000;
    let series = (0..10).map(|_| {
        let began = Instant::now();
        for _ in 1..LOOKS {
            std::hint::black_box(Instant::now());
        }
        began.elapsed().as_nanos() as f64 / f64::from(LOOKS)
    });
    series.fold(f64::INFINITY, f64::min)
}

/// Processor time of the whole machine, in seconds over all cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// All time that is not idle.
    pub busy_s: f64,
    /// Time in software interrupts of the kernel.
    pub softirq_s: f64,
    /// Time taken by other virtual machines.
    pub steal_s: f64,
    /// Time of this program and the processes it has started and ended.
    pub own_s: f64,
}

impl MachineUse {
    /// The use since the start of the machine, or of this process.
    pub fn so_far() -> Self {
        let ticks = sysconf(SysconfVar::CLK_TCK)
            .ok()
            .flatten()
            .map_or(100.0, |ticks| ticks as f64);
        let stat = line_of("/proc/stat").unwrap_or_default();
        // user nice system idle iowait irq softirq steal
        let seconds = stat
            .split_whitespace()
            .skip(1)
            .map(|n| n.parse::<f64>().unwrap_or(0.0) / ticks);
        let seconds = seconds.collect::<Vec<_>>();
        let at = |index: usize| seconds.get(index).copied().unwrap_or(0.0);
        Self {
            busy_s: at(0) + at(1) + at(2) + at(5) + at(6),
            softirq_s: at(6),
            steal_s: at(7),
            own_s: own_seconds(UsageWho::RUSAGE_SELF) + own_seconds(UsageWho::RUSAGE_CHILDREN),
        }
    }

    /// The use since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            busy_s: (self.busy_s - before.busy_s).max(0.0),
            softirq_s: (self.softirq_s - before.softirq_s).max(0.0),
            steal_s: (self.steal_s - before.steal_s).max(0.0),
            own_s: (self.own_s - before.own_s).max(0.0),
        }
    }

    /// Time of other programs.
    pub fn others_s(&self) -> f64 {
        (self.busy_s - self.own_s).max(0.0)
    }
}

fn own_seconds(who: UsageWho) -> f64 {
    getrusage(who).map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_round_trip_through_json() {
        let host = Host::read();
        assert!(host.cores >= 1 && host.clock_ns > 0.0 && host.kernel.is_some());
        let text = serde_json::to_string(&host).unwrap();
        let read: Host = serde_json::from_str(&text).unwrap();
        assert_eq!(
            Host {
                clock_ns: host.clock_ns,
                ..read
            },
            host
        );
        assert!(!usable_cores().is_empty());
    }

    #[test]
    fn build_has_its_commit() {
        let build = Build::this();
        let hexadecimal =
            build.commit.len() == 40 && build.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(hexadecimal || build.commit == "unknown", "{}", build.commit);
    }

    #[test]
    fn machine_use_grows() {
        let before = MachineUse::so_far();
        let began = Instant::now();
        while began.elapsed().as_millis() < 50 {}
        let used = MachineUse::so_far().since(&before);
        assert!(used.own_s > 0.0, "{used:?}");
        assert!(used.others_s() <= used.busy_s);
    }

    #[test]
    fn neighbours_follow_kernel_topology() {
        for (list, cores) in [
            ("0", vec![0]),
            ("0-1", vec![0, 1]),
            ("1,3-4", vec![1, 3, 4]),
            ("", vec![]),
        ] {
            let held = (0..6).filter(|&core| holds(list, core)).collect::<Vec<_>>();
            assert_eq!(held, cores, "{list}");
        }
        let own = usable_cores()[0];
        // A core is its own sibling, if the kernel reports siblings.
        assert!(matches!(neighbours([own, own]), None | Some(Neighbours::Threads)));
        assert_eq!(
            neighbours([own, usize::MAX]).filter(|it| *it == Neighbours::Threads),
            None
        );
        assert_eq!(Neighbours::Cache(3).to_string(), "which share a cache of level 3");
    }

    #[test]
    fn bracketed_setting_is_selected() {
        assert_eq!(bracketed("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(bracketed("nothing chosen"), None);
    }
}
