//! An emulated disk, as a person has one: made, formatted, read, changed, and gone however it ended.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for any step here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the file that is written and read.
const FILE: usize = 3 << 20;

/// Returns `true` if this machine can have a disk; says what is missing otherwise.
fn can_have_disks() -> bool {
    let missing = match toehold_disk::check() {
        Err(missing) => missing.to_string(),
        Ok(()) if Command::new("mkfs.ext4").arg("-V").output().is_err() => "mkfs.ext4 is missing".to_owned(),
        Ok(()) => return true,
    };
    // Past the harness, which shows nothing of a test that passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED, a disk was not tested: {missing}");
    false
}

fn toehold(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command.arg("disk").args(arguments).stdin(Stdio::null());
    command
}

fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A disk that runs.
struct Disk {
    place: TempDir,
    child: Child,
    begun: Value,
}

impl Disk {
    fn new(options: &[&str]) -> Self {
        let place = tempfile::Builder::new()
            .prefix("toehold disk ")
            .tempdir()
            .unwrap();
        let directory = place.path().join("made");
        let mut command = toehold(&[&[directory.to_str().unwrap(), "--json"], options].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            text += &line.unwrap();
            if text.ends_with('}') && serde_json::from_str::<Value>(&text).is_ok() {
                break;
            }
        }
        let begun = serde_json::from_str(&text).unwrap();
        Self { place, child, begun }
    }

    fn device(&self) -> &str {
        self.begun["device"].as_str().unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("made")
    }

    fn control(&self) -> PathBuf {
        self.directory().join("control")
    }

