//! Programs of several users and namespaces: some reach a node, others are told why not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

use crate::library::LIBRARY;
use crate::support::{Fabrics, eventually, text};
use crate::{Place, Server, free_port};

const GREETER: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
print('listens', flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b'hi')
    connection.close()
";

const ASKER: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
print(connection.recv(9).decode())
";

/// The command and the library where all users can read them, and a fabric's directory with a mode.
struct Shared {
    place: Place,
    port: String,
    /// Whether nodes have direct connections.
    direct: bool,
}

impl Shared {
    fn new(mode: u32, group: Option<u32>) -> Shared {
        let place = Place::new(Some(Fabrics::new()));
        fs::copy(env!("CARGO_BIN_EXE_toehold"), place.path("toehold")).unwrap();
        fs::copy(&*LIBRARY, place.path("libtoehold.so")).unwrap();
        fs::create_dir(place.path("fabric")).unwrap();
        std::os::unix::fs::chown(place.path("fabric"), None, group).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path("fabric"), mode).unwrap();
        let port = free_port().to_string();
        Shared {
            place,
            port,
            direct: false,
        }
    }

    /// `toehold` with arguments, behind a command prefix.
    fn command(&self, before: &[&str], words: &[&str]) -> Command {
        let toehold = self.place.path("toehold");
        let all: Vec<&str> = before
            .iter()
            .copied()
            .chain([toehold.as_str()])
            .chain(words.iter().copied())
            .collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command
            .env("TOEHOLD_FABRIC", format!("{}/", self.place.path("fabric")))
            .env("TOEHOLD_LIBRARY", self.place.path("libtoehold.so"))
            .env("TOEHOLD_DIRECT", if self.direct { "yes" } else { "no" })
            .env("HOME", "/");
        command.env_remove("LD_PRELOAD").env_remove("TOEHOLD_NODE");
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn run(&self, before: &[&str], words: &[&str]) -> Output {
        self.command(before, words).output().unwrap()
    }

    /// Starts a server and waits until it listens.
    fn serve(&self, mut command: Command) -> Server {
        command.arg(&self.port).stdout(Stdio::piped()).process_group(0);
        let mut child: Child = command.spawn().unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let server = Server(child);
        assert_eq!(line, "listens\n");
        server
    }

    /// The answer that a program gets from the server.
    fn answer(&self, before: &[&str], node: &str) -> String {
        let limited = [
            "timeout",
            "90",
            "/usr/bin/python3",
            "-c",
            ASKER,
            "server",
            &self.port,
        ];
        let words = [&["run", "--quiet", "--node", node, "--"], &limited[..]].concat();
        let said = self.run(before, &words);
        text(&said.stdout) + &text(&said.stderr)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.run(&[], &["down", "--all"]);
    }
}

/// The prefix for a command of another user, with a group.
fn user(number: &'static str, groups: &'static str) -> [&'static str; 6] {
    ["setpriv", "--reuid", number, "--regid", number, groups]
}

/// Regression: a container's node was refused without a message, since its process id is 0 in
/// another PID namespace.
#[test]
#[ignore = "needs root, unshare, python3"]
fn nodes_of_two_pid_namespaces_reach_each_other() {
    reach_across_pid_namespaces(false);
}

/// Regression: threads that waited at a listener did not hear nodes that joined later.
#[test]
#[ignore = "needs root, unshare, python3"]
fn nodes_of_two_pid_namespaces_reach_each_other_directly() {
    reach_across_pid_namespaces(true);
}

fn reach_across_pid_namespaces(direct: bool) {
    let mut shared = Shared::new(0o700, None);
    shared.direct = direct;
    let apart = ["unshare", "-pf", "--kill-child", "--mount-proc"];
    let words = [
        "run",
        "--quiet",
        "--node",
        "server",
        "--",
        "/usr/bin/python3",
        "-c",
        GREETER,
    ];
    let _server = shared.serve(shared.command(&apart, &words));
    assert_eq!(shared.answer(&[], "client"), "hi\n");
    assert_eq!(shared.answer(&apart, "other"), "hi\n");
}

/// Regression: the first user's umask decided whether the second could connect.
#[test]
#[ignore = "needs root, setpriv, python3"]
fn nodes_of_two_users_reach_each_other_with_any_umask() {
    for (mode, group, expected) in [(0o2770, Some(4000), 0o660), (0o1777, None, 0o666)] {
        for umask in ["000", "022", "077"] {
            let shared = Shared::new(mode, group);
            let masked = format!("umask {umask}; exec \"$@\"");
            let first = ["sh", "-c", &masked, "sh"];
            let first = [&first[..], &user("1501", "--groups=4000")].concat();
            let words = [
                "run",
                "--quiet",
                "--node",
                "server",
                "--",
                "/usr/bin/python3",
                "-c",
                GREETER,
            ];
            let _server = shared.serve(shared.command(&first, &words));
            for socket in ["server.sock", "server.ctl"] {
                let path = shared.place.path(&format!("fabric/{socket}"));
                assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, expected);
            }
            let answer = shared.answer(&user("1502", "--groups=4000"), "client");
            assert_eq!(answer, "hi\n", "{mode:o} with umask {umask}");
        }
    }
}

