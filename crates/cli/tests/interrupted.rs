//! Runs that end without a chance to clean up leave no processes or files.

#[path = "programs/library.rs"]
mod library;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of a plan. All its processes and files have the name of its directory.
struct Run {
    place: TempDir,
    child: Child,
}

impl Run {
    /// Each candidate takes a minute, and any of them may be the first.
    fn of(candidates: [&str; 2], workload: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let plan = place.path().join("plan.toml");
        let text = format!(
            "name = \"mine/long\"\ntitle = \"A long one\"\ncandidates = {candidates:?}\n\
             [[workload]]\n{workload}\n[measure]\nrounds = 3\nwarm-up-ms = 1\nspan-ms = 60000\n"
        );
        fs::write(&plan, text).unwrap();
        let temporary = place.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_toehold"))
            .args(["sweep", "--out"])
            .arg(place.path().join("results"))
            .arg(&plan)
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.unwrap();
        Self { place, child }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The programs of the run, except itself.
    fn programs(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let others = entries.filter(|entry| entry.file_name().to_str() != Some(&self.pid().to_string()));
        let program = |process: &Path| {
            let is_of_it = |place: &Path| place.starts_with(self.place.path());
            let mark = self.place.path().to_str().unwrap();
            let words = ["environ", "cmdline"].map(|file| fs::read(process.join(file)).unwrap_or_default());
            let has_mark = String::from_utf8_lossy(&words.concat()).contains(mark);
            let is_there = fs::read_link(process.join("cwd")).is_ok_and(|place| is_of_it(&place));
            let name = fs::read_to_string(process.join("comm")).ok()?;
            (has_mark || is_there).then(|| name.trim().to_owned())
        };
        others.filter_map(|entry| program(&entry.path())).collect()
    }

    /// Waits until this many programs of a name exist. Until the run has a directory of results, it
    /// may wait for another measurement on this machine.
    fn has_begun(&mut self, number: usize, name: &str) {
        while !self.place.path().join("results").exists() {
            assert!(self.child.try_wait().unwrap().is_none(), "it was over at once");
            std::thread::sleep(Duration::from_millis(20));
        }
        let deadline = Instant::now() + PATIENCE;
        while self.programs().iter().filter(|program| *program == name).count() < number {
            assert!(Instant::now() < deadline, "only {:?}", self.programs());
            assert!(self.child.try_wait().unwrap().is_none(), "it was over at once");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends the signal again and again until the run has ended: two that arrive at once count as
    /// one.
    fn end_with(&mut self, signal: Signal) {
        while self.child.try_wait().unwrap().is_none() {
            kill_process(self.pid(), signal).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that only the results of the run remain.
    fn leaves_nothing(&self) {
        let deadline = Instant::now() + PATIENCE;
        let left = || {
            let within = |place: &Path| fs::read_dir(place).into_iter().flatten().flatten().count();
            let runs = fs::read_dir(self.place.path().join("results"))
                .into_iter()
                .flatten();
            let scratches = runs
                .flatten()
                .filter(|run| run.path().join("scratch").exists())
                .count();
            (self.programs(), within(&self.place.path().join("tmp")), scratches)
        };
        while left() != (Vec::new(), 0, 0) {
            assert!(Instant::now() < deadline, "{:?} is left", left());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The run has ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn second_ctrl_c_leaves_nothing_of_nodes() {
    let mut run = Run::of(["adaptive", "engine"], "kind = \"ping-pong\"\nsize = \"64\"");
    // The sides, and their engines.
    run.has_begun(4, "exe");
    run.end_with(Signal::INT);
    run.leaves_nothing();
}

fn a_web_server_is_ended_with(signal: Signal) {
    // Loads the library now, since its runner is started elsewhere.
    let _ = &*library::LIBRARY;
    let mut run = Run::of(
        ["adaptive", "engine"],
        "kind = \"web\"\nserver = \"nginx\"\nclients = 2\nsize = \"1K\"",
    );
    run.has_begun(2, "nginx");
    run.end_with(signal);
    run.leaves_nothing();
}

#[test]
#[ignore = "needs root, namespaces, ip, nginx"]
fn second_ctrl_c_leaves_nothing_of_programs() {
    a_web_server_is_ended_with(Signal::INT);
}

#[test]
#[ignore = "needs root, namespaces, ip, nginx"]
fn killed_run_leaves_nothing_of_programs() {
    a_web_server_is_ended_with(Signal::KILL);
}

fn workers_are_ended_with(signal: Signal) {
    let _ = &*library::LIBRARY;
    let mut run = Run::of(
        ["direct", "kernel-loopback"],
        "kind = \"workers\"\nprogram = \"proxy\"\nworkers = 2\nclients = 2\nloops = 1",
    );
    // The proxy with its workers, and the server behind it with its workers.
    run.has_begun(6, "workers");
    run.end_with(signal);
    run.leaves_nothing();
}

#[test]
#[ignore = "needs root, namespaces, ip, cc"]
fn second_ctrl_c_leaves_nothing_of_workers() {
    workers_are_ended_with(Signal::INT);
}

#[test]
#[ignore = "needs root, namespaces, ip, cc"]
fn killed_run_leaves_nothing_of_workers() {
    workers_are_ended_with(Signal::KILL);
}
