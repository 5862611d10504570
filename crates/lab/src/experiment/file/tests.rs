use super::*;
use crate::workload::{Cell, KINDS, Workload};

const SMALL: &str = r#"
name = "test/small"
title = "A small one"
candidates = ["unix", "kernel-loopback"]
compare = ["unix/kernel-loopback"]
show = ["interrupts"]

[factors]
size = ["64", 1024]
mtu = [1500, 9000]

[[workload]]
kind = "ping-pong"

[[workload]]
kind = "connect"
mtu = 1500
quick = false

[measure]
rounds = 7
most-rounds = 20
half-width = 0.1

[quick]
candidates = ["unix"]
factors = { size = "1K" }
measure = { span-ms = 5 }

[paper]
section = "4"
says = [
    { text = "less" },
    { text = "half", figure = "latency_64B_mtu1500/unix/kernel-loopback", value = 0.5, unit = "ratio" },
]
"#;

fn names(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(Cell::name).collect()
}

#[test]
fn workloads_are_measured_at_every_combination_of_their_factors() {
    let file = PlanFile::parse("small.toml", SMALL).unwrap();
    let plan = file.plan(false, 3, [0, 1]);
    assert_eq!((file.name(), plan.seed, plan.rounds), ("test/small", 3, 7));
    assert_eq!(
        names(&plan),
        [
            "latency_64B_mtu1500",
            "latency_64B_mtu9000",
            "latency_1K_mtu1500",
            "latency_1K_mtu9000",
            "connect_mtu1500"
        ]
    );
    let stop = plan.stop.unwrap();
    assert_eq!((stop.half_width, stop.most_rounds), (0.1, 20));
    assert_eq!(plan.settings.cores, [0, 1]);
    assert_eq!(plan.paper.unwrap().says[1].value, Some(0.5));
}

#[test]
fn short_form_has_its_own_settings() {
    let file = PlanFile::parse("small.toml", SMALL).unwrap();
    let plan = file.plan(true, 3, [0, 1]);
    assert_eq!(names(&plan), ["latency_1K_mtu1500", "latency_1K_mtu9000"]);
    assert_eq!((plan.candidates.len(), plan.comparisons.len()), (1, 0));
    assert_eq!((plan.rounds, plan.settings.span_ms, plan.stop), (5, 5, None));
}

/// The message for the file with one thing replaced.
fn mistake(right: &str, wrong: &str) -> String {
    assert!(SMALL.contains(right), "{right}");
    let text = SMALL.replacen(right, wrong, 1);
    PlanFile::parse("small.toml", &text).unwrap_err().to_string()
}

