//! Sites: real servers one behind the other, brought up, asked, measured and ended.
//!
//! Tests that need root or servers are ignored by plain `cargo test`; `cargo xtask test` runs them
//! where that is there, and names those that it skips.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of sites, all of which end with it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::Builder::new()
            .prefix("toehold-site-")
            .tempdir()
            .unwrap();
        // Servers of other users must reach the content below it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(), mode).unwrap();
        Self(place)
    }

    fn sites(&self) -> PathBuf {
        self.0.path().join("sites")
    }

    fn toehold(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
        command.arg("site").args(words).env("TOEHOLD_SITES", self.sites());
        command.env("TOEHOLD_RUNTIME_DIR", self.0.path().join("run"));
        command.current_dir(self.0.path());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn succeeds(&self, words: &[&str]) -> Value {
        let output = self.toehold(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], "toehold/site/1");
        document
    }

    fn fails(&self, words: &[&str]) -> String {
        let output = self.toehold(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Writes a plan, and returns its path from the place.
    fn plan(&self, name: &str, stack: &str, rest: &str) -> String {
        let file = format!("{name}.toml");
        let text = format!("name = \"{name}\"\nstack = \"{stack}\"\nclients = 8\n{rest}");
        fs::write(self.0.path().join(&file), text).unwrap();
        file
    }

    /// Processes, control groups, mounts and files of all sites of this place.
    fn left(&self) -> Vec<String> {
        let own = self.sites().display().to_string();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let mut left: Vec<String> = lines.filter(|line| line.contains(&own)).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&own))
                .map(str::to_owned),
        );
        left.extend(
            fs::read_dir(self.sites())
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| format!("{:?}", entry.path())),
        );
        left
    }

    fn is_empty_soon(&self) {
        eventually("nothing is left", || {
            let left = self.left();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            }
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.toehold(&["down", "--all"]);
    }
}

