//! Programs at a terminal, started by an interactive shell.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Fabrics, PATIENCE, wait_for_end};
use crate::{LIBRARY, WAYS, wait_until_gone};

/// The shell's prompt for a command.
const PROMPT: &str = "READY> ";

/// A shell with job control at a terminal of its own.
struct Shell {
    shell: Child,
    terminal: File,
    /// The shell's output since the last command.
    said: String,
}

impl Shell {
    fn new(fabrics: &Fabrics) -> Shell {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let other: OwnedFd = ioctl_tiocgptpeer(&terminal, flags).unwrap();
        let copy = || other.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command
            .env("PS1", PROMPT)
            .env("TERM", "dumb")
            .env_remove("PROMPT_COMMAND");
        command.env("TOEHOLD_LIBRARY", &LIBRARY.1);
        command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
        command.env("RUN", concat!(env!("CARGO_BIN_EXE_toehold"), " run"));
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let shell = command.spawn().unwrap();
        let mut shell = Shell {
            shell,
            terminal: terminal.into(),
            said: String::new(),
        };
        shell.wait_for(PROMPT);
        // Ctrl-C would also discard output in progress.
        shell.run("stty -echo noflsh");
        shell
    }

    /// Waits for some output, and forgets everything before it.
    fn wait_for(&mut self, what: &str) -> String {
        let timeout = Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        loop {
            if let Some(at) = self.said.find(what) {
                let end = at + what.len();
                return self.said.drain(..end).collect();
            }
            let ready = poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&timeout));
            assert_eq!(ready, Ok(1), "no {what:?} but {:?}", self.said);
            let mut part = [0; 4096];
            let len = self.terminal.read(&mut part).unwrap();
            self.said.push_str(&String::from_utf8_lossy(&part[..len]));
        }
    }

    fn type_in(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// The output of a command until the next prompt.
    fn run(&mut self, line: &str) -> String {
        self.type_in(&format!("{line}\n"));
        self.wait_for(PROMPT)
    }

    /// Runs a program until it has printed that it is up.
    fn start(&mut self, way: &str, script: &str) {
        self.type_in(&format!("$RUN {way} -- sh -c '{script}'\n"));
        self.wait_for("up\r\n");
    }

    fn status(&mut self) -> String {
        let said = self.run("echo =$?=");
        said.split('=').nth(1).unwrap().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Its jobs are signalled too, as when a window is closed.
        if let Ok(null) = File::open("/dev/null") {
            self.terminal = null;
        }
        let _ = self.shell.wait();
    }
}

#[test]
fn ctrl_c_reaches_program_once() {
    let fabrics = Fabrics::new();
    let mut shell = Shell::new(&fabrics);
    for way in WAYS {
        shell.start(way, "echo up; read x");
        shell.type_in("\x03");
        shell.wait_for(PROMPT);
        assert_eq!(shell.status(), "130", "{way}");
        let script = "trap \"n=x\\$n; echo got\" INT; echo up; while :; do read x; [ \"$x\" = end ] && break; done; \
                      echo [$n]; exit 5";
        shell.start(way, script);
        shell.type_in("\x03");
        shell.wait_for("got\r\n");
        shell.type_in("end\n");
        shell.wait_for("[x]\r\n");
        shell.wait_for(PROMPT);
        assert_eq!(shell.status(), "5", "{way}");
        shell.start(
            way,
            "ulimit -c 0; trap \"echo quit; exit 9\" QUIT; echo up; while :; do read x; done",
        );
        shell.type_in("\x1c");
        shell.wait_for("quit\r\n");
        shell.wait_for(PROMPT);
        assert_eq!(shell.status(), "9", "{way}");
    }
}

#[test]
fn usage_is_reported_after_ctrl_c() {
    let fabrics = Fabrics::new();
    let mut shell = Shell::new(&fabrics);
    for key in ["\x03", "\x1c"] {
        shell.start(
            "--stats --node web",
            "ulimit -c 0; echo up; read x; echo got; read x",
        );
        shell.type_in("\x1a");
        shell.wait_for("Stopped");
        shell.wait_for(PROMPT);
        shell.type_in("fg\nmore\n");
        shell.wait_for("got\r\n");
        shell.type_in(key);
        shell.wait_for("connections opened on the node");
        shell.wait_for(PROMPT);
        let signal = if key == "\x03" { "130" } else { "131" };
        assert_eq!(shell.status(), signal);
    }
}

