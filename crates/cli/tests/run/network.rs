//! Nodes with a network of their own.

use std::fs;
use std::io::BufRead;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::support::{Fabrics, eventually, text, wait_for_end};
use crate::{Started, running, shell, start, wait_until_gone};

fn namespace(process: impl std::fmt::Display) -> String {
    let path = fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The contents of a program's network, one per line.
const LOOK: &str = "readlink /proc/self/ns/net; ls -m /sys/class/net >/dev/null; \
    tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '; echo";

#[test]
#[ignore = "needs namespaces, tun"]
fn program_has_only_loopback_and_fabric() {
    let fabrics = Fabrics::new();
    let said = shell(&fabrics, "--net own --node web", LOOK);
    let said = text(&said.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_ne!(lines[0], namespace("self"));
    assert_eq!(lines[1], "lo toe0 ");
    wait_until_gone(&fabrics);
    let said = shell(&fabrics, "--net own --tap=other", LOOK);
    assert!(text(&said.stdout).contains("lo other "));
    // The host's network is unchanged.
    let said = shell(&fabrics, "", LOOK);
    assert!(text(&said.stdout).starts_with(&namespace("self")));
}

#[test]
#[ignore = "needs namespaces, tun, ping"]
fn kernels_of_programs_reach_each_other_over_fabric() {
    let fabrics = Fabrics::new();
    let other = start(&fabrics, "--net own --node other", "echo; cat");
    for address in ["10.77.0.1", "fd77::1", "127.0.0.1"] {
        let ping = format!("ping -c 1 -W 10 {address}");
        let ended = shell(&fabrics, "--net own --node web", &ping);
        assert!(ended.status.success(), "{}", text(&ended.stdout));
    }
    drop(other.finish());
    wait_until_gone(&fabrics);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn programs_of_node_share_its_network() {
    let fabrics = Fabrics::new();
    let first = start(
        &fabrics,
        "--net own --node web",
        "readlink /proc/self/ns/net; cat",
    );
    let second = start(
        &fabrics,
        "--net own --node web",
        "readlink /proc/self/ns/net; cat",
    );
    let beside = start(
        &fabrics,
        "--net host --node web",
        "readlink /proc/self/ns/net; cat",
    );
    assert_eq!(first.line, second.line);
    assert_eq!(first.line, namespace(fabrics.engine("web").as_raw_nonzero()));
    assert_eq!(beside.line, namespace("self"));
    for program in [first, second, beside] {
        drop(program.finish());
    }
    let name = format!("toehold-run-{}", std::process::id());
    fabrics.succeeds(&format!("up named --tap --netns {name}"));
    let said = shell(&fabrics, "--net own --node named", LOOK);
    assert!(text(&said.stdout).contains("lo toe0 "), "{}", text(&said.stderr));
    fabrics.succeeds("down named");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn network_is_gone_after_kill_of_all_processes() {
    let fabrics = Fabrics::new();
    let mut program = start(
        &fabrics,
        "--net own --node web",
        "readlink /proc/self/ns/net; exec cat",
    );
    let engine = fabrics.engine("web");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    // No process uses the namespace, and no name leads to it.
    let has = |process: &fs::DirEntry| {
        let link = fs::read_link(process.path().join("ns/net"));
        link.is_ok_and(|link| link.to_str() == Some(&program.line))
    };
    let processes = || fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    eventually("the namespace's end", || {
        !processes().any(|process| has(&process))
    });
    fabrics.succeeds("ps");
    assert_eq!(fabrics.files(), [""; 0]);
}

/// Runs a shell as a user without privileges that owns the fabrics. As on most machines, any user
/// may open the device that creates interfaces.
fn as_nobody(fabrics: &Fabrics, options: &str, script: &str) -> Command {
    const NOBODY: u32 = 65_534;
    std::os::unix::fs::chown(fabrics.0.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let become_nobody = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && cd / && \
                         exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let inner = running(fabrics, options, &["sh", "-c", script]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", become_nobody, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
#[ignore = "needs root, namespaces, tun"]
fn root_of_user_namespace_has_device_there() {
    let fabrics = Fabrics::new();
    let toehold = env!("CARGO_BIN_EXE_toehold");
    // The fabrics are those of the user outside of the namespace.
    let within = format!("{toehold} up web --tap >/dev/null && cut -d: -f1 /proc/net/dev | grep toe0");
    let script = format!("unshare --map-root-user --net sh -c '{within}'; {toehold} ps; {toehold} down web");
    let mut command = as_nobody(&fabrics, "--node own", &script);
    command
        .env_remove("TOEHOLD_RUNTIME_DIR")
        .env("XDG_RUNTIME_DIR", fabrics.0.path());
    let said = command.output().unwrap();
    // Once in the namespace, and once as the device of the node from outside.
    let seen = text(&said.stdout).matches("toe0").count();
    assert_eq!(seen, 2, "{} {}", text(&said.stdout), text(&said.stderr));
}

#[test]
#[ignore = "needs root, namespaces, tun"]
fn unprivileged_user_has_own_network_and_stays_that_user() {
    let fabrics = Fabrics::new();
    let look = "id -u; id -g; grep CapEff /proc/self/status; readlink /proc/self/ns/user";
    for way in crate::WAYS {
        let options = format!("--net own --node web {way}");
        let mut program = Started::new(as_nobody(&fabrics, &options, &format!("{LOOK}; {look}; cat")));
        let mut lines = vec![program.line.clone()];
        for _ in 0..5 {
            let mut line = String::new();
            program.output.read_line(&mut line).unwrap();
            lines.push(line.trim_end().to_owned());
        }
        assert_ne!(lines[0], namespace("self"));
        assert_eq!(
            lines[1..5],
            ["lo toe0", "65534", "65534", "CapEff:\t0000000000000000"]
        );
        let user = fs::read_link("/proc/self/ns/user").unwrap();
        assert_ne!(lines[5], user.to_str().unwrap());
        // Another program joins it.
        let again = as_nobody(
            &fabrics,
            "--net own --node web",
            "readlink /proc/self/ns/net; cat",
        );
        let again = Started::new(again);
        assert_eq!(again.line, lines[0]);
        drop((again.finish(), program.finish()));
        wait_until_gone(&fabrics);
    }
}

#[test]
#[ignore = "needs root, namespaces, tun"]
fn counts_in_own_network_of_user_are_reported() {
    let fabrics = Fabrics::new();
    let script = "test -r $TOEHOLD_STATS && test -w $TOEHOLD_STATS && echo there";
    let ended = as_nobody(&fabrics, "--net own --stats", script).output().unwrap();
    assert_eq!(text(&ended.stdout), "there\n", "{}", text(&ended.stderr));
}