fn eventually(what: &str, look: impl Fn() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(state) = look() {
        assert!(Instant::now() < deadline, "{what}: {state}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The directories of control groups of a site.
fn groups_of(runner: u64, name: &str) -> Vec<PathBuf> {
    let group = format!("toehold-site-{name}-{runner}");
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let places = hierarchies.map(|entry| entry.path().join(&group));
    let root = PathBuf::from("/sys/fs/cgroup").join(&group);
    places.chain([root]).filter(|place| place.is_dir()).collect()
}

const SMALL: &str = "[content]\nclass = 0\nscale = 16\n";

fn tier(name: &str, fields: &str) -> String {
    format!("[[tier]]\nname = \"{name}\"\n{fields}\n")
}

/// Fetches a file as the site's clients do.
fn curl(site: &Value, file: &str) -> Vec<u8> {
    let line = site["curl"].as_str().unwrap();
    let (before, _) = line.split_once(" -sSo").unwrap();
    let (_, url) = line.split_once("http://").unwrap();
    let (address, _) = url.split_once('/').unwrap();
    let line = format!("{before} -sSf http://{address}/{file}");
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    output.stdout
}

/// Brings a site up, checks a file and a load, and ends it. Returns the load.
fn whole(place: &Place, name: &str, plan: &str) -> Value {
    let site = &place.succeeds(&["up", plan])["site"];
    assert_eq!(site["state"], "up");
    let runner = site["runner"].as_u64().unwrap();
    assert!(!groups_of(runner, name).is_empty());
    let content = place.sites().join(name).join("content/file3");
    assert!(curl(site, "file3") == fs::read(content).unwrap());
    assert!(place.fails(&["up", plan]).contains("is up already"));
    let load = place.succeeds(&["load", name, "--span", "500ms", "--warm-up", "300ms"]);
    assert!(load["requests"].as_u64().unwrap() > 0, "{load}");
    assert!(load["p99_ns"].as_u64() >= load["p50_ns"].as_u64(), "{load}");
    // A tier behind a cache may have had nothing to do.
    let first = &load["tiers"][0];
    assert!(
        first["user_ns"].as_u64().unwrap() + first["system_ns"].as_u64().unwrap() > 0,
        "{load}"
    );
    place.succeeds(&["down", name]);
    assert_eq!(place.left(), Vec::<String>::new());
    assert_eq!(groups_of(runner, name), Vec::<PathBuf>::new());
    load
}

#[test]
#[ignore = "needs root, ip, nginx, curl"]
fn nginx_before_nginx_serves_over_every_stack() {
    let place = Place::new();
    for stack in ["kernel", "direct", "adaptive", "inline", "engine"] {
        let proxy = tier("proxy", "program = \"nginx\"\ncache = \"64M\"");
        let web = tier("web", "program = \"nginx\"\nmemory = \"4M\"");
        let plan = place.plan(stack, stack, &format!("{SMALL}{proxy}{web}"));
        let load = whole(&place, stack, &plan);
        assert_eq!(load["stack"], stack);
        assert!(load["tiers"][0]["hit_ratio"].as_f64().unwrap() > 0.0, "{load}");
        assert_eq!(load["tiers"][1]["hit_ratio"], Value::Null);
        let engine_ns = load["tiers"][0]["engine_ns"].as_u64().unwrap();
        assert!(stack != "engine" || engine_ns > 0, "{load}");
        assert!(stack != "kernel" || engine_ns == 0, "{load}");
    }
}

#[test]
#[ignore = "needs root, ip, nginx, varnishd, apache2, curl"]
fn varnish_with_small_cache_hits_less_than_with_large_one() {
    let place = Place::new();
    let ratio = |name: &str, cache: &str| {
        let proxy = tier("proxy", &format!("program = \"varnish\"\ncache = \"{cache}\""));
        let web = tier("web", "program = \"apache\"");
        // Two MB of files in one MB of cache, or in all they need.
        let content = "[content]\nclass = 0\nscale = 12\nalpha = 0.5\n";
        let plan = place.plan(name, "kernel", &format!("{content}{proxy}{web}"));
        whole(&place, name, &plan)["tiers"][0]["hit_ratio"]
            .as_f64()
            .unwrap()
    };
    let (small, large) = (ratio("small", "1M"), ratio("large", "64M"));
    assert!(small < large, "{small}, {large}");
}

#[test]
#[ignore = "needs root, nginx, haproxy, curl"]
fn haproxy_before_two_tiers_serves_a_directory_in_the_order_of_its_log() {
    let place = Place::new();
    let root = place.0.path().join("www");
    fs::create_dir_all(root.join("a b")).unwrap();
    fs::write(root.join("a b/index.html"), "Hello").unwrap();
    fs::write(root.join("other"), "x".repeat(100_000)).unwrap();
    let log = place.0.path().join("access.log");
    let line = |path: &str| format!("1.1.1.1 - - [t] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\"\n");
    fs::write(&log, line("/a%20b/") + &line("/other?x=1") + &line("/missing")).unwrap();
    let (root, log) = (root.to_str().unwrap(), log.to_str().unwrap());
    let made = place.succeeds(&["init", root, "--log", log]);
    let made = made["plan"].as_str().unwrap();
    assert!(made.contains("# 2 requests for 2 of the files"), "{made}");
    let content = format!("[content]\ndirectory = \"www\"\nlog = \"{log}\"\n");
    let tiers = [
        tier("proxy", "program = \"haproxy\"\ncache = \"8M\""),
        tier("middle", "program = \"nginx\""),
        tier("web", "program = \"nginx\""),
    ];
    let plan = place.plan("chain", "direct", &(content + &tiers.concat()));
    let site = &place.succeeds(&["up", &plan])["site"];
    assert_eq!(curl(site, "a%20b/index.html"), b"Hello");
    let load = place.succeeds(&["load", "chain", "--span", "300ms", "--clients", "2"]);
    // Each of the two files is asked for by turns.
    let mean = load["bytes"].as_f64().unwrap() / load["requests"].as_f64().unwrap();
    assert!((mean / 50_002.5 - 1.0).abs() < 0.05, "{load}");
    assert!(load["tiers"][0]["hit_ratio"].as_f64().unwrap() > 0.9, "{load}");
    let refused = place.fails(&["load", "chain", "--clients", "9"]);
    assert!(refused.contains("1 to 8 clients"), "{refused}");
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn memory_of_a_tier_bounds_its_page_cache() {
    let place = Place::new();
    let about = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(place.0.path())
        .output()
        .unwrap();
    if about.stdout.starts_with(b"tmpfs") {
        // Past the harness, which shows nothing of a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, files on a tmpfs need no page cache: set TMPDIR to a directory on a disk"
        );
        return;
    }
    let cached = |name: &str, memory: &str| {
        // 12 MB of files, each as popular as any other.
        let content = "[content]\nclass = 1\nscale = 8\nalpha = 0.0\n";
        let web = tier("web", &format!("program = \"nginx\"\n{memory}"));
        let plan = place.plan(name, "kernel", &format!("{content}{web}"));
        place.succeeds(&["up", &plan]);
        let load = place.succeeds(&["load", name, "--span", "500ms", "--warm-up", "2s"]);
        place.succeeds(&["down", name]);
        load["tiers"][0]["cached_bytes"].as_u64().unwrap()
    };
    let (bounded, free) = (cached("bounded", "memory = \"2M\""), cached("free", ""));
    assert!(bounded < 4 << 20, "{bounded}");
    assert!(bounded < free, "{bounded}, {free}");
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn site_whose_runner_is_killed_leaves_nothing() {
    let place = Place::new();
    for stack in ["kernel", "direct"] {
        let tiers = tier("proxy", "program = \"nginx\"") + &tier("web", "program = \"nginx\"");
        let plan = place.plan("killed", stack, &format!("{SMALL}{tiers}"));
        let site = &place.succeeds(&["up", &plan])["site"];
        let runner = site["runner"].as_u64().unwrap();
        let pid = Pid::from_raw(i32::try_from(runner).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        place.is_empty_soon();
        eventually("no control group is left", || match groups_of(runner, "killed") {
            groups if groups.is_empty() => Ok(()),
            groups => Err(format!("{groups:?}")),
        });
    }
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn site_of_dead_runner_and_keeper_is_listed_and_removed() {
    let place = Place::new();
    let plan = place.plan(
        "dead",
        "kernel",
        &format!("{SMALL}{}", tier("web", "program = \"nginx\"")),
    );
    let site = &place.succeeds(&["up", &plan])["site"];
    let runner = site["runner"].as_u64().unwrap();
    let children = fs::read_to_string(format!("/proc/{runner}/task/{runner}/children")).unwrap();
    let is_keeper = |child: &&str| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("while read -r change group")
    };
    let keeper: u64 = children
        .split_whitespace()
        .find(is_keeper)
        .unwrap()
        .parse()
        .unwrap();
    for process in [keeper, runner] {
        let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    eventually("the site is dead", || {
        let state = place.succeeds(&["ls"])["sites"][0]["state"].clone();
        if state == "dead" {
            Ok(())
        } else {
            Err(state.to_string())
        }
    });
    assert!(!groups_of(runner, "dead").is_empty());
    assert!(place.fails(&["load", "dead"]).contains("is gone"));
    place.succeeds(&["down", "dead"]);
    assert_eq!(place.left(), Vec::<String>::new());
    assert_eq!(groups_of(runner, "dead"), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn server_that_ends_is_named_with_its_output() {
    let place = Place::new();
    let broken = tier(
        "app",
        "program = \"command\"\nstart = \"echo no database >&2; exit 3\"",
    );
    let plan = place.plan("broken", "kernel", &format!("{SMALL}{broken}"));
    let said = place.fails(&["up", &plan]);
    assert!(
        said.contains("the server of app ended with exit status: 3"),
        "{said}"
    );
    assert!(said.contains("no database"), "{said}");
    assert_eq!(place.left(), Vec::<String>::new());
    // A server of the user's, with a configuration of its own that the line writes.
    let line = "printf 'daemon off; pid %s/pid; error_log stderr; events {} http { access_log off; server \
                { listen %s:%s; root %s; } }' $DIR $ADDRESS $PORT $CONTENT > $DIR/own.conf; \
                exec nginx -e stderr -c $DIR/own.conf";
    let app = tier("app", &format!("program = \"command\"\nstart = \"{line}\""));
    let plan = place.plan("ends", "kernel", &format!("{SMALL}{app}"));
    place.succeeds(&["up", &plan]);
    let pid = fs::read_to_string(place.sites().join("ends/tiers/app/pid")).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    eventually("the end of the server is noticed", || {
        let site = place.succeeds(&["ls"])["sites"][0].clone();
        if site["state"] == "failed" {
            Ok(())
        } else {
            Err(site.to_string())
        }
    });
    assert!(place.fails(&["load", "ends"]).contains("the server of app ended"));
    place.succeeds(&["down", "ends"]);
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn mistake_in_a_plan_is_named_with_its_line() {
    let place = Place::new();
    let plan = place.plan("wrong", "fast", SMALL);
    for command in ["up", "check"] {
        let said = place.fails(&[command, &plan]);
        assert!(said.contains("wrong.toml:2: unknown variant `fast`"), "{said}");
    }
    assert!(place.fails(&["down", "wrong"]).contains("there is no site wrong"));
    assert!(place.fails(&["load", "../wrong"]).contains("there is no site"));
    assert_eq!(place.succeeds(&["ls"])["sites"].as_array().unwrap().len(), 0);
}

#[test]
fn check_lists_packages() {
    let place = Place::new();
    let output = place.toehold(&["check", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let needs = document["needs"].as_array().unwrap();
    let varnish = needs.iter().find(|need| need["what"] == "varnishd").unwrap();
    assert_eq!(varnish["remedy"], "apt-get install varnish");
    assert_eq!(output.status.success(), document["is_ready"].as_bool().unwrap());
}
