use super::*;
use crate::size::Size;
use crate::testbed;
use crate::workload::{Trace, WebServer, Workload};

fn plan() -> Plan {
    let size = |text: &str| text.parse::<Size>().unwrap();
    Plan {
        experiment: "test".into(),
        title: "A test".into(),
        cells: vec![
            Workload::PingPong { size: size("64") }.into(),
            Workload::Stream { size: size("1K") }.into(),
            Workload::Bulk.into(),
            Workload::Connect.into(),
        ],
        candidates: vec!["unix".into(), "floor".into(), "kernel-loopback".into()],
        wanted: Vec::new(),
        show: Vec::new(),
        paper: None,
        stop: None,
        comparisons: vec![Comparison {
            candidate: "unix".into(),
            baseline: "floor".into(),
        }],
        rounds: 5,
        deployments: std::collections::BTreeMap::new(),
        seed: 1,
        settings: Settings {
            warm_up_ms: 1,
            span_ms: 1,
            patience_ms: 1000,
            cores: [0, 1],
            congestion: "reno".into(),
            trace: None,
            far: None,
        },
    }
}

#[test]
fn plan_round_trips_through_json() {
    let text = serde_json::to_string(&plan()).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan());
}

#[test]
fn round_has_each_cell_once_in_order_of_seed() {
    let plan = plan();
    let mut orders = Vec::new();
    for round in 0..plan.rounds {
        let order = plan.order(round);
        assert_eq!(order, plan.order(round), "the same seed gives the same order");
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let all = (0..4).flat_map(|workload| (0..3).map(move |candidate| (workload, candidate)));
        assert_eq!(sorted, all.collect::<Vec<_>>());
        for together in order.chunks(3) {
            assert!(
                together.iter().all(|(workload, _)| *workload == together[0].0),
                "interleaved"
            );
        }
        orders.push(order);
    }
    orders.dedup();
    assert!(orders.len() > 1, "rounds differ");
    assert_ne!(
        Plan {
            seed: 2,
            ..plan.clone()
        }
        .order(0),
        plan.order(0)
    );
}

#[test]
fn invalid_plan_is_explained() {
    let check = |change: fn(&mut Plan)| {
        let mut plan = plan();
        change(&mut plan);
        plan.check(testbed::ALL).unwrap_err().to_string()
    };
    assert_eq!(plan().check(testbed::ALL), Ok(()));
    assert!(check(|plan| plan.experiment = "../escape".into()).contains("no name"));
    assert!(check(|plan| plan.cells.clear()).contains("no workloads"));
    assert!(check(|plan| plan.candidates.clear()).contains("no candidates"));
    assert!(check(|plan| plan.candidates.push("tcp".into())).contains("kernel-veth, "));
    assert!(check(|plan| plan.candidates.push("unix".into())).contains("twice"));
    assert!(check(|plan| plan.cells.push(Workload::Bulk.into())).contains("twice"));
    assert!(
        check(|plan| plan.cells[0] = Workload::FanIn {
            clients: 65,
            size: "64".parse().unwrap()
        }
        .into())
        .contains("1 to 64 clients")
    );
    assert!(check(|plan| plan.rounds = 0).contains("no rounds"));
    assert!(check(|plan| plan.rounds = 1001).contains("at most 1000"));
    assert!(check(|plan| plan.settings.span_ms = 0).contains("0 ms"));
}

#[test]
fn plan_with_log_replaces_synthetic_traces() {
    let alpha = 0.9.try_into().unwrap();
    let (server, clients, trace) = (WebServer::Nginx, 2, Trace::Synthetic);
    let zipf = |trace| Workload::WebZipf {
        server,
        clients,
        trace,
        alpha,
    };
    let mut plan = plan();
    plan.cells.push(zipf(trace).into());
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    // A GET of object 1, answered with 200 and 256 bytes.
    let record = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0];
    std::fs::write(&log, record).unwrap();
    let following = plan.clone().following(&log).unwrap();
    assert_eq!(following.cells[4].workload, zipf(Trace::WorldCup));
    assert_eq!(following.cells[4].name(), "nginx_2_zipf0.9_world-cup");
    assert_eq!(following.cells[..4], plan.cells[..4]);
    assert_eq!(following.settings.trace, Some(log.canonicalize().unwrap()));
    std::fs::write(&log, &record[1..]).unwrap();
    assert!(plan.following(&log).is_err(), "cut off");
}