#[test]
fn mistakes_are_reported_with_their_line() {
    for (right, wrong, said) in [
        (
            "9000]",
            "9000]\nclients = 3",
            "small.toml:11: no workload of this plan takes the factor `clients`",
        ),
        (
            "\"interrupts\"",
            "\"signals\"",
            "small.toml:6: no figure has a part `signals`; there are bandwidth, cpu_client",
        ),
        ("title =", "heading =", "small.toml:3: unknown field `heading`"),
        ("rounds = 7", "rounds = seven", "small.toml:21: "),
        ("rounds = 7", "rounds = \"7\"", "small.toml:21: invalid type"),
        (
            "\"unix\", \"kernel",
            "\"tcp\", \"kernel",
            "small.toml:4: there is no candidate `tcp`; there are direct, toehold",
        ),
        (
            "\"kernel-loopback\"]\n",
            "\"unix\"]\n",
            "small.toml:4: `unix` is here twice",
        ),
        (
            "unix/kernel",
            "floor/kernel",
            "small.toml:5: `floor` is none of this plan's",
        ),
        (
            "unix/kernel-loopback",
            "unix",
            "small.toml:5: write a comparison as",
        ),
        (
            "size = [",
            "width = [",
            "small.toml:12: workload `ping-pong` needs `size`",
        ),
        ("\"64\", 1024", "\"64\", 0", "`0` is not a message size"),
        ("\"64\", 1024", "", "small.toml:9: `size` has no values"),
        (
            "[\"unix\", \"kernel-loopback\"]",
            "[]",
            "small.toml:4: `candidates` is empty: name",
        ),
        (
            "candidates = [\"unix\"]\nfactors",
            "candidates = []\nfactors",
            "small.toml:26: `candidates` is empty",
        ),
        (
            "\"ping-pong\"",
            "\"pingpong\"",
            "small.toml:13: there is no workload `pingpong`; there are ping-pong",
        ),
        (
            "kind = \"connect\"",
            "kind = \"connect\"\nsize = 1",
            "small.toml:17: workload `connect` has no `size`",
        ),
        (
            "kind = \"connect\"",
            "kind = \"acknowledgement\"",
            "small.toml:15: workload `acknowledgement` needs `times`",
        ),
        (
            "latency_64B_mtu1500/",
            "latency_65B_mtu1500/",
            "no `latency_65B_mtu1500/unix/kernel-loopback` is measured",
        ),
        (", unit = \"ratio\"", "", "small.toml:34: a number needs"),
        (
            "value = 0.5, unit = \"ratio\"",
            "is = \"less\"",
            "small.toml:34: a number needs `figure`, `value` and `unit`, a trend `figure`, `is` and `than`",
        ),
        (
            "value = 0.5, unit = \"ratio\"",
            "is = \"less\", than = \"latency_1K/unix\"",
            "small.toml:34: no `latency_1K/unix` is measured",
        ),
        (
            "\"test/small\"",
            "\"../small\"",
            "small.toml:2: `../small` is no name",
        ),
        (
            "rounds = 7",
            "rounds = 0",
            "small.toml:20: the plan has no rounds",
        ),
        (
            "rounds = 7",
            "rounds = 2000",
            "small.toml:20: 2000 rounds: at most",
        ),
        (
            "rounds = 7",
            "rounds = 7\nspan-ms = 9000000000000000000",
            "small.toml:20: a span of 9000000000000000000 ms",
        ),
        (
            "rounds = 7",
            "rounds = 7\npatience-ms = 0",
            "small.toml:20: a patience of 0 ms: it takes 1",
        ),
        (
            "half-width = 0.1",
            "half-width = nan",
            "small.toml:20: half-width is NaN",
        ),
        (
            "half-width = 0.1",
            "",
            "small.toml:20: `half-width` and `most-rounds` take one another",
        ),
        (
            "half-width = 0.1",
            "half-width = 0.1\ncongestion = \"\"",
            "small.toml:20: `` is not the name of a congestion control",
        ),
        (
            "span-ms = 5",
            "span-ms = 0",
            "small.toml:28: a span of 0 ms: it takes 1",
        ),
        ("\"A small one\"", "\"\\u001b[2J\"", "the title has characters"),
        (
            "[\"unix/kernel-loopback\"]",
            "[\"unix/unix\"]",
            "small.toml:5: `unix` is compared with itself",
        ),
        (
            "[\"unix/kernel-loopback\"]",
            "[\"unix/kernel-loopback\", \"unix/kernel-loopback\"]",
            "small.toml:5: `unix/kernel-loopback` is here twice",
        ),
        (
            "\"64\", 1024",
            "\"64\", 64",
            "small.toml:12: `latency_64B_mtu1500` is in the plan twice",
        ),
        ("mtu = 1500", "mtu = 67", "small.toml:15: an MTU of 67: it is 68"),
        (
            "mtu = 1500",
            "mtu = 65536",
            "expected a whole number from 0 to 65535",
        ),
        (
            "kind = \"connect\"",
            "kind = \"layout\"\nsize = 64\ntrips = 2001",
            "2001 round trips: a block can have 10 to 2000",
        ),
        (
            "quick = false",
            "quick = 5",
            "small.toml:18: `quick` is true or false",
        ),
        (
            "kind = \"connect\"",
            "kind = \"entries\"\nusers = 5\nspan-ms = 1",
            "small.toml:15: none of the plan's candidates can be measured with `entries`; those that can are",
        ),
    ] {
        let found = mistake(right, wrong);
        assert!(found.contains(said), "{wrong}: {found}");
    }
}

#[test]
fn every_kind_can_be_written_with_its_fields() {
    for (kind, takes) in KINDS {
        let value = |field: &str| match field {
            "server" => "\"nginx\"",
            "library" => "\"mpich\"",
            "program" => "\"nginx-1k\"",
            "strategy" => "\"sequent:7\"",
            "trace" => "\"synthetic\"",
            "content" => "\"class1\"",
            "start" => "\"cold\"",
            "size" | "buffer" => "\"2K\"",
            "cached" => "true",
            "trips" => "20",
            _ => "2",
        };
        let fields = takes.iter().map(|field| format!("{field} = {}\n", value(field)));
        let fields: String = fields.collect();
        let candidates = match *kind {
            "site" | "file-read" | "file-write" => {
                "[\"a\"]\n[deployment.a]\nbase = \"small\"\nstorage = { file-system = \"tmpfs\" }"
            }
            _ => "[\"unix\", \"adaptive\", \"kernel-veth\", \"measured\", \"simulation\"]",
        };
        let text = format!(
            "name = \"t\"\ntitle = \"t\"\ncandidates = {candidates}\n[[workload]]\nkind = \"{kind}\"\n{fields}"
        );
        let file = PlanFile::parse("t", &text).unwrap_or_else(|error| panic!("{error}"));
        let workload: Workload = file.plan(false, 0, [0, 0]).cells[0].workload;
        assert_eq!(workload.kind(), *kind);
    }
}

