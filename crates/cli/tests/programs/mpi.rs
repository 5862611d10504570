//! Ranks of MPI programs over TCP: each polls many connections at once, without a pause.

use std::process::{Command, Output};

use serde_json::Value;
use toehold_link::interface::{Interface, Namespace};

use crate::support::{Fabrics, eventually, text};
use crate::{LIBRARY, LIMIT, Place, accepted, all_is_over, counter, opened};

/// An installed MPI, and its options for TCP over one interface only.
struct Mpi {
    compiler: &'static str,
    launcher: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
    interface: &'static str,
    /// How the ranks end, if not by `MPI_Finalize`.
    end: &'static [&'static str],
    /// The launcher then kills the remaining ranks.
    kills: bool,
}

const OPEN_MPI: Mpi = Mpi {
    compiler: "mpicc.openmpi",
    launcher: &["mpirun.openmpi", "--oversubscribe"],
    settings: &[
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", "tcp,self"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ],
    interface: "OMPI_MCA_btl_tcp_if_include",
    end: &[],
    kills: false,
};

const MPICH: Mpi = Mpi {
    compiler: "mpicc.mpich",
    launcher: &["mpiexec.mpich"],
    settings: &[("UCX_TLS", "tcp,self")],
    interface: "UCX_NET_DEVICES",
    end: &["leave"],
    kills: true,
};

/// Ranks with the same command prefix, on one node.
struct Group<'a> {
    ranks: &'a str,
    words: Vec<&'a str>,
}

impl Mpi {
    fn compile(&self, place: &Place) -> String {
        place.compile(self.compiler, "ranks", include_str!("ranks.c"))
    }

    /// The command that starts all ranks.
    fn launch(&self, groups: &[Group<'_>]) -> Vec<String> {
        let mut words: Vec<_> = self.launcher.iter().map(|&word| word.to_owned()).collect();
        for (number, group) in groups.iter().enumerate() {
            words.extend((number > 0).then(|| ":".to_owned()));
            words.extend(["-n".to_owned(), group.ranks.to_owned()]);
            words.extend(group.words.iter().map(|&word| word.to_owned()));
        }
        words
    }

    fn set(&self, command: &mut Command, interface: &str) {
        command.envs(self.settings.iter().copied());
        command.env(self.interface, interface);
    }

    /// Runs a number of ranks, all of them on one node or over the kernel.
    fn run(&self, place: &Place, ranks: &str, words: &[&str]) -> Output {
        let program = self.compile(place);
        let noted = noted(place);
        let words = [&["sh", "-c", &noted, &program], words].concat();
        let launch = self.launch(&[Group { ranks, words }]);
        let limited = ["timeout", "--kill-after=5", LIMIT].into_iter();
        let words: Vec<&str> = limited.chain(launch.iter().map(String::as_str)).collect();
        let mut command = place.command("client", &words);
        self.set(&mut command, "lo");
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(124), "{words:?} hangs");
        output
    }
}

/// A shell line that runs a rank with its output in a file. A launcher that kills its ranks loses
/// output that it has not forwarded.
fn noted(place: &Place) -> String {
    format!("exec \"$0\" \"$@\" >>'{}'", place.path("said"))
}

/// The output of the ranks since the last call.
fn heard(place: &Place) -> String {
    let said = std::fs::read_to_string(place.path("said")).unwrap_or_default();
    let _ = std::fs::remove_file(place.path("said"));
    said
}

/// The output of ranks that succeed.
fn said(place: &Place, output: &Output) -> String {
    let said = heard(place);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    said
}

/// The nodes of a test, and a place for the kernel's turn.
fn places() -> [Place; 2] {
    let nodes = Fabrics::new();
    nodes.succeeds("up server client");
    [Place::new(None), Place::new(Some(nodes))]
}

/// Checks that a node had at least this many connections, and that none of their resources stay in
/// use.
fn check(fabrics: &Fabrics, node: &str, connections: u64, are_killed: bool) {
    let mut status = Value::Null;
    // Not while a rank holds the stack that was just killed.
    eventually("counters of its stack", || {
        status = fabrics.json(&format!("stat {node} --json"));
        let counters = status["counters"].as_array().unwrap();
        counters
            .iter()
            .any(|counter| counter["name"] == "tcp_active_opens")
    });
    let opened = accepted(&status) + opened(&status);
    // A rank that is killed while it runs the stack resets the node's counters.
    if !are_killed || counter(&status, "node_resets") == 0 {
        assert!(opened >= connections, "{status}");
        assert_eq!(counter(&status, "node_resets"), 0, "{status}");
    }
    eventually("the end of all ranks", || {
        let open = fabrics.list(&format!("sockets {node} --json"));
        all_is_over(&open)
    });
}

/// Runs two and four ranks on one node, which reach each other at the loopback address.
fn ranks_agree(mpi: &Mpi) {
    let [kernel, nodes] = places();
    let numbers = ["2", "4"];
    let over_kernel = numbers.map(|ranks| said(&kernel, &mpi.run(&kernel, ranks, mpi.end)));
    assert!(over_kernel[1].ends_with("end 0\n"), "{over_kernel:?}");
    assert_eq!(
        numbers.map(|ranks| said(&nodes, &mpi.run(&nodes, ranks, mpi.end))),
        over_kernel
    );
    // Between each pair of 2 and of 4 ranks, and each connection has two ends.
    check(nodes.nodes.as_ref().unwrap(), "client", 2 * (1 + 6), mpi.kills);
}