#[test]
#[ignore = "needs root, setpriv, python3"]
fn node_of_other_user_admits_users_in_its_settings() {
    let shared = Shared::new(0o2770, Some(4000));
    let owner = user("1501", "--groups=4000");
    let settings = ["--allow-user", "1502", "--allow-group=5000", "--admin-group=6000"];
    let started = shared.run(&owner, &[&["up", "server"], &settings[..]].concat());
    assert!(started.status.success(), "{}", text(&started.stderr));
    let words = [
        "run",
        "--quiet",
        "--node",
        "server",
        "--",
        "/usr/bin/python3",
        "-c",
        GREETER,
    ];
    let _server = shared.serve(shared.command(&owner, &words));
    for allowed in [user("1502", "--groups=4000"), user("1503", "--groups=4000,5000")] {
        assert_eq!(shared.answer(&allowed, "server"), "hi\n");
    }
    let other = user("1504", "--groups=4000");
    let refused = shared.answer(&other, "server");
    assert!(refused.contains("another user (1501)"), "{refused}");
    let succeeds = |who: &[&str], words: &[&str]| shared.run(who, words).status.success();
    // The directory's group may read, and no more.
    assert!(succeeds(&other, &["stat", "server"]));
    assert!(!succeeds(&other, &["placement", "server", "engine"]));
    assert!(!succeeds(&user("1502", "--groups=4000"), &["down", "server"]));
    let admin = user("1505", "--groups=4000,6000");
    assert!(succeeds(&admin, &["placement", "server", "engine"]));
    assert!(succeeds(&admin, &["down", "server"]));
    let stranger = shared.run(&user("1506", "--clear-groups"), &["up", "mine"]);
    assert!(text(&stranger.stderr).contains("write permission on its directory"));
}

/// Regression: a server that dropped root early was not on the node, without a message.
#[test]
#[ignore = "needs root, setpriv, unshare, python3"]
fn program_after_setuid_or_chroot_is_on_node() {
    let dropped = [
        &user("1501", "--clear-groups")[..],
        &["unshare", "-U"],
        &["unshare", "-m"],
        &["chroot", "/"],
    ];
    for before in dropped {
        let shared = Shared::new(0o700, None);
        let words = [
            &["run", "--node", "server", "--"],
            before,
            &["/usr/bin/python3", "-c", GREETER],
        ]
        .concat();
        let mut command = shared.command(&[], &words);
        command.stderr(Stdio::piped());
        let _server = shared.serve(command);
        assert_eq!(shared.answer(&[], "client"), "hi\n", "{before:?}");
        let shown = text(&shared.run(&[], &["ps"]).stdout);
        assert!(!shown.contains("not on it"), "{shown}");
    }
}

#[test]
#[ignore = "needs python3"]
fn process_without_attachment_reports_it_once() {
    let _record = crate::record::Record;
    let fabrics = Fabrics::new();
    let twice = "import socket
for _ in range(2):
    socket.create_server(('0.0.0.0', 0))
";
    let said = |option: &str| {
        let mut command = fabrics.command(&format!("run {option} --node web --"));
        let limited = "ulimit -n 150; exec \"$@\"";
        command.args(["sh", "-c", limited, "sh", "/usr/bin/python3", "-c", twice]);
        command.env("TOEHOLD_LIBRARY", &*LIBRARY).env_remove("LD_PRELOAD");
        text(&command.output().unwrap().stderr)
    };
    let line = said("");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.contains("is not on node web") && line.contains("(descriptor-limit)"),
        "{line}"
    );
    assert!(line.contains("ulimit -n"), "{line}");
    assert_eq!(said("--quiet"), "");
}

#[test]
#[ignore = "needs cc"]
fn program_without_the_library_is_listed_with_its_reason() {
    let fabrics = Fabrics::new();
    let mut command = fabrics.command("run --quiet --node web --");
    command.args(["sh", "-c", "env -u LD_PRELOAD sleep 600"]);
    command.env("TOEHOLD_LIBRARY", &*LIBRARY).env_remove("LD_PRELOAD");
    let program = Server(command.process_group(0).spawn().unwrap());
    eventually("that the program is listed", || {
        let shown = text(&fabrics.run("ps").stdout);
        shown.contains("is not on it") && shown.contains("(no-preload")
    });
    let shown = text(&fabrics.run("stat web").stdout);
    assert!(shown.contains("(no-preload"), "{shown}");
    drop(program);
}

/// The library does not see its sockets, although it is loaded.
#[test]
#[ignore = "needs go, cc"]
fn go_program_of_cgo_is_named_with_its_reason() {
    let place = Place::new(Some(Fabrics::new()));
    place.file("go.mod", "module x\ngo 1.20\n");
    let source = "package main\n\nimport (\n\t\"fmt\"\n\t\"os/user\"\n)\n\n\
                  func main() {\n\tme, _ := user.Current()\n\tfmt.Println(me.Uid)\n}\n";
    place.file("main.go", source);
    let mut build = Command::new("go");
    build
        .args(["build", "-o", "gox", "."])
        .current_dir(place.files.path());
    build.env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=mod");
    assert!(build.status().unwrap().success());
    let fabrics = place.nodes.as_ref().unwrap();
    let mut command = fabrics.command("run --node web --");
    command.arg(place.path("gox")).env("TOEHOLD_LIBRARY", &*LIBRARY);
    let said = text(&command.output().unwrap().stderr);
    assert!(said.contains("stay with the kernel (go)"), "{said}");
}
