//! Processes that attach and are killed, and one of another user.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::*;

const FABRIC: &str = "TOEHOLD_TEST_CONTROL";

/// The variable that makes the process keep the node for life, and not attach.
pub(super) const KEEPS: &str = "TOEHOLD_TEST_KEEPS";

/// A process that attaches, says so, and waits to be killed.
pub(super) fn attached_process(served: &Served, more: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "control::tests::processes::attach_in_a_process";
    command.args(["--exact", test, "--nocapture"]);
    command.env(FABRIC, served.directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    more(&mut command);
    command.spawn().unwrap()
}

/// Not a test of its own: the other process of the tests below.
#[test]
fn attach_in_a_process() {
    let Ok(directory) = std::env::var(FABRIC) else {
        return;
    };
    let fabric = Fabric::open(&directory).unwrap();
    let mut node = match Connection::open(&fabric, "web") {
        Ok(node) => node,
        Err(error) => return println!("error: {error}"),
    };
    let done = match std::env::var_os(KEEPS) {
        Some(_) => node.keep_for_life().map(|_| "kept".to_owned()),
        None => node
            .attach()
            .map(|attached| format!("attached as {}", attached.attachment.process)),
    };
    match done {
        Ok(done) => println!("{done}"),
        Err(error) => return println!("error: {error}"),
    }
    let mut copy = None;
    if std::env::var_os("TOEHOLD_TEST_COPY").is_some() {
        let socket = node.socket().try_clone_to_owned().unwrap();
        rustix::io::ioctl_fionbio(&socket, false).unwrap();
        copy = Some(
            Command::new("cat")
                .stdin(socket)
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
        println!("copied");
    }
    // Until it is killed, or the test that has started it is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(copy);
}

pub(super) fn lines(child: &mut Child) -> impl Iterator<Item = String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = |line: &String| {
        ["attached", "copied", "kept", "error"]
            .iter()
            .any(|word| line.contains(word))
    };
    lines
        .map_while(Result::ok)
        .filter(move |line| said(line) && !line.contains("attach_in_a_process"))
}

#[test]
fn a_killed_process_is_noticed() {
    let served = Served::new();
    let mut child = attached_process(&served, |_| {});
    assert_eq!(served.told(), Told::Attached(child.id()));
    assert!(lines(&mut child).next().unwrap().contains("attached as 1"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

/// A child that the process has forked keeps the connection open; that does not
/// keep the process alive.
#[test]
fn a_killed_process_is_noticed_though_its_connection_lives_on() {
    let served = Served::new();
    let mut child = attached_process(&served, |command| {
        command.env("TOEHOLD_TEST_COPY", "1");
    });
    assert_eq!(served.told(), Told::Attached(child.id()));
    assert!(lines(&mut child).any(|line| line.contains("copied")));
    child.kill().unwrap();
    child.wait().unwrap();
    // The copy's holder sees the end of the connection then, and ends as well.
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

#[test]
#[ignore = "needs root"]
fn a_process_of_another_user_is_refused() {
    let served = Served::new();
    let open = fs_mode(0o777);
    std::fs::set_permissions(served.directory.path(), open.clone()).unwrap();
    let mut child = attached_process(&served, |command| {
        command.uid(65534).gid(65534);
    });
    let said = lines(&mut child).next().unwrap();
    assert!(said.contains("belongs to another user"), "{said}");
    child.wait().unwrap();
    // Even if the directory is open to all, and so the socket.
    std::fs::set_permissions(served.directory.path().join("web.ctl"), open).unwrap();
    let mut child = attached_process(&served, |command| {
        command.uid(65534).gid(65534);
    });
    let said = lines(&mut child).next().unwrap();
    assert!(said.contains("belongs to another user"), "{said}");
    child.wait().unwrap();
    served.end();
}

fn fs_mode(mode: u32) -> std::fs::Permissions {
    std::fs::Permissions::from_mode(mode)
}
