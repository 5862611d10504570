//! Debian's kernels, unpacked for virtual machines. This host never boots them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::requirements::is_root;
use crate::shell::{command, output, run as run_shown};

/// The package that depends on the newest kernel of a suite.
const NEWEST: &str = "linux-image-amd64";

/// Keyring for the signatures of Debian's packages.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The packages of a kernel.
pub(super) struct Kernel {
    /// The kernel's own name.
    pub(super) release: String,
    /// Directory of the unpacked packages.
    root: PathBuf,
}

impl Kernel {
    /// Returns the kernel of this host's suite, and keeps it.
    pub(super) fn of_this_suite(work: &Path) -> Result<Kernel> {
        let apt = Apt { options: Vec::new() };
        match apt.newest() {
            Ok(name) => apt.unpacked(work, &name),
            // The package list of a new machine is empty.
            Err(_) if is_root() => {
                run_shown(&mut command("apt-get", ["update", "-qq"]))?;
                apt.unpacked(work, &apt.newest()?)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the kernel of a suite that this host does not use otherwise. It is
    /// kept until a newer one appears.
    pub(super) fn of_suite(work: &Path, suite: &str) -> Result<Kernel> {
        let apt = Apt::for_suite(&work.join(suite), suite)?;
        apt.unpacked(work, &apt.newest()?)
    }

    /// Returns the path of the kernel's image.
    pub(super) fn image(&self) -> Result<PathBuf> {
        let known = [
            self.root.join(format!("boot/vmlinuz-{}", self.release)),
            self.modules().join("vmlinuz"),
        ];
        let found = known.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("the packages of {} have no kernel", self.release))
    }

    /// Returns whether a module is built into the kernel.
    pub(super) fn has_built_in(&self, module: &str) -> bool {
        let list = fs::read_to_string(self.modules().join("modules.builtin"));
        let file = format!("/{module}.ko");
        list.is_ok_and(|list| list.lines().any(|line| line.ends_with(&file)))
    }

    /// Returns a module of the kernel, unpacked.
    pub(super) fn module(&self, name: &str) -> Result<Vec<u8>> {
        if let Ok(path) = find(&self.modules(), &format!("{name}.ko")) {
            return Ok(fs::read(path)?);
        }
        let packed = find(&self.modules(), &format!("{name}.ko.xz"))?;
        let unpacked = command("xz", ["--decompress", "--stdout"])
            .arg(&packed)
            .output()?;
        ensure!(unpacked.status.success(), "cannot unpack {}", packed.display());
        Ok(unpacked.stdout)
    }

    fn modules(&self) -> PathBuf {
        let below = |directory: &str| self.root.join(directory).join("lib/modules").join(&self.release);
        let merged = below("usr");
        if merged.is_dir() { merged } else { below("") }
    }
}

/// The package manager with its lists.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Uses lists of its own for one suite, and leaves this host's unchanged.
    fn for_suite(directory: &Path, suite: &str) -> Result<Apt> {
        let targets = command(
            "apt-get",
            [
                "indextargets",
                "--format",
                "$(ORIGIN) $(LABEL) $(REPO_URI)",
                "Created-By: Packages",
            ],
        );
        let targets = output(&mut { targets })?;
        let archive = targets
            .lines()
            .find_map(|line| line.strip_prefix("Debian Debian "))
            .context("this machine has no packages of Debian's")?;
        for place in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(place))?;
        }
        let sources = directory.join("sources.list");
        fs::write(
            &sources,
            format!("deb [signed-by={KEYS}] {archive} {suite} main\n"),
        )?;
        let directory = directory.display();
        let options = [
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=-".to_owned(),
            format!("Dir::State::Lists={directory}/lists"),
            format!("Dir::Cache={directory}/cache"),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        let apt = Apt {
            options: options
                .into_iter()
                .flat_map(|option| ["-o".to_owned(), option])
                .collect(),
        };
        run_shown(&mut apt.command("apt-get", &["update", "-qq"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = command(program, arguments);
        command.args(&self.options);
        command
    }

    /// Returns the dependencies of a package.
    fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let said = output(&mut self.command("apt-cache", &["depends", package]))?;
        let depends = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(depends.map(str::to_owned).collect())
    }

    /// Returns the name of the newest kernel's package.
    fn newest(&self) -> Result<String> {
        let depends = self.dependencies(NEWEST)?;
        let mut images = depends.into_iter().filter(|name| release_of(name).is_some());
        images.next().context("Debian's kernel is not available")
    }

    /// Unpacks the packages of a kernel into one directory.
    fn unpacked(&self, work: &Path, name: &str) -> Result<Kernel> {
        let release = release_of(name).context("no kernel")?.to_owned();
        let root = work.join(name);
        if !root.is_dir() {
            let parts = self.dependencies(name)?;
            let parts = parts
                .iter()
                .filter(|part| part.starts_with("linux-") && part.ends_with(&release));
            let (download, partial) = (work.join("download"), work.join("partial"));
            for directory in [&download, &partial] {
                let _ = fs::remove_dir_all(directory);
                fs::create_dir_all(directory)?;
            }
            let mut get = self.command("apt-get", &["download", "-qq", name]);
            run_shown(get.args(parts).current_dir(&download))?;
            for package in fs::read_dir(&download)? {
                let mut unpack = command("dpkg-deb", ["--extract"]);
                run_shown(unpack.arg(package?.path()).arg(&partial))?;
            }
            fs::rename(&partial, &root)?;
            fs::remove_dir_all(&download)?;
        }
        Ok(Kernel { release, root })
    }
}

/// Returns the release of the kernel in a package of this name.
fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    let is_number = release.starts_with(|first: char| first.is_ascii_digit());
    (is_number && release.ends_with("-amd64")).then_some(release)
}

/// Finds a file below a directory.
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
    bail!("the kernel has no {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_package_name() {
        assert_eq!(release_of("linux-image-6.1.0-40-amd64"), Some("6.1.0-40-amd64"));
        assert_eq!(
            release_of("linux-image-7.3.4+deb13-amd64"),
            Some("7.3.4+deb13-amd64")
        );
        assert_eq!(release_of("linux-image-amd64"), None);
        assert_eq!(release_of("linux-base-amd64"), None);
    }
}