#[test]
fn workers_without_choice_are_refused() {
    let text = "name = \"t\"\ntitle = \"t\"\ncandidates = [\"toehold\", \"unix\"]\n[[workload]]\nkind = \"workers\"\n\
        program = \"nginx-short\"\nworkers = 4\nclients = 16\nloops = 2\n";
    let cell = PlanFile::parse("t", text).unwrap().plan(false, 0, [0, 1]).cells[0];
    assert_eq!(cell.name(), "nginx-short_4w_16c_2l");
    assert_eq!(cell.metric_names()[1], "nginx-short_p50_4w_16c_2l");
    assert_eq!(
        cell.title(),
        "nginx, 1 KB, a connection a request, 4 workers, 16 clients, beside 2 busy loops"
    );
    let mistake = |from: &str, to: &str| {
        let text = text.replace(from, to);
        PlanFile::parse("t", &text).unwrap_err().to_string()
    };
    let forked = mistake("nginx-short", "postgresql");
    assert!(
        forked.contains("postgresql has a process or a thread for each client"),
        "{forked}"
    );
    let unknown = mistake("nginx-short", "gopher");
    assert!(
        unknown.contains("unknown variant `gopher`, expected one of"),
        "{unknown}"
    );
    let many = mistake("workers = 4", "workers = 65");
    assert!(many.contains("1 to 64 workers"), "{many}");
    // Apache, which is behind Varnish, has no Unix sockets.
    let text = text
        .replace("nginx-short", "varnish-40")
        .replace("\"toehold\", ", "");
    let unsupported = PlanFile::parse("t", &text).unwrap_err().to_string();
    assert!(
        unsupported.contains("none of the plan's candidates"),
        "{unsupported}"
    );
}

#[test]
fn unknown_web_server_is_a_mistake() {
    let text = "name = \"t\"\ntitle = \"t\"\ncandidates = [\"inline\"]\n[[workload]]\nkind = \"web\"\n\
        clients = 2\nsize = \"1K\"\nserver = \"gopher\"\n";
    let error = PlanFile::parse("t", text).unwrap_err().to_string();
    assert!(
        error.contains("unknown variant `gopher`, expected `apache` or `nginx`"),
        "{error}"
    );
    let file = PlanFile::parse("t", &text.replace("gopher", "apache")).unwrap();
    let cell = file.plan(false, 0, [0, 0]).cells[0];
    assert_eq!(cell.name(), "apache_2_1K");
    assert_eq!(cell.metric_names()[1], "apache_p50_2_1K");
    assert_eq!(cell.workload.clients(), 1, "all of them are one process");
}

