//! Programs of a node in processes of their own: this one once more, as what a test
//! wants it to be.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use toehold_node::Placement;
use toehold_socket::Node;

use crate::support::{World, attach, spawn};
use crate::{descriptors, exhaustion, forks, lingering, shards};

const ROLE: &str = "TOEHOLD_NODES_ROLE";
const FABRIC: &str = "TOEHOLD_NODES_FABRIC";
const ADDRESS: &str = "TOEHOLD_NODES_ADDRESS";

/// What comes before the words of a program among what its test says.
const MARK: &str = "> ";

/// Not a test of its own: what the other programs do.
#[test]
fn a_program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let part: fn() = match role.as_str() {
        "children-accept" => forks::children_accept,
        "child-echoes" => forks::child_echoes,
        "parent-goes-on" => forks::parent_goes_on,
        "busy-forker" => forks::fork_while_busy,
        "counts-mappings" => forks::fork_and_count_mappings,
        "silent-child" => forks::fork_a_silent_child,
        "polls" => forks::fork_with_a_poll,
        "private-calls" => forks::use_a_private_node_in_a_child,
        "private" => forks::fork_with_a_private_node,
        "writer" => descriptors::write_and_wait,
        "reader" => descriptors::wait_with_unread_bytes,
        "hard-writer" => descriptors::write_with_hard_linger_and_wait,
        "before-exec" => descriptors::before_exec,
        "after-exec" => descriptors::after_exec,
        "receiver" => descriptors::receive_a_connection,
        "listener-receiver" => descriptors::receive_a_listener,
        "closes-after-a-child" => lingering::close_after_a_child,
        "closes-in-a-child" => lingering::close_in_a_child,
        "closes-what-was-given" => lingering::close_what_was_given,
        "closes-with-a-copy" => lingering::close_with_a_copy,
        "closes-in-vain" => lingering::close_in_vain,
        "fills" => lingering::fill_and_wait,
        "many" => exhaustion::connect_ten_thousand_times,
        "accepts-some" => shards::accept_some_and_wait,
        "limited" => exhaustion::run_out_of_descriptors,
        "limited-engine" => exhaustion::run_out_of_descriptors_with_the_engine,
        other => panic!("there is no role {other}"),
    };
    part();
}

/// This program in another role.
pub(crate) fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "roles::a_program", "--nocapture"]);
    command.env(ROLE, role);
    command
}

/// A program that runs.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// A program on a world's nodes.
    pub(crate) fn start(role: &str, world: &World) -> Program {
        Self::start_with(role, world, Stdio::piped())
    }

    pub(crate) fn start_with(role: &str, world: &World, stdin: Stdio) -> Program {
        let mut command = command(role);
        command.env(FABRIC, world.path());
        command.env(ADDRESS, world.address(0).to_string());
        let mut child = spawn(command.stdin(stdin).stdout(Stdio::piped()));
        Program {
            stdin: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The next thing it says.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some((_, word)) = line.split_once(MARK) {
                return word.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the program has ended by itself, and well.
    pub(crate) fn finish(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a program: says something to the test.
pub(crate) fn say(word: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{MARK}{word}").unwrap();
    stdout.flush().unwrap();
}

/// In a program: waits until the test has no more to say to it, or is gone.
pub(crate) fn wait() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// In a program: a node of the world it was started in.
pub(crate) fn node(name: &str) -> Node {
    attach(std::env::var_os(FABRIC).unwrap().as_ref(), name)
}

/// In a program: where the world's first node is.
pub(crate) fn address(port: u16) -> (std::net::Ipv4Addr, u16) {
    (std::env::var(ADDRESS).unwrap().parse().unwrap(), port)
}

/// Forks a child that does `part` and ends.
pub(crate) fn forked(part: impl FnOnce()) -> Pid {
    // SAFETY: the C library lets a child of several threads allocate memory, and no lock
    // of the test's own is held.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(part));
            // SAFETY: `_exit` takes a number alone, and ends the child without the parent's
            // handlers.
            unsafe { nix::libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
    }
}

/// Waits for a child, which has to have ended well.
pub(crate) fn reap(child: Pid) {
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
}

/// Two nodes, of which the first is called `server`.
pub(crate) fn world() -> World {
    World::new(&["server", "client"], Placement::Adaptive)
}