#[test]
fn program_stops_and_continues_as_job() {
    let fabrics = Fabrics::new();
    let mut shell = Shell::new(&fabrics);
    for way in WAYS {
        shell.start(way, "echo up; read x; echo got $x; exit 6");
        shell.type_in("\x1a");
        shell.wait_for("Stopped");
        shell.wait_for(PROMPT);
        assert!(shell.run("jobs").contains("Stopped"));
        shell.type_in("fg\n");
        shell.type_in("more\n");
        shell.wait_for("got more\r\n");
        shell.wait_for(PROMPT);
        assert_eq!(shell.status(), "6", "{way}");
        // In the background it may not read from the terminal.
        shell.type_in(&format!("$RUN {way} -- sh -c 'read x; echo got $x' &\n"));
        shell.wait_for(PROMPT);
        while !shell.run("jobs").contains("Stopped") {}
        shell.type_in("fg\nagain\n");
        shell.wait_for("got again\r\n");
        shell.wait_for(PROMPT);
    }
}

#[test]
fn shell_on_node_has_own_job_control() {
    let fabrics = Fabrics::new();
    let mut shell = Shell::new(&fabrics);
    for way in WAYS {
        shell.type_in(&format!(
            "$RUN --node web {way} -- bash --norc --noprofile --noediting -i\n"
        ));
        let said = shell.wait_for(PROMPT);
        assert!(!said.contains("no job control"), "{said}");
        assert!(shell.run("echo [$-]").contains('m'));
        assert!(shell.run("echo on $TOEHOLD_NODE").contains("on web\r\n"));
        shell.type_in("sh -c 'echo up; read x'\n");
        shell.wait_for("up\r\n");
        shell.type_in("\x1a");
        shell.wait_for("Stopped");
        shell.wait_for(PROMPT);
        shell.type_in("fg\nx\n");
        shell.wait_for(PROMPT);
        // It stops itself, which its parent must notice.
        shell.type_in("suspend\n");
        shell.wait_for("Stopped");
        shell.wait_for(PROMPT);
        let said = shell.run("echo on $TOEHOLD_NODE");
        assert!(said.contains("on\r\n"), "{said:?}");
        shell.type_in("fg\n");
        shell.type_in("echo back on $TOEHOLD_NODE\n");
        shell.wait_for("back on web\r\n");
        shell.wait_for(PROMPT);
        shell.type_in("exit 4\n");
        shell.wait_for(PROMPT);
        assert_eq!(shell.status(), "4", "{way}");
        // It has the terminal again, and job control.
        assert!(shell.run("echo [$-]").contains('m'));
    }
    wait_until_gone(&fabrics);
}

#[test]
fn new_size_of_terminal_is_signalled_once() {
    let fabrics = Fabrics::new();
    let mut shell = Shell::new(&fabrics);
    for (way, columns) in WAYS.into_iter().zip([77, 78]) {
        let script = "trap \"echo size; stty size\" WINCH; echo up; while :; do read x; \
                      [ \"$x\" = end ] && exit 0; done";
        shell.start(way, script);
        let size = Winsize {
            ws_row: 33,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&shell.terminal, size).unwrap();
        shell.wait_for(&format!("33 {columns}\r\n"));
        shell.type_in("end\n");
        let rest = shell.wait_for(PROMPT);
        assert!(!rest.contains("size"), "{way}: {rest}");
    }
}

#[test]
fn loss_of_terminal_ends_programs_and_nodes() {
    for way in WAYS {
        let fabrics = Fabrics::new();
        let mut shell = Shell::new(&fabrics);
        shell.start(&format!("--node web {way}"), "echo up; read x; read x");
        let engine = fabrics.engine("web");
        let null = File::open("/dev/null").unwrap();
        drop(std::mem::replace(&mut shell.terminal, null));
        wait_for_end(engine);
        assert_eq!(fabrics.files(), [""; 0]);
    }
}