/// Kills one of the ranks: the launcher ends the others, and no process stays.
fn a_killed_rank_ends_all(mpi: &Mpi, codes: &[i32]) {
    let [kernel, nodes] = places();
    for place in [&kernel, &nodes] {
        let ended = mpi.run(place, "4", &["lose"]);
        let said = heard(place);
        assert!(
            said.contains("alltoall 1000003") && !said.contains("a message of"),
            "{said}"
        );
        assert!(
            codes.contains(&ended.status.code().unwrap_or(0)),
            "{}",
            ended.status
        );
    }
    check(nodes.nodes.as_ref().unwrap(), "client", 12, true);
}

/// Runs two ranks on each of two nodes. MPI asks the kernel for addresses, so the nodes have the
/// kernel beside them.
fn ranks_agree_across_nodes(mpi: &Mpi) {
    let namespace = Namespace::create().unwrap();
    // Launchers use it to reach the processes they have started.
    let mut loopback = Interface::open(&namespace, "lo").unwrap();
    loopback.set_up(true).unwrap();
    let [kernel, nodes] = places();
    let program = mpi.compile(&nodes);
    let over_kernel = said(&kernel, &mpi.run(&kernel, "4", mpi.end));
    let fabrics = Fabrics::new();
    let within = path_of(&namespace);
    fabrics.succeeds(&format!("up --tap=toe0 --netns {within} one"));
    fabrics.succeeds(&format!("up --tap=toe1 --netns {within} two"));
    let (toehold, noted) = (env!("CARGO_BIN_EXE_toehold"), noted(&nodes));
    let of = |node, interface, stats| {
        let run = [
            toehold, "run", "--quiet", stats, "--node", node, "--", "env", interface,
        ];
        Group {
            ranks: "2",
            words: [&run[..], &["sh", "-c", &noted, &program], mpi.end].concat(),
        }
    };
    let interfaces = ["toe0", "toe1"].map(|name| format!("{}={name}", mpi.interface));
    let launch = mpi.launch(&[
        of("one", &interfaces[0], "--stats=one"),
        of("two", &interfaces[1], "--stats=two"),
    ]);
    // With the namespace's interfaces in /sys, where UCX looks for them, as for `ip netns exec`.
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t sysfs sysfs /sys && exec \"$@\"",
        "sh",
    ]);
    command.args(["timeout", "--kill-after=5", LIMIT]).args(launch);
    mpi.set(&mut command, "lo");
    command.env("TOEHOLD_RUNTIME_DIR", fabrics.0.path());
    command
        .env("TOEHOLD_LIBRARY", &*LIBRARY)
        .current_dir(nodes.files.path());
    let ended = namespace.run(|| command.output()).unwrap().unwrap();
    assert_eq!(said(&nodes, &ended), over_kernel);
    for node in ["one", "two"] {
        // Each of its two ranks has a connection to each of the two on the other node.
        check(&fabrics, node, 4, mpi.kills);
    }
}

fn path_of(namespace: &Namespace) -> String {
    use std::os::fd::AsRawFd as _;
    let Namespace::Open(descriptor) = namespace else {
        unreachable!("it was made");
    };
    format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd())
}

/// The library's report at the end of the program.
#[test]
#[ignore = "needs mpirun.openmpi, mpicc.openmpi"]
fn all_bytes_between_ranks_cross_node() {
    let [_, nodes] = places();
    let program = OPEN_MPI.compile(&nodes);
    let fabrics = nodes.nodes.as_ref().unwrap();
    let mut command = fabrics.command("run --quiet --stats=stats --node client --");
    command.args(OPEN_MPI.launch(&[Group {
        ranks: "2",
        words: vec![&program],
    }]));
    command
        .env("TOEHOLD_LIBRARY", &*LIBRARY)
        .current_dir(nodes.files.path());
    OPEN_MPI.set(&mut command, "lo");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stats: Value = serde_json::from_slice(&std::fs::read(nodes.path("stats")).unwrap()).unwrap();
    let stat = |name: &str| stats["counters"][name].as_u64().unwrap();
    assert_eq!(stat("accepted_by_kernel"), 0, "{stats}");
    assert_eq!(stat("connected"), stat("accepted"), "{stats}");
    // In each direction: 3 turns, 16 at once of a quarter's length, and the broadcast.
    assert!(stat("bytes_received") > 2 * 7 * 1_000_003, "{stats}");
}

#[test]
#[ignore = "needs mpirun.openmpi, mpicc.openmpi"]
fn ranks_of_open_mpi_agree() {
    ranks_agree(&OPEN_MPI);
}

#[test]
#[ignore = "needs mpiexec.mpich, mpicc.mpich"]
fn ranks_of_mpich_agree() {
    ranks_agree(&MPICH);
}

#[test]
#[ignore = "needs mpirun.openmpi, mpicc.openmpi"]
fn a_killed_rank_of_open_mpi_ends_all() {
    // The exit status of a shell for a killed process.
    a_killed_rank_ends_all(&OPEN_MPI, &[128 + 9]);
}

#[test]
#[ignore = "needs mpiexec.mpich, mpicc.mpich"]
fn a_killed_rank_of_mpich_ends_all() {
    // The launcher first sees the signal, or a lost connection of another rank.
    a_killed_rank_ends_all(&MPICH, &[9, 255]);
}

#[test]
#[ignore = "needs root, namespaces, tun, mpirun.openmpi, mpicc.openmpi"]
fn ranks_of_open_mpi_agree_across_nodes() {
    ranks_agree_across_nodes(&OPEN_MPI);
}

#[test]
#[ignore = "needs root, namespaces, tun, mpiexec.mpich, mpicc.mpich"]
fn ranks_of_mpich_agree_across_nodes() {
    ranks_agree_across_nodes(&MPICH);
}
