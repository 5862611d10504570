//! The library that programs are run with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The library, as it is now: cargo makes it anew if anything about it has changed.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let profile = profile();
    let mut cargo = Command::new(env!("CARGO"));
    // Selected as the tests are: for other features cargo would make everything anew.
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

/// Where cargo puts what it builds as these tests: TARGET/PROFILE, of TARGET/PROFILE/deps/programs-….
pub(crate) fn profile() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

/// It loaded libgcc_s as well, which took a fifth of the time in which a small program starts and
/// ends.
#[test]
#[ignore = "needs cc"]
#[cfg(target_arch = "x86_64")]
fn the_library_loads_libc_alone() {
    let output = Command::new("readelf").arg("--dynamic").arg(&*LIBRARY).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let needed: Vec<&str> = output.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "{output}");
    let is_libcs = |line: &&str| line.contains("[libc.so.6]") || line.contains("[ld-linux-");
    assert!(needed.iter().all(is_libcs), "{needed:?}");
}
