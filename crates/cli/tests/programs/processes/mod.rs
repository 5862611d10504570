//! Programs of several processes: state shared between parent and child, and separate state.

use crate::{Place, alike};

/// Regression: `vfork` was `fork`, so that the parent saw none of its child's writes.
#[test]
#[ignore = "needs cc"]
fn vfork_child_shares_memory_and_has_own_descriptors() {
    alike(0, |place: &Place| {
        let program = place.compile("cc", "borrower", include_str!("borrower.c"));
        let said = place.says(&[&program]);
        place.connections_of_client(1);
        said
    });
}

/// The output of a script, which must be the same everywhere.
fn says(place: &Place, script: &str) -> String {
    place.file("said.py", include_str!("../calls/said.py"));
    let script = place.file("script.py", script);
    place.says(&["python3", &script])
}

/// Regression: each process had its own mode, timeouts and options of a connection.
#[test]
#[ignore = "needs python3"]
fn holders_of_socket_share_modes_options_and_names() {
    alike(0, |place: &Place| {
        let said = says(place, include_str!("shared.py"));
        place.connections_of_client(20);
        said
    });
}

/// Regression: monitors saw no connection of their node.
#[test]
#[ignore = "needs python3"]
fn connections_of_node_are_listed_in_proc() {
    alike(0, |place: &Place| {
        let said = says(place, include_str!("listed.py"));
        place.connections_of_client(5);
        said
    });
}

const TOOLS: &str = r#"
import os, socket, subprocess
def told(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout.splitlines()
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(1)
    port = listener.getsockname()[1]
    client = socket.create_connection((host, port))
    server, _ = listener.accept()
    own = str(client.getsockname()[1])
    for words in (("-tan",), ("-tn",), ("-tln",), ("-tn", "sport", "=", f":{port}"), ("-tn", "dport", "=", f":{port}")):
        # A node may give the first listener's port again, whose connection is in TIME-WAIT.
        lines = [line.split() for line in told("ss", "-H", *words) if f":{port}" in line and "TIME-WAIT" not in line]
        print(words[0], words[1:2], sorted((line[0], line[4].endswith(f":{port}")) for line in lines))
    users = [line for line in told("ss", "-Htnp") if f":{port} " in line]
    print("users", len(users), all(f"pid={os.getpid()},fd=" in line for line in users))
    open_files = told("lsof", "-a", "-p", str(os.getpid()), "-iTCP", "-nP")[1:]
    print("lsof", sorted(line.split()[-1] for line in open_files if f":{port}" in line and f":{own}" in line))
    print("unix", [line for line in told("lsof", "-a", "-p", str(os.getpid()), "-d", f"{client.fileno()},{server.fileno()}", "-U")])
    for it in (client, server, listener):
        it.close()
"#;

/// `ss` asks the kernel by netlink, which knows no connection of a node; `lsof` saw Unix sockets
/// instead.
#[test]
#[ignore = "needs lsof, python3, ss"]
fn tools_that_list_sockets_list_those_of_the_node() {
    alike(0, |place: &Place| {
        let script = place.file("tools.py", TOOLS);
        let said = place.says(&["python3", &script]);
        place.connections_of_client(2);
        // Ports differ between runs.
        said.split(|byte: char| byte.is_ascii_digit()).collect::<String>()
    });
}