    fn state(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.control()).unwrap()).unwrap()
    }

    /// Formats the device and mounts it.
    fn mount(&self) -> PathBuf {
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        succeeds("mkfs.ext4", &["-q", "-E", options, self.device()]);
        let mounted = self.place.path().join("mounted");
        fs::create_dir(&mounted).unwrap();
        succeeds(
            "mount",
            &["-o", "noatime", self.device(), mounted.to_str().unwrap()],
        );
        mounted
    }

    /// Sends a signal and waits until nothing of the disk is left.
    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
        self.is_gone();
    }

    fn is_gone(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Mounts, loop devices, processes and directories of the disk.
    fn left(&self) -> Vec<String> {
        let name = self.place.path().file_name().unwrap().to_str().unwrap();
        let escaped = name.replace(' ', "\\040");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts
            .lines()
            .filter(|line| line.contains(&escaped))
            .map(str::to_owned);
        let mut left: Vec<String> = mounts.collect();
        let devices = succeeds("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]);
        left.extend(
            devices
                .lines()
                .filter(|line| line.contains(name))
                .map(str::to_owned),
        );
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        left.extend(lines.filter(|line| line.contains(name)));
        left.extend(self.directory().exists().then(|| "the directory".to_owned()));
        left
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..FILE).map(|index| (index % 251) as u8 ^ seed).collect()
}

#[test]
fn disk_keeps_files_over_mounts_and_counts_their_bytes() {
    if !can_have_disks() {
        return;
    }
    let disk = Disk::new(&["--kind", "scsi", "--size", "64M", "--scale", "8"]);
    let mounted = disk.mount();
    let place = mounted.to_str().unwrap();
    fs::write(mounted.join("file"), pattern(7)).unwrap();
    succeeds("umount", &[place]);
    let written = disk.state()["counters"]["written_bytes"].as_u64().unwrap();
    assert!(written >= FILE as u64, "{written}");
    succeeds("mount", &["-o", "ro,noatime", disk.device(), place]);
    fs::write(disk.control(), "{\"reset\": true}").unwrap();
    assert!(fs::read(mounted.join("file")).unwrap() == pattern(7));
    let state = disk.state();
    let counted = state["counters"]["read_bytes"].as_u64().unwrap();
    assert!(counted >= FILE as u64, "{state}");
    assert_eq!(state["counters"]["requests"], state["block"]["requests"]);
    assert!(state["counters"]["served_ns"].as_u64().unwrap() > 0);
    succeeds("umount", &[place]);
    disk.end(Signal::TERM);
}

#[test]
fn killed_disk_leaves_nothing_with_its_file_system_mounted() {
    if !can_have_disks() {
        return;
    }
    let disk = Disk::new(&["--kind", "raid", "--size", "64M", "--scale", "8"]);
    fs::write(disk.mount().join("file"), pattern(1)).unwrap();
    disk.end(Signal::KILL);
}

#[test]
fn ended_disk_leaves_nothing_with_its_file_system_mounted() {
    if !can_have_disks() {
        return;
    }
    let disk = Disk::new(&["--size", "64M", "--scale", "8"]);
    fs::write(disk.mount().join("file"), pattern(2)).unwrap();
    disk.end(Signal::INT);
}

#[test]
fn unmounted_disk_ends() {
    if !can_have_disks() {
        return;
    }
    let mut disk = Disk::new(&["--size", "4M"]);
    succeeds("losetup", &["--detach", disk.device()]);
    succeeds("umount", &[disk.directory().to_str().unwrap()]);
    assert!(disk.child.wait().unwrap().success());
    disk.is_gone();
}

#[test]
fn control_takes_speeds_and_says_why_it_refuses() {
    if !can_have_disks() {
        return;
    }
    let disk = Disk::new(&["--size", "4M"]);
    fs::write(disk.control(), "{\"clock\": false, \"kind\": \"raid\"}").unwrap();
    let state = disk.state();
    assert_eq!(state["clock"], false);
    assert_eq!(state["kind"]["array"]["heads"], 3);
    assert_eq!(state["refused"], Value::Null);
    for wrong in ["{\"kind\": \"tape\"}", "clock off", &"x".repeat(5000)] {
        let error = fs::write(disk.control(), wrong).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
    assert!(disk.state()["refused"].as_str().unwrap().contains("4096 bytes"));
    let beyond = fs::OpenOptions::new()
        .write(true)
        .open(disk.directory().join("disk"));
    let error = beyond.unwrap().set_len(8 << 20).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    disk.end(Signal::TERM);
}

#[test]
fn second_disk_in_a_directory_is_refused_and_a_dead_one_is_replaced() {
    if !can_have_disks() {
        return;
    }
    let disk = Disk::new(&["--size", "4M"]);
    let directory = disk.directory();
    let refused = toehold(&[directory.to_str().unwrap()]).output().unwrap();
    assert!(says(&refused, "has a disk already"), "{refused:?}");
    assert!(disk.state()["device"].is_string());
    // The process that clears dies before the disk's process.
    let keeper = keeper_of(&disk);
    kill_process(keeper, Signal::KILL).unwrap();
    let mut dead = disk;
    kill_process(Pid::from_child(&dead.child), Signal::KILL).unwrap();
    dead.child.wait().unwrap();
    assert!(!dead.left().is_empty());
    let mut command = toehold(&[directory.to_str().unwrap(), "--size", "4M", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "{\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    // It was made by the disk that died, so the second one leaves it.
    fs::remove_dir(&directory).unwrap();
    dead.is_gone();
}

fn keeper_of(disk: &Disk) -> Pid {
    let parent = disk.child.id();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let child = children.split_whitespace().next().unwrap().parse().unwrap();
    Pid::from_raw(child).unwrap()
}

fn says(output: &Output, text: &str) -> bool {
    !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(text)
}

#[test]
fn disk_without_sense_is_refused_with_the_choice() {
    for (arguments, said) in [
        (&["/tmp/x", "--kind", "tape"][..], "choose ide, scsi, raid"),
        (&["/tmp/x", "--size", "much"], "such as 1G"),
        (&["/tmp/x", "--scale", "0"], "1..=1024"),
    ] {
        let output = toehold(arguments).output().unwrap();
        assert!(says(&output, said), "{arguments:?}: {output:?}");
    }
    if !can_have_disks() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let made = place.path().join("made");
    let odd = toehold(&[made.to_str().unwrap(), "--size", "4097"])
        .output()
        .unwrap();
    assert!(says(&odd, "multiple of 4K"), "{odd:?}");
    assert!(!made.exists());
    fs::write(place.path().join("file"), "").unwrap();
    let full = toehold(&[place.path().to_str().unwrap()]).output().unwrap();
    assert!(says(&full, "is not empty"), "{full:?}");
}

#[test]
fn disk_without_root_says_what_it_needs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut command = Command::new("setpriv");
    let own = env!("CARGO_BIN_EXE_toehold");
    command.args(["--reuid=65534", "--clear-groups", own, "disk", "/tmp/x"]);
    let Ok(output) = command.output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED, setpriv is missing");
        return;
    };
    assert!(
        says(&output, "as root") || says(&output, "Permission denied"),
        "{output:?}"
    );
}
