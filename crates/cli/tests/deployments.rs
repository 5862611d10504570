//! Deployments as candidates of plans: sites and files on emulated disks, measured, interrupted,
//! killed.
//!
//! Tests that need root or servers are ignored by plain `cargo test`; `cargo xtask test` runs them
//! where that is there, and names those that it skips.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const SITE: &str = r#"
name = "mine/site"
title = "Two stacks"
candidates = ["kernel-veth", "direct"]
compare = ["direct/kernel-veth"]

[deployment.kernel-veth]
stack = "kernel-veth"
proxy = { program = "nginx", cache = "64M" }
web = { program = "nginx", sendfile = false }

[deployment.direct]
base = "kernel-veth"
stack = "direct"

[[workload]]
kind = "site"
content = "class0"
alpha = 0.9
clients = 4
scale = 8
requests = 2000

[measure]
rounds = 1
"#;

const FILE: &str = r#"
name = "mine/file"
title = "Two file systems"
candidates = ["disk", "memory"]
compare = ["memory/disk"]

[deployment.disk]
storage = { file-system = "ext4", disk = "ide" }

[deployment.memory]
storage = { file-system = "tmpfs" }

[factors]
size = "4M"
buffer = "64K"

[[workload]]
kind = "file-read"

[[workload]]
kind = "file-write"

[measure]
rounds = 1
"#;

const ON_DISK: &str = r#"
name = "mine/disk"
title = "A web server on a disk"
candidates = ["ide", "tmpfs"]
compare = ["tmpfs/ide"]

[deployment.ide]
stack = "kernel-veth"
web = { program = "nginx", memory = "16M" }
storage = { file-system = "ext4", disk = "ide" }

[deployment.tmpfs]
stack = "kernel-veth"
web = { program = "nginx" }
storage = { file-system = "tmpfs" }

[[workload]]
kind = "site"
content = "class0"
alpha = 0.5
clients = 2
scale = 8
requests = 300
start = "cold"

[measure]
rounds = 1
"#;

/// A plan, its results, and a directory for temporary files, with which everything ends.
struct Place(TempDir);

