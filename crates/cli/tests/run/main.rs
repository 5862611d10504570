//! Real programs under `toehold run`, on nodes of the test.
//!
//! The preloaded library here does nothing. The programs that use a node do so by the Rust API.
//! They run this test's own file, and a variable tells them what to do.

mod acting;
mod lifetime;
mod network;
#[path = "../nodes/support.rs"]
mod support;
mod terminal;
mod transparency;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::support::{Fabrics, text};

/// A library that does nothing. It stays as long as this process.
static LIBRARY: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libtoehold.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"]);
    assert!(compiler.arg(&library).status().unwrap().success());
    // Other users must be able to load it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    (directory, library)
});

/// Both ways to run a program: in place of this process, and as its child.
const WAYS: [&str; 2] = ["", "--stats=/dev/null"];

/// `toehold run`, with options and a program.
fn running(fabrics: &Fabrics, options: &str, program: &[&str]) -> Command {
    let mut command = fabrics.command("run");
    command.args(options.split_whitespace()).arg("--").args(program);
    command.env("TOEHOLD_LIBRARY", &LIBRARY.1);
    command.env_remove("LD_PRELOAD").env_remove("TOEHOLD_NODE");
    command
}

/// The output of a shell on a node.
fn shell(fabrics: &Fabrics, options: &str, script: &str) -> Output {
    running(fabrics, options, &["sh", "-c", script]).output().unwrap()
}

/// A program that prints a line and then reads its input to the end.
fn start(fabrics: &Fabrics, options: &str, script: &str) -> Started {
    let mut command = running(fabrics, options, &["sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Started::new(command)
}

/// A program that has printed its first line.
struct Started {
    child: Child,
    output: std::io::BufReader<std::process::ChildStdout>,
    line: String,
}

impl Started {
    fn new(mut command: Command) -> Started {
        let mut child = command.spawn().unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let line = line.trim_end().to_owned();
        Started { child, output, line }
    }

    /// Ends its input; returns its further output and its exit status.
    fn finish(mut self) -> (String, Option<i32>) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

/// Waits until all nodes and their files are gone.
fn wait_until_gone(fabrics: &Fabrics) {
    support::eventually("the nodes' end", || fabrics.files().is_empty());
}

fn is_running(fabrics: &Fabrics, node: &str) -> bool {
    fabrics.files().contains(&format!("{node}.json"))
}

fn read(path: &Path) -> String {
    text(&std::fs::read(path).unwrap())
}
