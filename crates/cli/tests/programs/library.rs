//! The library that the programs of the tests use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The current library: cargo rebuilds it after a change.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile = profile();
    let mut cargo = Command::new(env!("CARGO"));
    // Selects the same packages as the tests: with other features cargo would rebuild everything.
    cargo.args([
        "build",
        "--quiet",
        "--workspace",
        "--lib",
        "--test",
        "programs",
        "--target-dir",
    ]);
    cargo.arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    profile.join("libtoehold.so")
});

/// Cargo's directory for the build of these tests: TARGET/PROFILE, from
/// TARGET/PROFILE/deps/programs-….
pub(crate) fn profile() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Regression: it also loaded libgcc_s, which took a fifth of the run time of a small program.
#[test]
#[ignore = "needs cc"]
#[cfg(target_arch = "x86_64")]
fn library_loads_libc_only() {
    let output = Command::new("readelf").arg("--dynamic").arg(&*LIBRARY).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let needed: Vec<&str> = output.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "{output}");
    let is_libcs = |line: &&str| line.contains("[libc.so.6]") || line.contains("[ld-linux-");
    assert!(needed.iter().all(is_libcs), "{needed:?}");
}