impl Place {
    fn with(plan: &str) -> Self {
        let place = tempfile::Builder::new().prefix("toehold-dep-").tempdir().unwrap();
        // Servers of other users must reach the content below it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(), mode).unwrap();
        fs::write(place.path().join("plan.toml"), plan).unwrap();
        fs::create_dir(place.path().join("tmp")).unwrap();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sweep(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
        command.arg("sweep").arg(self.path("plan.toml")).arg("--fresh");
        command.env("TOEHOLD_RESULTS", self.path("results"));
        command.env("TMPDIR", self.path("tmp")).stdin(Stdio::null());
        command
    }

    fn measured(&self) -> Value {
        let output = self.sweep().arg("--json").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Processes, mounts, loop devices and files of this place.
    fn left(&self) -> Vec<String> {
        let own = self.path("tmp").display().to_string();
        let is_own = |line: &String| line.contains(&own);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let mut left: Vec<_> = lines.filter(is_own).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(mounts.lines().map(str::to_owned).filter(is_own));
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let backing =
            devices.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
        left.extend(backing.filter(is_own));
        let files = fs::read_dir(&own).unwrap().flatten();
        left.extend(files.map(|entry| entry.path().display().to_string()));
        left
    }

    fn is_empty_soon(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The samples of the only run of a place.
fn samples(results: &Path) -> Vec<Value> {
    let runs = fs::read_dir(results).into_iter().flatten().flatten();
    let texts = runs.filter_map(|run| fs::read_to_string(run.path().join("samples.jsonl")).ok());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn candidates_of_a_site_answer_the_same_requests() {
    let place = Place::with(SITE);
    let report = place.measured();
    let ratio = &report["ratios"]["site_class0_zipf0.9_4c_s8/direct/kernel-veth"];
    assert!(ratio["median"].as_f64().unwrap() > 0.0, "{report}");
    let samples = samples(&place.path("results"));
    assert_eq!(samples.len(), 2);
    for sample in &samples {
        assert_eq!(sample["outcome"], "measured", "{sample}");
        // Answers that arrive together with the last one count, too.
        let answers = sample["client"]["messages"].as_u64().unwrap();
        assert!((2000..2000 + 4).contains(&answers), "{answers}");
        let tiers = sample["server"]["tiers"].as_array().unwrap();
        let names: Vec<_> = tiers.iter().map(|tier| tier["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["clients", "proxy", "web"]);
        assert!(tiers[1]["user_ns"].as_u64().unwrap() > 0, "{sample}");
        let hits = sample["server"]["values"]["hits"].as_f64().unwrap();
        assert!(hits > 0.5 && hits <= 1.0, "{hits}");
    }
    place.is_empty_soon();
}

#[test]
#[ignore = "needs root, mkfs.ext4, losetup"]
fn file_on_a_disk_is_slower_than_in_memory() {
    let place = Place::with(FILE);
    let report = place.measured();
    for name in ["fileread_4M_64K", "filewrite_4M_64K"] {
        let ratio = &report["ratios"][format!("{name}/memory/disk")];
        assert!(ratio["median"].as_f64().unwrap() > 1.0, "{ratio}");
    }
    let of_disk = |sample: &&Value| sample["candidate"] == "disk";
    for sample in samples(&place.path("results")).iter().filter(of_disk) {
        let disk = &sample["server"]["disks"][0];
        let bytes = disk["read_bytes"].as_u64().unwrap() + disk["written_bytes"].as_u64().unwrap();
        // The file itself, and tables of the file system.
        assert!((4 << 20..8 << 20).contains(&bytes), "{disk}");
    }
    place.is_empty_soon();
}

#[test]
#[ignore = "needs root, ip, nginx, mkfs.ext4, losetup"]
fn cold_site_on_a_disk_reads_each_file_from_it() {
    let place = Place::with(ON_DISK);
    place.measured();
    let samples = samples(&place.path("results"));
    assert_eq!(samples.len(), 2);
    for sample in &samples {
        assert_eq!(sample["outcome"], "measured", "{sample}");
        match sample["candidate"].as_str().unwrap() {
            "ide" => {
                let read = sample["server"]["disks"][0]["read_bytes"].as_u64().unwrap();
                assert!(read > 100 << 10, "{sample}");
            }
            _ => assert!(sample["server"].get("disks").is_none(), "{sample}"),
        }
    }
    place.is_empty_soon();
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn deployment_without_its_program_is_left_out() {
    let plan = SITE.replace(
        "stack = \"direct\"\n",
        "stack = \"direct\"\nproxy = { program = \"varnish\" }\n",
    );
    let place = Place::with(&plan);
    // The laboratory looks for servers in PATH and the directories of system programs.
    let hidden = Command::new("unshare").args(["--mount", "true"]).status();
    assert!(hidden.unwrap().success());
    let line = "for file in /usr/sbin/varnishd /usr/bin/varnishd; do \
                [ ! -e $file ] || mount --bind /dev/null $file; done; exec \"$@\"";
    let sweep = place.sweep();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", line, "sh"]);
    command.arg(sweep.get_program()).args(sweep.get_args());
    for (name, value) in sweep.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = text(&output);
    assert!(said.contains("apt-get install varnish"), "{said}");
    let samples = samples(&place.path("results"));
    let outcome = |name: &str| {
        let found = samples.iter().find(|sample| sample["candidate"] == name).unwrap();
        found["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome("direct"), "unavailable");
    assert_eq!(outcome("kernel-veth"), "measured");
}

/// Kills a run some time after its first site, or disk, has begun.
fn killed(plan: &str, after: Duration) -> Place {
    let place = Place::with(plan);
    let mut run: Child = place
        .sweep()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while place.left().is_empty() {
        assert!(Instant::now() < deadline, "nothing has begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(after);
    let process = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    run.wait().unwrap();
    place
}

#[test]
#[ignore = "needs root, ip, nginx"]
fn killed_run_of_sites_leaves_nothing() {
    for after_ms in [0, 300, 1500] {
        killed(SITE, Duration::from_millis(after_ms)).is_empty_soon();
    }
}

#[test]
#[ignore = "needs root, mkfs.ext4, losetup"]
fn killed_run_of_files_leaves_nothing() {
    for after_ms in [0, 100, 400] {
        killed(FILE, Duration::from_millis(after_ms)).is_empty_soon();
    }
}

#[test]
#[ignore = "needs root, ip, nginx, mkfs.ext4, losetup"]
fn killed_run_of_sites_on_disks_leaves_nothing() {
    for after_ms in [100, 700, 2000] {
        killed(ON_DISK, Duration::from_millis(after_ms)).is_empty_soon();
    }
}
