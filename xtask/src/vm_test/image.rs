//! The boot image of a machine: a kernel, and a file system in memory. It holds a
//! shell, the tested programs, and their libraries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

use super::kernel::Kernel;
use crate::shell::{command, run as run_shown, target};

pub(super) struct Image {
    kernel: PathBuf,
    files: PathBuf,
    /// Directory of the machines' logs.
    work: PathBuf,
}

impl Image {
    /// Builds an image with a kernel and its loadable modules. Each module comes
    /// behind those that it needs.
    pub(super) fn make(work: &Path, kernel: &Kernel, modules: &[&str]) -> Result<Image> {
        let mut archive = Archive::default();
        archive.add("init", include_bytes!("init.sh"), 0o755);
        archive.add("fetch.pl", include_bytes!("fetch.pl"), 0o644);
        archive.add("tipc.pl", include_bytes!("tipc.pl"), 0o644);
        let present: Vec<_> = modules.iter().filter(|name| !kernel.has_built_in(name)).collect();
        for module in &present {
            archive.add(&format!("modules/{module}.ko"), &kernel.module(module)?, 0o644);
        }
        let order: String = present.iter().map(|module| format!("{module}\n")).collect();
        archive.add("modules/order", order.as_bytes(), 0o644);
        let mut libraries = BTreeSet::new();
        for (path, name) in [
            (stripped(work, "toehold")?, "usr/bin/toehold"),
            (stripped(work, "libtoehold.so")?, "usr/lib/libtoehold.so"),
            (program("busybox")?, "bin/busybox"),
            (program("ip")?, "usr/local/bin/ip"),
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
        let files = work.join(format!("initramfs-{}", kernel.release));
        fs::write(&files, archive.finish())?;
        Ok(Image {
            kernel: kernel.image()?,
            files,
            work: work.to_owned(),
        })
    }

    /// Returns QEMU's options that boot the image.
    pub(super) fn options(&self) -> [&OsStr; 4] {
        [
            "-kernel".as_ref(),
            self.kernel.as_ref(),
            "-initrd".as_ref(),
            self.files.as_ref(),
        ]
    }

    /// Returns the path of a machine's log.
    pub(super) fn log(&self, machine: &str) -> PathBuf {
        self.work.join(format!("{machine}.log"))
    }
}

/// Returns a copy of a built file without debug information.
fn stripped(work: &Path, name: &str) -> Result<PathBuf> {
    let path = work.join(name);
    let mut strip = command("strip", ["-o"]);
    run_shown(strip.arg(&path).arg(target().join("debug").join(name)))?;
    Ok(path)
}

/// Returns the path of a program of this host.
fn program(name: &str) -> Result<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let mut places = places.iter().map(|place| Path::new(place).join(name));
    places
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not to be found"))
}

/// Returns the libraries that a program loads, with the loader. A static program
/// has none.
fn loaded_by(program: &Path) -> Vec<String> {
    // `ldd` fails for a static program.
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

/// A cpio archive in the kernel's format ("newc").
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
    fn directories_precede_their_content_and_appear_once() {
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