#[test]
fn invalid_value_is_reported_with_its_line() {
    let text = "name = \"t\"\ntitle = \"t\"\ncandidates = [\"model\"]\n[[workload]]\nkind = \"look-up\"\n\
        users = [500, 2000]\nresponse-ms = 200\nstrategy = [\"bsd\", \"sequent:19\"]\nlookups = 100\n";
    for (right, wrong, said) in [
        (
            "sequent:19",
            "sequent:0",
            "t:8: workload `look-up`: `sequent:0` is no strategy",
        ),
        (
            "sequent:19",
            "hash",
            "choose bsd, move-to-front, sequent[:chains]",
        ),
        (
            "2000",
            "1",
            "t:6: workload `look-up`: 1 users: there can be 2 to 1048576",
        ),
        (
            "2000",
            "-5",
            "t:6: workload `look-up`: invalid value: integer `-5`",
        ),
        (
            "= 200\n",
            "= \"soon\"\n",
            "t:7: workload `look-up`: invalid type: string \"soon\"",
        ),
        ("= 100\n", "= 0\n", "t:9: workload `look-up`: 0 is too few"),
    ] {
        assert!(text.contains(right), "{right}");
        let error = PlanFile::parse("t", &text.replacen(right, wrong, 1)).unwrap_err();
        assert!(error.to_string().contains(said), "{wrong}: {error}");
    }
    let cells = PlanFile::parse("t", text).unwrap().plan(false, 0, [0, 0]).cells;
    assert_eq!(cells[3].name(), "examined_sequent:19_200ms_2000");
    assert_eq!(cells[3].metric_names()[4], "examined_ns_sequent:19_200ms_2000");
    let written = serde_json::to_string(&cells[3]).unwrap();
    assert!(written.contains(r#""strategy":"sequent:19""#), "{written}");
    assert_eq!(serde_json::from_str::<Cell>(&written).unwrap(), cells[3]);
}

const SITES: &str = r#"
name = "test/sites"
title = "A proxy"
candidates = ["one", "two"]
compare = ["two/one"]

[deployment.one]
base = "small"
stack = "kernel-veth"

[deployment.two]
base = "one"
stack = "direct"
proxy = { cache = "32M" }

[[workload]]
kind = "site"
content = ["class0", "class1"]
alpha = 0.9
clients = 4
scale = 2

[quick]
candidates = ["one"]
"#;

/// The message for the plan of sites with one thing replaced.
fn mistake_of_sites(right: &str, wrong: &str) -> String {
    assert!(SITES.contains(right), "{right}");
    let text = SITES.replacen(right, wrong, 1);
    PlanFile::parse("sites.toml", &text).unwrap_err().to_string()
}

#[test]
fn deployments_inherit_fields_of_their_base() {
    let file = PlanFile::parse("sites.toml", SITES).unwrap();
    let plan = file.plan(false, 1, [0, 1]);
    assert_eq!(
        names(&plan),
        ["site_class0_zipf0.9_4c_s2", "site_class1_zipf0.9_4c_s2"]
    );
    let [one, two] = ["one", "two"].map(|name| plan.deployments[name].proxy.clone().unwrap());
    assert_eq!(
        (one.cache.as_deref(), two.cache.as_deref()),
        (Some("64M"), Some("32M"))
    );
    assert_eq!(one.program, two.program);
    assert!(plan.deployments["two"].web.is_some());
    let quick = file.plan(true, 1, [0, 1]);
    assert_eq!(quick.deployments.len(), 1);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn mistake_in_a_deployment_is_reported_with_its_line() {
    for (right, wrong, line, reason) in [
        (
            "\"one\", \"two\"]",
            "\"one\", \"two\", \"three\"]",
            4,
            "write a table [deployment.three]",
        ),
        (
            "candidates = [\"one\", \"two\"]\ncompare = [\"two/one\"]",
            "candidates = [\"one\"]",
            10,
            "no candidate names the deployment `two`",
        ),
        (
            "base = \"one\"",
            "base = \"none\"",
            11,
            "there is no deployment `none`",
        ),
        ("base = \"one\"", "base = \"two\"", 11, "does not end"),
        ("base = \"one\"", "base = 1", 11, "name of a deployment"),
        (
            "{ cache = \"32M\" }",
            "{ cache = \"32M\", colour = 1 }",
            11,
            "unknown field `colour`",
        ),
        ("{ cache = \"32M\" }", "{ cache = \"1M\" }", 11, "at least 1M"),
        (
            "{ cache = \"32M\" }",
            "{ program = \"apache\" }",
            11,
            "has no bounded `cache`",
        ),
        ("\"class1\"]", "\"class7\"]", 18, "class0 to class4"),
        ("clients = 4", "clients = 251", 16, "1 to 250 clients"),
        ("scale = 2", "scale = 0", 21, "too few"),
        ("kind = \"site\"", "kind = \"file-read\"", 19, "no `alpha`"),
        ("kind = \"site\"", "kind = \"wake-up\"", 19, "no `alpha`"),
    ] {
        let error = mistake_of_sites(right, wrong);
        assert!(
            error.contains(reason) && error.starts_with(&format!("sites.toml:{line}: ")),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn site_without_deployments_is_refused() {
    let begin = SITES.find("[deployment.one]").unwrap();
    let end = SITES.find("[[workload]]").unwrap();
    let text = format!("{}{}", &SITES[..begin], &SITES[end..]);
    let text = text
        .replace("\"one\", \"two\"", "\"unix\", \"direct\"")
        .replace("two/one", "direct/unix");
    let text = text.replace("candidates = [\"one\"]", "candidates = [\"unix\"]");
    let error = PlanFile::parse("sites.toml", &text).unwrap_err().to_string();
    assert!(error.contains("write a table [deployment.NAME]"), "{error}");
}
