//! Passes the commit of the build to the library: every result carries it.

use std::path::Path;
use std::process::Command;

fn main() {
    // The present path, not that of the compilation: target directories are moved.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root).join("../..");
    let commit = git(&root, &["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed = git(&root, &["status", "--porcelain", "--untracked-files=no"]);
    let dirty = changed.is_some_and(|changed| !changed.is_empty());
    println!("cargo::rustc-env=TOEHOLD_COMMIT={commit}");
    println!("cargo::rustc-env=TOEHOLD_DIRTY={dirty}");
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo::rustc-env=TOEHOLD_PROFILE={profile}");
    // All inputs of the answers: sources, and the checked-out commit. Cargo treats a missing path
    // as changed, so only existing ones are named.
    println!("cargo::rerun-if-changed={}", root.join("crates").display());
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    for name in ["HEAD", "refs/heads", "packed-refs"] {
        let path = git(
            &root,
            &["rev-parse", "--path-format=absolute", "--git-path", name],
        );
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The output of git, `None` without git or without a repository.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // Another git may be at work in the tree: take no lock that could block it.
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .current_dir(root)
        .args(arguments)
        .output()
        .ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}
