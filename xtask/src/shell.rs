//! Runs other programs, with their output on the user's terminal.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Returns the repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository's root")
}

/// Returns Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::env::current_dir().unwrap_or_default().join(dir),
        None => root().join("target"),
    }
}

/// Returns a command that runs this task's Cargo in the repository's root.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    command(
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        arguments,
    )
}

/// Returns a command in the repository's root without an input.
pub(crate) fn command<I, S>(program: impl AsRef<OsStr>, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    // The `cargo run` around this task has set these. Inner calls of Cargo would
    // rebuild without need if they saw the outer package's variables.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command with its output on the terminal. A failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command without showing its output. Returns whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command and returns its trimmed output. A failure is an error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the command as a user would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let quote = argument.is_empty() || argument.contains([' ', '"', '*', '$']);
        line += &if quote {
            format!(" '{argument}'")
        } else {
            format!(" {argument}")
        };
    }
    line
}

/// Named steps, each with its seconds and whether it passed.
#[derive(Default)]
pub(crate) struct Steps(Vec<(&'static str, f64, bool)>);

impl Steps {
    /// Runs one step under a heading. After a failure the next step runs
    /// nevertheless.
    pub(crate) fn step(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let result = step();
        if let Err(error) = &result {
            eprintln!("error: {error:#}");
        }
        self.0.push((name, begun.elapsed().as_secs_f64(), result.is_ok()));
    }

    /// Prints a summary. Fails if a step has failed.
    pub(crate) fn finish(self) -> Result<()> {
        eprintln!();
        for (name, seconds, passed) in &self.0 {
            eprintln!(
                "{seconds:8.1} s  {}  {name}",
                if *passed { "passed" } else { "FAILED" }
            );
        }
        eprintln!(
            "{:8.1} s  in all",
            self.0.iter().map(|(_, seconds, _)| seconds).sum::<f64>()
        );
        let failed: Vec<_> = self
            .0
            .iter()
            .filter(|(.., passed)| !passed)
            .map(|(name, ..)| *name)
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            bail!("not passed: {}", failed.join(", "))
        }
    }
}
