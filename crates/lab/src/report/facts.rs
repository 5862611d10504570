//! The sources of figures: the machine, the build, and the settings.

use super::header::Header;
use super::results::Report;
use crate::experiment::Plan;
use crate::host::Host;
use crate::workload::Cell;

/// All facts on a line.
pub(super) fn line(header: &Header) -> String {
    let host = &header.host;
    format!(
        "{}, {} cores{}, Linux {}; Toehold {}, commit {}; {}",
        host.cpu.as_deref().unwrap_or("unknown processor"),
        host.cores,
        if host.virtual_machine { ", virtual" } else { "" },
        host.kernel.as_deref().unwrap_or("unknown"),
        header.build.version,
        commit(header, 12),
        header.began,
    )
}

/// The commit, the first `length` digits of it.
fn commit(header: &Header, length: usize) -> String {
    let build = &header.build;
    let commit = build.commit.get(..length).unwrap_or(&build.commit);
    let changed = if build.dirty { " with changes" } else { "" };
    format!("{commit}{changed}")
}

/// The known facts, each with its name.
pub(super) fn all(report: &Report) -> Vec<(&'static str, String)> {
    let header = &report.header;
    let build = &header.build;
    let mut facts = host(&header.host);
    facts.extend(other_machine(header));
    facts.extend([
        ("Toehold", format!("{}, {} build", build.version, build.profile)),
        ("Commit", commit(header, usize::MAX)),
        ("Began", header.began.clone()),
    ]);
    facts.extend(settings(report));
    if let Some(paper) = &report.header.plan.paper {
        facts.push(("Paper", paper.section.clone()));
    }
    facts.push(("Results", report.results.display().to_string()));
    facts
}

fn host(host: &Host) -> Vec<(&'static str, String)> {
    let gibibytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let cores = format!(
        "{}{}",
        host.cores,
        if host.virtual_machine {
            ", of a virtual machine"
        } else {
            ""
        }
    );
    let facts = [
        ("Processor", host.cpu.clone()),
        ("Cores", Some(cores)),
        ("Memory", host.memory.map(gibibytes)),
        (
            "Kernel",
            host.kernel.as_ref().map(|release| format!("Linux {release}")),
        ),
        ("Governor of the clock", host.governor.clone()),
        ("Source of time", host.clock_source.clone()),
        ("A look at the clock", Some(format!("{:.0} ns", host.clock_ns))),
        ("Huge pages", host.huge_pages.clone()),
        ("Congestion control, system", host.default_congestion.clone()),
        ("Load before the run", host.load.map(|load| format!("{load}"))),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// The machine of the servers, if it is another one.
fn other_machine(header: &Header) -> Vec<(&'static str, String)> {
    let Some(far) = &header.plan.settings.far else {
        return Vec::new();
    };
    let Some(met) = &header.far else {
        return vec![("Other machine", format!("{}, which was not met", far.host))];
    };
    let Host {
        cpu, cores, kernel, ..
    } = &met.host;
    let machine = format!(
        "{}: {}, {cores} cores, Linux {}",
        far.host,
        cpu.as_deref().unwrap_or("unknown processor"),
        kernel.as_deref().unwrap_or("unknown"),
    );
    let path = format!("server at {}, clients at {}", met.path.server, met.path.client);
    vec![
        ("Other machine, of servers", machine),
        ("Path between machines", path),
    ]
}

fn rounds(plan: &Plan) -> String {
    let more = plan.stop.map_or(String::new(), |stop| {
        format!(
            ", up to {} until half an interval is at most {} % of its figure",
            stop.most_rounds,
            stop.half_width * 100.0
        )
    });
    format!(
        "{}{more}, in an order drawn anew for each (seed {})",
        plan.rounds, plan.seed
    )
}

fn cores(header: &Header) -> String {
    let [server, client] = header.plan.settings.cores;
    let neighbours = header.neighbours.filter(|_| server != client);
    let neighbours = neighbours.map_or(String::new(), |neighbours| format!(", {neighbours}"));
    format!("{server} and {client}{neighbours}")
}

fn settings(report: &Report) -> Vec<(&'static str, String)> {
    let plan = &report.header.plan;
    let settings = &plan.settings;
    let machine = &report.machine;
    let sides = [
        (
            "Each measurement",
            format!(
                "{} ms of warm-up, {} ms that count",
                settings.warm_up_ms, settings.span_ms
            ),
        ),
        ("Cores of server and client", cores(&report.header)),
        ("Congestion control, set", settings.congestion.clone()),
    ];
    let mut facts = vec![
        ("Experiment", plan.experiment.clone()),
        (
            "Workloads",
            plan.cells.iter().map(Cell::name).collect::<Vec<_>>().join(", "),
        ),
        ("Candidates", plan.candidates.join(", ")),
        ("Rounds", rounds(plan)),
    ];
    if plan.is_alone() {
        facts.push(("Core", settings.cores[0].to_string()));
    } else {
        facts.extend(sides);
    }
    facts.extend([
        (
            "The run took",
            format!(
                "{:.0} s{}",
                report.took_ns as f64 / 1e9,
                if report.complete {
                    ""
                } else {
                    ", and was interrupted"
                }
            ),
        ),
        (
            "Processor time of the machine",
            format!(
                "{:.1} s, of which {:.1} s by others than the run; {:.1} s went to other virtual machines",
                machine.busy_s,
                machine.others_s(),
                machine.steal_s
            ),
        ),
    ]);
    facts
}
