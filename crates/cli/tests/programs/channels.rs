//! Programs that forward data: relays, remote shells, killed programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;

use crate::{Place, Server, alike, noise};

const LENGTH: usize = 20_000_000;

#[test]
#[ignore = "needs socat"]
fn socat_forwards_both_directions() {
    alike(1, |place| {
        let listen = format!("TCP-LISTEN:{},reuseaddr", place.port);
        // Another program, which has the connection, sends the data back.
        let server = place.serve(&["socat", &listen, "EXEC:cat"]);
        let sent = place.file("sent", noise(LENGTH));
        let connect = format!("TCP:{}:{}", place.address(), place.port);
        let got = place.gets(&["sh", "-c", "socat -t60 - $0 < $1", &connect, &sent]);
        (got == noise(LENGTH), server.wait())
    });
}

#[test]
#[ignore = "needs socat"]
fn socat_serves_each_client_with_a_child() {
    alike(4, |place| {
        let listen = format!("TCP-LISTEN:{},reuseaddr,fork", place.port);
        let server = place.serve(&["socat", &listen, "EXEC:cat,nofork"]);
        let sent = place.file("sent", noise(1_000_000));
        let connect = format!("TCP:{}:{}", place.address(), place.port);
        let ask = || place.gets(&["sh", "-c", "socat -t60 - $0 < $1", &connect, &sent]);
        let got: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            asking
                .into_iter()
                .map(|asking| asking.join().unwrap() == noise(1_000_000))
                .collect()
        });
        (got, server.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs ncat"]
fn ncat_receives_and_runs_commands() {
    alike(1, |place| {
        let port = place.port.to_string();
        let sent = place.file("sent", noise(LENGTH));
        let receive = "exec ncat --recv-only -l 0.0.0.0 $0 > received";
        let receiver = place.serve(&["sh", "-c", receive, &port]);
        let send = "ncat --send-only $0 $1 < $2";
        place.gets(&["sh", "-c", send, place.address(), &port, &sent]);
        let ended = receiver.wait();
        let received = fs::read(place.path("received")).unwrap() == noise(LENGTH);
        let server = place.serve(&["ncat", "-l", "-k", "0.0.0.0", &port, "--exec", "/bin/cat"]);
        let ask = |word: &str| {
            let script = "echo $2 | ncat $0 $1";
            place.says(&["sh", "-c", script, place.address(), &port, word])
        };
        let said = [ask("one"), ask("two")];
        (received, ended, said, server.end(Signal::TERM))
    });
}

/// The SSH server, with keys of the test.
fn sshd(place: &Place) -> Server {
    let root = place.files.path().display().to_string();
    for key in ["host", "user"] {
        place.gets(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]);
    }
    let keys = place.file("authorized", fs::read(place.path("user.pub")).unwrap());
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    let configuration = format!(
        "Port {}\nListenAddress 0.0.0.0\nHostKey {root}/host\nPidFile none\nAuthorizedKeysFile {keys}\n\
         StrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n",
        place.port
    );
    let configuration = place.file("sshd.conf", configuration);
    // The SSH server confines itself to this directory before authentication.
    fs::create_dir_all("/run/sshd").unwrap();
    place.serve(&["/usr/sbin/sshd", "-D", "-e", "-f", &configuration])
}

#[test]
#[ignore = "needs sshd"]
fn ssh_runs_commands_and_copies_files() {
    alike(3, |place| {
        let server = sshd(place);
        let port = place.port.to_string();
        let options = [
            "-i",
            &place.path("user"),
            "-F",
            "none",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
            "-oBatchMode=yes",
        ];
        let there = format!("root@{}", place.address());
        let command =
            place.ask(&[&["ssh", "-p", &port], &options[..], &[&there, "echo out; exit 7"]].concat());
        let error = String::from_utf8_lossy(&command.stderr).into_owned();
        assert_eq!(command.status.code(), Some(7), "{error}{}", place.log());
        let sent = place.file("sent", noise(LENGTH));
        let copy = [place.path("put"), place.path("got")];
        let remote = |path: &str| format!("{there}:{path}");
        let scp = |from: &str, to: &str| {
            place.gets(&[&["scp", "-q", "-P", &port], &options[..], &[from, to]].concat());
        };
        scp(&sent, &remote(&copy[0]));
        scp(&remote(&copy[0]), &copy[1]);
        let same = copy.map(|path| fs::read(Path::new(&path)).unwrap() == noise(LENGTH));
        (command.stdout, same, server.end(Signal::TERM))
    });
}

const READER: &str = "
import socket, sys
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
connection, _ = listener.accept()
try:
    while connection.recv(65536): pass
    print('end')
except OSError as error:
    print(error.errno)
";

const WRITER: &str = "
import os, signal, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(b'x' * 100000)
os.kill(os.getpid(), signal.SIGKILL)
";

#[test]
#[ignore = "needs python3"]
fn killed_program_ends_connection_of_peer() {
    alike(1, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-c", READER, &port]);
        let killed = place
            .command("client", &["python3", "-c", WRITER, place.address(), &port])
            .status();
        let ended = server.wait();
        (killed.unwrap(), place.log(), ended)
    });
}
