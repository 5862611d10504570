//! What a machine boots: Debian's kernel, and a file system in memory with a shell, the
//! programs that are tested, and what these load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::requirements::is_root;
use crate::shell::{command, output, run as run_shown, target};

/// Modules of the kernel, each behind those that it needs.
const MODULES: [&str; 4] = ["tun", "udp_tunnel", "ip6_udp_tunnel", "tipc"];

pub(super) struct Image {
    pub(super) kernel: PathBuf,
    pub(super) files: PathBuf,
    /// Where the machines' logs go.
    pub(super) work: PathBuf,
}

/// Makes it of the package of a kernel.
pub(super) fn make(work: &Path, package: &Path) -> Result<Image> {
    let mut archive = Archive::default();
    archive.add("init", include_bytes!("init.sh"), 0o755);
    archive.add("fetch.pl", include_bytes!("fetch.pl"), 0o644);
    archive.add("tipc.pl", include_bytes!("tipc.pl"), 0o644);
    for module in MODULES {
        let file = find(&package.join("lib/modules"), &format!("{module}.ko"))?;
        archive.add(&format!("modules/{module}.ko"), &fs::read(file)?, 0o644);
    }
    let toehold = work.join("toehold");
    let mut strip = command("strip", ["-o"]);
    run_shown(strip.arg(&toehold).arg(target().join("debug/toehold")))?;
    let mut libraries = BTreeSet::new();
    for (path, name) in [
        (toehold, "usr/bin/toehold"),
        (program("busybox")?, "bin/busybox"),
        (program("tipc")?, "usr/sbin/tipc"),
        (program("perl")?, "usr/bin/perl"),
    ] {
        libraries.extend(loaded_by(&path));
        archive.add(name, &fs::read(&path)?, 0o755);
    }
    for library in libraries {
        let name = library.trim_start_matches('/').to_owned();
        archive.add(&name, &fs::read(&library)?, 0o755);
    }
    let files = work.join("initramfs");
    fs::write(&files, archive.finish())?;
    for number in 0..2 {
        let _ = fs::remove_file(work.join(format!("vm{number}.log")));
    }
    let kernel = fs::read_dir(package.join("boot"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        });
    Ok(Image {
        kernel: kernel.context("the kernel's package has no kernel")?,
        files,
        work: work.to_owned(),
    })
}

/// The package of Debian's present kernel, unpacked. It is kept.
pub(super) fn kernel(work: &Path) -> Result<PathBuf> {
    let name = match package_name() {
        Ok(name) => name,
        // The list of packages of a fresh machine is empty.
        Err(_) if is_root() => {
            run_shown(&mut command("apt-get", ["update", "-qq"]))?;
            package_name()?
        }
        Err(error) => return Err(error),
    };
    let unpacked = work.join(&name);
    if unpacked.join("boot").is_dir() {
        return Ok(unpacked);
    }
    let download = work.join("download");
    fs::create_dir_all(&download)?;
    run_shown(command("apt-get", ["download", "-qq", &name]).current_dir(&download))?;
    let mut packages = fs::read_dir(&download)?.filter_map(|entry| Some(entry.ok()?.path()));
    let package = packages
        .find(|path| path.to_string_lossy().contains(&name))
        .context("apt-get has downloaded nothing")?;
    let partial = work.join("partial");
    let _ = fs::remove_dir_all(&partial);
    run_shown(command("dpkg-deb", ["--extract"]).arg(&package).arg(&partial))?;
    fs::rename(&partial, &unpacked)?;
    fs::remove_dir_all(&download)?;
    Ok(unpacked)
}

/// What the package of Debian's newest kernel is called.
fn package_name() -> Result<String> {
    let depends = output(&mut command("apt-cache", ["depends", "linux-image-amd64"]))?;
    let name = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-image-") && name.ends_with("-amd64"));
    Ok(name.context("Debian's kernel is not to be had")?.to_owned())
}

/// A file somewhere below a directory.
fn find(directory: &Path, name: &str) -> Result<PathBuf> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if entry.file_name().to_string_lossy() == name {
                return Ok(entry.path());
            }
        }
    }
    anyhow::bail!("the kernel has no {name}")
}

/// Where a program of this machine lies.
fn program(name: &str) -> Result<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let mut places = places.iter().map(|place| Path::new(place).join(name));
    places
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not to be found"))
}

/// The libraries that a program loads, with the loader; none if it is static.
fn loaded_by(program: &Path) -> Vec<String> {
    // It fails, and says so, if there are none.
    let said = command("ldd", [program]).stderr(Stdio::null()).output();
    let said = said.map_or(String::new(), |said| {
        String::from_utf8_lossy(&said.stdout).into_owned()
    });
    let path = |line: &str| {
        let line = line.trim();
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = path.split(" (").next().unwrap_or_default();
        path.starts_with('/').then(|| path.to_owned())
    };
    said.lines().filter_map(path).collect()
}

/// A cpio archive of the kind that the kernel unpacks ("newc").
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

impl Archive {
    fn add(&mut self, name: &str, contents: &[u8], mode: u32) {
        for (at, _) in name.match_indices('/') {
            if self.directories.insert(name[..at].to_owned()) {
                self.put(&name[..at], &[], DIRECTORY | 0o755);
            }
        }
        self.put(name, contents, FILE | mode);
    }

    fn put(&mut self, name: &str, contents: &[u8], mode: u32) {
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            contents.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.put("TRAILER!!!", &[], 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.add("a/b/c", b"hello", 0o644);
        archive.add("a/d", b"", 0o755);
        let bytes = archive.finish();
        assert!(bytes.len().is_multiple_of(4));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let names: Vec<_> = text
            .split("070701")
            .skip(1)
            .map(|entry| entry[104..].split('\0').next().unwrap())
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/d", "TRAILER!!!"]);
        assert!(text.contains("a/b/c\0hello"));
    }
}
