//! The program and its parent see no difference except where connections go.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Fabrics, eventually, text};
use crate::{LIBRARY, WAYS, running, shell, start, wait_until_gone};

#[test]
fn programs_end_as_without_toehold() {
    let fabrics = Fabrics::new();
    for way in WAYS {
        for code in [0, 1, 7, 255] {
            let ended = shell(&fabrics, way, &format!("exit {code}"));
            assert_eq!(ended.status.code(), Some(code), "{way} {}", text(&ended.stderr));
        }
        for signal in [
            Signal::TERM,
            Signal::KILL,
            Signal::SEGV,
            Signal::PIPE,
            Signal::USR1,
        ] {
            let ended = shell(&fabrics, way, &format!("kill -{} $$", signal.as_raw()));
            assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{way}");
        }
        let status = |program: &str| running(&fabrics, way, &[program]).output().unwrap();
        let missing = status("no-such-program-anywhere");
        assert_eq!(missing.status.code(), Some(127));
        assert!(text(&missing.stderr).contains("no-such-program-anywhere: there is no such program"));
        assert_eq!(status("/etc/passwd").status.code(), Some(126));
    }
    wait_until_gone(&fabrics);
}

#[test]
fn programs_see_their_node_in_environment() {
    let fabrics = Fabrics::new();
    for way in WAYS {
        let mut command = running(
            &fabrics,
            way,
            &[
                "sh",
                "-c",
                "echo $LD_PRELOAD; echo $TOEHOLD_FABRIC; echo $TOEHOLD_NODE; echo $0",
                "a",
                "b",
            ],
        );
        command.env("LD_PRELOAD", "libc.so.6:/elsewhere/libtoehold.so");
        let said = text(&command.output().unwrap().stdout);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], format!("{}:libc.so.6", LIBRARY.1.display()));
        assert_eq!(lines[1], fabrics.0.path().join("default").to_str().unwrap());
        assert!(lines[2] == "sh" || lines[2].starts_with("sh-"), "{}", lines[2]);
        assert_eq!(lines[3], "a");
    }
    // Commands in it use the same fabric.
    let toehold = env!("CARGO_BIN_EXE_toehold");
    let said = shell(
        &fabrics,
        "--node web",
        &format!("env -u TOEHOLD_RUNTIME_DIR {toehold} ps"),
    );
    assert!(text(&said.stdout).contains("web"), "{said:?}");
}

#[test]
fn program_has_process_id_input_and_output_of_command() {
    let fabrics = Fabrics::new();
    let mut program = start(&fabrics, "", "echo $$; cat; echo done >&2; exit 3");
    assert_eq!(program.line, program.child.id().to_string());
    program
        .child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"through\n")
        .unwrap();
    assert_eq!(program.finish(), ("through\n".to_owned(), Some(3)));
    let mut program = start(&fabrics, "--stats=/dev/null", "echo; cat; exit 3");
    program
        .child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"through\n")
        .unwrap();
    assert_eq!(program.finish(), ("through\n".to_owned(), Some(3)));
}

#[test]
fn program_has_only_its_own_children() {
    let fabrics = Fabrics::new();
    let said = shell(&fabrics, "", "cat /proc/$$/task/$$/children; echo end");
    // Except for the one that reads them.
    let said = text(&said.stdout);
    let children = said.split_whitespace().filter(|word| *word != "end").count();
    assert!(children <= 1, "{said}");
}

#[test]
fn signals_of_other_processes_reach_program() {
    let fabrics = Fabrics::new();
    for way in WAYS {
        for name in ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "ALRM"] {
            // A shell in `read` misses a signal just before the call; a shell that waits for
            // another program handles it soon after.
            let script =
                format!("trap 'echo got {name}; exit 4' {name}; echo up; while :; do sleep 0.02; done");
            let program = start(&fabrics, way, &script);
            let signal = match name {
                "TERM" => Signal::TERM,
                "HUP" => Signal::HUP,
                "INT" => Signal::INT,
                "QUIT" => Signal::QUIT,
                "USR1" => Signal::USR1,
                "USR2" => Signal::USR2,
                "WINCH" => Signal::WINCH,
                _ => Signal::ALARM,
            };
            kill_process(Pid::from_child(&program.child), signal).unwrap();
            let mut program = program;
            let mut line = String::new();
            program.output.read_line(&mut line).unwrap();
            assert_eq!(line, format!("got {name}\n"), "{way}");
            assert_eq!(program.finish().1, Some(4));
        }
    }
}

#[test]
fn ignored_or_blocked_signals_stay_so() {
    let fabrics = Fabrics::new();
    let toehold = env!("CARGO_BIN_EXE_toehold");
    for way in WAYS {
        let states = "grep -E \"^Sig(Blk|Ign)\" /proc/self/status";
        let mut command = Command::new("sh");
        let script = format!("trap '' HUP QUIT; {states}; exec {toehold} run {way} -- sh -c '{states}'");
        command.args(["-c", &script]).env("TOEHOLD_LIBRARY", &LIBRARY.1);
        command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
        let said = text(&command.output().unwrap().stdout);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 4, "{said}");
        assert_eq!(lines[..2], lines[2..], "{way}");
    }
}

