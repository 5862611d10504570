//! Programs with several workers, as a user measures them: each plan once, with short measurements.

#[path = "programs/library.rs"]
mod library;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn toehold(arguments: &[&str], results: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toehold"));
    command
        .args(arguments)
        .env("TOEHOLD_RESULTS", results)
        .stdin(Stdio::null());
    command
}

/// A command with the library of the programs.
fn on_nodes(arguments: &[&str], results: &Path) -> Command {
    let mut command = toehold(arguments, results);
    command.env("TOEHOLD_LIBRARY", &*library::LIBRARY);
    command
}

fn json(output: &Output) -> Value {
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said()))
}

/// Measures every cell of a plan's short form once, over all candidates that have it. `with_unix`
/// is the number of cells with Unix sockets.
fn is_measured(name: &str, with_unix: usize) {
    let place = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/scale/{name}.toml"));
    let plan = fs::read_to_string(file).unwrap();
    let (before, after) = plan.split_once("[quick.measure]").unwrap();
    let after = after.split_once("[[wanted]]").map_or("", |(_, wanted)| wanted);
    // The short form has all candidates here.
    let before = before.replace(
        "candidates = [\"direct\", \"adaptive\", \"kernel-loopback\"]\n",
        "",
    );
    let measure = "rounds = 1\nwarm-up-ms = 1\nspan-ms = 100\npatience-ms = 60000";
    let wanted = if after.is_empty() { "" } else { "[[wanted]]" };
    let path = place.path().join("plan.toml");
    fs::write(
        &path,
        format!("{before}[quick.measure]\n{measure}\n{wanted}{after}"),
    )
    .unwrap();
    let words = ["sweep", path.to_str().unwrap(), "--quick", "--json"];
    let output = on_nodes(&words, place.path()).output().unwrap();
    let report = json(&output);
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    assert!(output.status.success());
    let cells = report["plan"]["cells"].as_array().unwrap().len();
    for candidate in ["direct", "adaptive", "kernel-loopback", "kernel-veth"] {
        assert_eq!(report["candidates"][candidate]["measured"], cells, "{candidate}");
    }
    let unix = &report["candidates"]["unix"]["measured"];
    assert_eq!(unix.as_u64().unwrap_or(0), with_unix as u64);
    let worst = report["worst"].as_array().unwrap();
    // A row of each cell for direct connections, and one for TCP.
    assert_eq!(worst.len(), 2 * cells);
    let ratios: Vec<_> = worst
        .iter()
        .map(|row| row["ratio"]["median"].as_f64().unwrap())
        .collect();
    assert!(ratios[0] > 0.0 && ratios.is_sorted(), "{ratios:?}");
}

#[test]
#[ignore = "needs root, namespaces, ip, nginx"]
fn nginx_with_several_workers_is_measured() {
    is_measured("nginx", 4);
}

#[test]
#[ignore = "needs root, namespaces, ip, nginx, php-fpm"]
fn php_fpm_behind_nginx_is_measured() {
    is_measured("php-fpm", 1);
}

#[test]
#[ignore = "needs root, namespaces, ip, varnishd, apache2"]
fn varnish_in_front_of_apache_is_measured() {
    is_measured("varnish", 0);
}

#[test]
#[ignore = "needs root, namespaces, ip, pgbench, setpriv"]
fn postgresql_is_measured() {
    is_measured("postgresql", 6);
}

#[test]
#[ignore = "needs root, namespaces, ip, mariadbd, sysbench"]
fn mariadb_is_measured() {
    is_measured("mariadb", 1);
}

#[test]
#[ignore = "needs root, namespaces, ip, redis-server"]
fn redis_with_io_threads_is_measured() {
    is_measured("redis", 1);
}

#[test]
#[ignore = "needs root, namespaces, ip, memcached"]
fn memcached_with_several_threads_is_measured() {
    is_measured("memcached", 1);
}

#[test]
#[ignore = "needs root, namespaces, ip, cc"]
fn every_kind_of_concurrency_is_measured() {
    is_measured("concurrency", 7);
}

#[test]
#[ignore = "needs root, namespaces, ip, cc"]
fn chosen_workers_are_measured_beside_busy_loops() {
    let place = tempfile::tempdir().unwrap();
    let words = "bench workers --programs prefork,forking --workers 1,2 --clients 2 --loops 2 --rounds 1 --span 1 --json";
    let words: Vec<_> = words.split(' ').collect();
    let output = on_nodes(&words, place.path()).output().unwrap();
    let report = json(&output);
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    let names: Vec<_> = report["plan"]["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| {
            (
                cell["program"].as_str().unwrap(),
                cell["workers"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(names, [("prefork", 1), ("prefork", 2), ("forking", 1)]);
    for row in report["worst"].as_array().unwrap() {
        assert!(row["ratio"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
}

/// `PATH` leads to the programs of the measurement itself, and to no measured program.
#[test]
fn missing_program_is_reported_in_its_row() {
    let place = tempfile::tempdir().unwrap();
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let words = "bench workers --quick --programs memcached --rounds 2";
    let words: Vec<_> = words.split(' ').collect();
    let output = toehold(&words, place.path()).env("PATH", &bin).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let row = said.lines().find(|line| line.contains("memcached_2w_8c_0l"));
    let row = row.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    assert!(row.contains("install the package memcached"), "{row}");
    assert!(!said.contains("failed"), "{said}");
}
