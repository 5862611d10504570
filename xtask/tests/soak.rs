//! The short form of `cargo xtask soak`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts what it builds as this test: TARGET/PROFILE, of TARGET/PROFILE/deps/soak-….
fn profile() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Builds what the soak tries, selected as all tests are: for other features cargo would make everything anew.
fn build() {
    let profile = profile();
    let mut cargo = Command::new(env!("CARGO"));
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
}

/// No program ends otherwise than it may, each goes on after the last fault, and nothing stays.
#[test]
fn nodes_whose_programs_and_engines_are_killed_keep_nothing() {
    build();
    let result = tempfile::NamedTempFile::new().unwrap();
    let mut soak = Command::new(env!("CARGO_BIN_EXE_xtask"));
    soak.args(["soak", "--minutes", "0.33", "--programs"])
        .arg(profile());
    soak.arg("--json").arg(result.path());
    let done = soak.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(result.path()).unwrap()).unwrap();
    assert_eq!(document["schema"], "toehold/soak/1");
    // It did harm, and the programs' connections were the nodes'.
    assert!(
        document["faults"]["programs_killed"].as_u64() > Some(0),
        "{document}"
    );
    for (node, counter, least) in [
        ("server", "direct_accepted", 100),
        ("client", "tcp_passive_opens", 10),
    ] {
        let counted = document["nodes"][node][counter].as_u64();
        assert!(counted > Some(least), "{node} {counter}: {document}");
    }
}