/// `nohup` ignores the terminal's end, and its children inherit that.
#[test]
fn programs_under_nohup_outlive_their_terminal() {
    let fabrics = Fabrics::new();
    let toehold = env!("CARGO_BIN_EXE_toehold");
    for way in WAYS {
        let mut command = Command::new("nohup");
        command.args([toehold, "run"]).args(way.split_whitespace());
        command.args(["--", "sh", "-c", "echo up; cat; exit 3"]);
        command.env("TOEHOLD_LIBRARY", &LIBRARY.1);
        command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = crate::Started::new(command);
        assert_eq!(program.line, "up");
        kill_process(Pid::from_child(&program.child), Signal::HUP).unwrap();
        assert_eq!(program.finish(), (String::new(), Some(3)), "{way}");
    }
    wait_until_gone(&fabrics);
}

/// Regression: the tests of signals waited for programs that were never interrupted.
#[test]
fn tests_pass_with_ignored_signals() {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    let test = "transparency::signals_of_other_processes_reach_program";
    let script = format!("trap '' HUP INT QUIT; exec {} --exact {test}", own.display());
    let output = command.args(["-c", &script]).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn stopped_program_without_terminal_does_not_stop_its_parent() {
    let fabrics = Fabrics::new();
    let mut command = Command::new("setsid");
    let toehold = env!("CARGO_BIN_EXE_toehold");
    command.args([toehold, "run", "--stats=/dev/null", "--", "sh", "-c"]);
    command.arg("kill -STOP $$; exit 6").stdin(Stdio::null());
    command.env("TOEHOLD_LIBRARY", &LIBRARY.1);
    command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
    let mut runner = command.spawn().unwrap();
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map(|(_, after)| after.to_owned());
        after.and_then(|after| after.chars().next())
    };
    let child = || {
        let children = format!("/proc/{0}/task/{0}/children", runner.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().next()?.parse::<u32>().ok()
    };
    eventually("the program's stop", || {
        child().is_some_and(|child| state(child) == Some('T'))
    });
    let program = Pid::from_raw(child().unwrap() as i32).unwrap();
    kill_process(program, Signal::CONT).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(6));
}

#[test]
fn connections_staying_with_kernel_are_reported() {
    let fabrics = Fabrics::new();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("static");
    let source = directory.path().join("static.c");
    fs::write(&source, "void _start(void) { for (;;) __builtin_trap(); }").unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-static", "-nostdlib", "-o"])
        .arg(&program)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    let script = directory.path().join("script");
    fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    for path in [&program, &script] {
        let ended = running(&fabrics, "", &[path.to_str().unwrap()]).output().unwrap();
        let expected = format!(
            "toehold: {} is statically linked: its connections stay with the kernel (static)\n",
            program.display()
        );
        assert_eq!(text(&ended.stderr), expected);
        // It is run all the same.
        assert!(ended.status.signal().is_some(), "{ended:?}");
        let quiet = running(&fabrics, "--quiet", &[path.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(text(&quiet.stderr), "");
    }
    assert_eq!(text(&shell(&fabrics, "", "exit 0").stderr), "");
}

#[test]
fn missing_library_is_reported() {
    let fabrics = Fabrics::new();
    // A directory without the library.
    let directory = tempfile::tempdir().unwrap();
    let toehold = directory.path().join("bin");
    fs::create_dir(&toehold).unwrap();
    let toehold = toehold.join("toehold");
    fs::copy(env!("CARGO_BIN_EXE_toehold"), &toehold).unwrap();
    let mut command = Command::new(&toehold);
    command.args(["run", "--", "true"]).env_remove("TOEHOLD_LIBRARY");
    command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
    let ended = command.output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{said}");
    for place in [
        "bin/libtoehold.so",
        "lib/libtoehold.so",
        "lib/toehold/libtoehold.so",
        "TOEHOLD_LIBRARY",
    ] {
        assert!(said.contains(place), "{said}");
    }
    let ended = command.env("TOEHOLD_LIBRARY", "/none.so").output().unwrap();
    assert!(text(&ended.stderr).contains("/none.so"));
    let library = directory.path().join("lib");
    fs::create_dir(&library).unwrap();
    fs::copy(&LIBRARY.1, library.join("libtoehold.so")).unwrap();
    assert!(command.env_remove("TOEHOLD_LIBRARY").status().unwrap().success());
}

#[test]
fn invalid_options_are_refused() {
    let fabrics = Fabrics::new();
    let said = |options: &str| {
        let ended = shell(&fabrics, options, "exit 0");
        assert_eq!(ended.status.code(), Some(125), "{options}");
        text(&ended.stderr)
    };
    assert!(said("--net own --netns x").contains("leave --netns out"));
    assert!(said("--node a/b").contains("a node's name has"));
    fabrics.succeeds("up web");
    let taken = fabrics.fails("up web");
    assert!(taken.contains("is running in this fabric"), "{taken}");
    assert!(said("--net own --node web").contains("has no network of its own"));
    assert!(said("--ipv4 10.77.0.1/16").contains("node web has the address"));
}
