//! Benchmark of look-ups while a strategy is changed: `toehold bench demux`
//! without its report.
//!
//! `cargo bench -p toehold-demux-lab --bench speed -- 1024,65536 tpca,misses 5`
//! takes numbers of connections, kinds of traffic, and rounds. A further `lists`
//! adds the lists. The output is minimum and median in nanoseconds a look-up.
//!
//! `-- attacks 1048576 5` measures attacks, with this many connections and
//! rounds.

use toehold_demux_lab::speed::{Plan, Traffic, attacks, growth, measure};

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let argument = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or(default.to_owned());
    let parts = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let named = |name: String| {
        let named = Traffic::ALL.into_iter().find(|traffic| traffic.name() == name);
        named.unwrap_or_else(|| panic!("no traffic is called {name}"))
    };
    if argument(0, "") == "attacks" {
        let number = |at, default| argument(at, default).parse().expect("a number");
        for attacked in attacks(number(1, "1048576"), number(2, "5"), 1, |_| {}) {
            println!("{:.2} {attacked:?}", attacked.ratio());
        }
        return;
    }
    let plan = Plan {
        connections: parts(argument(0, "1024,65536,1048576"))
            .iter()
            .map(|count| count.parse().expect("a number of connections"))
            .collect(),
        traffic: parts(argument(1, "tpca,misses")).into_iter().map(named).collect(),
        lists: argument(3, "") == "lists",
        rounds: argument(2, "5").parse().expect("a number of rounds"),
        seed: 1,
    };
    for times in measure(&plan, |_| {}) {
        println!(
            "{:>9} {:8} {:32} {:>9} {:>12.1} {:>12.1}",
            times.connections,
            times.traffic.name(),
            times.candidate,
            times.lookups,
            times.min_ns,
            times.median_ns,
        );
    }
    for grown in growth(plan.connections.iter().copied().max().unwrap_or(1), plan.seed) {
        println!("{grown:?}");
    }
}
