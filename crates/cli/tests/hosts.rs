//! Measurements between two machines: here two network namespaces, one of them with an SSH server
//! of the test.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step on a busy machine, where the runs of all other tests may have to end
/// first.
const PATIENCE: Duration = Duration::from_secs(300);

const TOEHOLD: &str = env!("CARGO_BIN_EXE_toehold");

/// The address of the far machine.
const ADDRESS: &str = "10.199.7.2";

/// A process that ends with its input.
struct Held(Child);

impl Held {
    /// A process with a network namespace of its own.
    fn namespace() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", "ip link set lo up; echo; exec cat"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The first line reports that it runs.
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0])
            .expect("it takes root");
        Self(child)
    }

    fn within(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id()));
        command.arg("--").stdin(Stdio::null());
        command
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both machines. The far machine's processes have the name of a directory in their environment.
struct Machines {
    place: TempDir,
    near: Held,
    far: Held,
    sshd: Option<Held>,
}

impl Machines {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let (near, far) = (Held::namespace(), Held::namespace());
        let other = far.0.id();
        let link = format!(
            "ip link add eth0 type veth peer name eth0 netns {other} && ip address add 10.199.7.1/24 dev eth0 && \
             ip link set eth0 up && nsenter --net=/proc/{other}/ns/net sh -c \
             'ip address add {ADDRESS}/24 dev eth0 && ip link set eth0 up'"
        );
        let made = near.within().args(["sh", "-c", &link]).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        for directory in ["near", "far"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        let mut machines = Self {
            place,
            near,
            far,
            sshd: None,
        };
        machines.sshd = Some(machines.serve());
        machines
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts an SSH server that accepts one key, and waits until it listens.
    fn serve(&self) -> Held {
        let root = self.place.path().display();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(self.path(key));
            assert!(make.status().unwrap().success());
        }
        let configuration = format!(
            "Port 22\nListenAddress {ADDRESS}\nHostKey {root}/host\nPidFile none\n\
             AuthorizedKeysFile {root}/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             SetEnv TMPDIR={root}/far\n"
        );
        fs::write(self.path("sshd.conf"), configuration).unwrap();
        let known = fs::read_to_string(self.path("host.pub")).unwrap();
        fs::write(self.path("known"), format!("{ADDRESS} {known}")).unwrap();
        // The SSH server confines itself to this directory before authentication.
        fs::create_dir_all("/run/sshd").unwrap();
        let mut command = self.far.within();
        command.args(["/usr/sbin/sshd", "-D", "-E"]).arg(self.path("log"));
        let sshd = Held(command.arg("-f").arg(self.path("sshd.conf")).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(self.path("log")).is_ok_and(|log| log.contains("Server listening")) {
            assert!(Instant::now() < deadline, "the SSH server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    /// The shell words of an `ssh` command that knows the far machine and has the key.
    fn ssh(&self) -> String {
        let root = self.place.path().display();
        format!("ssh -F none -i {root}/user -o UserKnownHostsFile={root}/known -o IdentitiesOnly=yes")
    }

    /// Measures a plan between the two machines.
    fn sweep(&self, plan: &str, far_toehold: &str) -> Command {
        fs::write(self.path("plan.toml"), plan).unwrap();
        let mut command = self.near.within();
        command.args([TOEHOLD, "sweep", "--host", &format!("root@{ADDRESS}")]);
        command.args(["--ssh", &self.ssh(), "--far-toehold", far_toehold, "--out"]);
        command.arg(self.path("results")).arg(self.path("plan.toml"));
        command.env("TMPDIR", self.path("near"));
        command
    }

    /// The contents of a file of the run.
    fn saved(&self, name: &str) -> String {
        let runs = fs::read_dir(self.path("results")).unwrap().flatten();
        let run = runs.map(|run| run.path()).next().unwrap();
        fs::read_to_string(run.join(name)).unwrap()
    }

    fn samples(&self) -> Vec<Value> {
        let lines = self.saved("samples.jsonl");
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The number of the run's processes on the far machine.
    fn far_processes(&self) -> usize {
        let mark = format!("TMPDIR={}", self.path("far").display());
        let is_far = |process: &Path| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|variable| variable == mark.as_bytes())
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter(|process| is_far(&process.path())).count()
    }

    fn leaves_nothing(&self) {
        let files = || fs::read_dir(self.path("far")).unwrap().count();
        let deadline = Instant::now() + PATIENCE;
        while (self.far_processes(), files()) != (0, 0) {
            let left = (self.far_processes(), files());
            assert!(
                Instant::now() < deadline,
                "{left:?} processes and files are left there"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn plan(workloads: &str, rounds: u32, span_ms: u32) -> String {
    format!(
        "name = \"mine/hosts\"\ntitle = \"T\"\ncandidates = [\"adaptive\", \"kernel-veth\"]\n\
         compare = [\"adaptive/kernel-veth\"]\n{workloads}\n\
         [measure]\nrounds = {rounds}\nwarm-up-ms = 1\nspan-ms = {span_ms}\n"
    )
}

const PING_PONG: &str = "[[workload]]\nkind = \"ping-pong\"\nsize = \"64\"";

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn plan_is_measured_between_two_machines() {
    let machines = Machines::new();
    let workloads = format!(
        "{PING_PONG}\n[[workload]]\nkind = \"stream\"\nsize = \"64K\"\n\
         [[workload]]\nkind = \"fan-in\"\nclients = 2\nsize = \"4K\"\n"
    );
    let output = machines
        .sweep(&plan(&workloads, 2, 20), TOEHOLD)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let samples = machines.samples();
    for candidate in ["toehold-hosts", "kernel-hosts", "ethos-hosts"] {
        let of_it = samples.iter().filter(|sample| sample["candidate"] == candidate);
        let measured = of_it.filter(|sample| sample["outcome"] == "measured");
        assert_eq!(measured.count(), 6, "{}", machines.saved("samples.jsonl"));
    }
    let run: Value = serde_json::from_str(&machines.saved("run.json")).unwrap();
    let path = serde_json::json!({"server": ADDRESS, "client": "10.199.7.1"});
    assert_eq!(run["far"]["path"], path);
    assert_eq!(run["far"]["host"]["kernel"], run["host"]["kernel"]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("kernel-hosts") && !shown.contains("kernel-veth"),
        "{shown}"
    );
    machines.leaves_nothing();
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn mtu_between_two_machines_is_set_where_possible() {
    let machines = Machines::new();
    let workloads = "[factors]\nmtu = [600, 1400, 9000]\n[[workload]]\nkind = \"stream\"\nsize = \"64K\"\n\
                     [[workload]]\nkind = \"fan-in\"\nclients = 2\nsize = \"4K\"\n";
    let output = machines.sweep(&plan(workloads, 1, 20), TOEHOLD).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let samples = machines.samples();
    let taken = samples.iter().map(|sample| {
        let [name, candidate] = ["name", "candidate"].map(|field| sample[field].as_str().unwrap());
        let outcome = match sample["outcome"].as_str().unwrap() {
            "unavailable" => sample["reason"].as_str().unwrap(),
            outcome => outcome,
        };
        ((name, candidate), outcome)
    });
    let taken: HashMap<_, _> = taken.collect();
    for candidate in ["toehold-hosts", "kernel-hosts", "ethos-hosts"] {
        for mtu in [600, 1400, 9000] {
            // The network here carries 1500.
            let expected = match (candidate, mtu) {
                ("kernel-hosts", 9000) => "takes packets of 1500 bytes",
                ("kernel-hosts", _) | (_, 1400 | 9000) => "measured",
                _ => "an MTU from 1280",
            };
            for cell in ["stream_64K", "fanin_2_4K"] {
                let name = format!("{cell}_mtu{mtu}");
                let outcome = taken[&(name.as_str(), candidate)];
                assert!(outcome.contains(expected), "{candidate}, {name}: {outcome}");
            }
        }
    }
    machines.leaves_nothing();
}

/// The recorded outcome with a far machine that cannot be used; the run completes.
fn recorded(machines: &Machines, far_toehold: &str) -> String {
    let mut sweep = machines.sweep(&plan(PING_PONG, 1, 5), far_toehold);
    let Output { status, stderr, .. } = sweep.output().unwrap();
    assert_eq!(status.code(), Some(1), "{}", text(&stderr));
    let samples = machines.samples();
    assert_eq!(samples.len(), 3, "{samples:?}");
    assert!(
        samples.iter().all(|sample| sample["outcome"] == "failed"),
        "{samples:?}"
    );
    let reason = samples[0]["reason"].as_str().unwrap();
    assert!(text(&stderr).contains(reason), "{}", text(&stderr));
    reason.to_owned()
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn unreachable_machine_is_recorded() {
    let mut machines = Machines::new();
    machines.sshd = None;
    let reason = recorded(&machines, TOEHOLD);
    assert!(reason.contains("cannot reach root@10.199.7.2"), "{reason}");
    assert!(reason.contains("refused"), "{reason}");
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn machine_without_toehold_is_recorded() {
    let machines = Machines::new();
    let reason = recorded(&machines, "/nowhere/toehold");
    assert!(reason.contains("there is no `/nowhere/toehold`"), "{reason}");
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn machine_with_other_build_is_recorded() {
    let machines = Machines::new();
    let other = machines.path("other");
    let said = r#"{"version": "0.0.1", "commit": "unknown", "dirty": false, "profile": "release"}"#;
    fs::write(&other, format!("#!/bin/sh\necho '{said}'\n")).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let reason = recorded(&machines, &other.display().to_string());
    assert!(reason.contains("another build, 0.0.1"), "{reason}");
}

fn an_end_by(signal: Signal) {
    let machines = Machines::new();
    let mut command = machines.sweep(&plan(PING_PONG, 2, 60_000), TOEHOLD);
    let mut run = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    // The forwarding process, its keeper, and the side; also the node and the uplink, if it has
    // them.
    while machines.far_processes() < 3 {
        assert!(Instant::now() < deadline, "nothing runs on the far machine");
        assert!(run.try_wait().unwrap().is_none(), "it was over at once");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&run), signal).unwrap();
    run.wait().unwrap();
    machines.leaves_nothing();
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn interrupted_run_leaves_nothing_on_far_machine() {
    an_end_by(Signal::INT);
}

#[test]
#[ignore = "needs root, namespaces, ip, sshd"]
fn killed_run_leaves_nothing_on_far_machine() {
    an_end_by(Signal::KILL);
}

#[test]
fn single_machine_workload_between_machines_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("plan.toml");
    let crowd = "[[workload]]\nkind = \"crowd\"\npairs = 2\nsize = \"64\"";
    fs::write(&file, plan(crowd, 1, 5)).unwrap();
    let mut command = Command::new(TOEHOLD);
    command.args(["sweep", "--host", "there"]).arg(&file);
    let output = command.env("TOEHOLD_RESULTS", place.path()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("cannot be measured between two machines") && error.contains("within one machine"),
        "{error}"
    );
}
