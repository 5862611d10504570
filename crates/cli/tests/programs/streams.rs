//! Streams of C and C++ on connections, and the arguments of started programs.

use crate::library::LIBRARY;
use crate::limits::compile;
use crate::support::text;
use crate::{LIMIT, Place, alike};

/// Starts a program with a connection as its first three descriptors, sends two lines, and prints
/// the answer.
const HOST: &str = "
import socket, subprocess, sys
listener = socket.create_server(('127.0.0.1', 0))
def hear(words):
    ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
    child = subprocess.Popen(words, stdin=ends[1], stdout=ends[1], stderr=ends[1])
    ends[1].close()
    ends[0].sendall(b'one\\ntwo\\n')
    ends[0].shutdown(socket.SHUT_WR)
    heard = b''
    while more := ends[0].recv(4096): heard += more
    print(heard, child.wait(), flush=True)
for way in sys.argv[2:]: hear([sys.argv[1], way])
";

const STREAMS: &str = r#"
#include <cstring>
#include <iostream>
#include <string>
int main(int, char **words)
{
    std::ios::sync_with_stdio(!std::strcmp(words[1], "together"));
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);)
        std::cout << line.size() << ' ' << line << '\n';
    std::cout.flush();
    std::cerr << "over" << std::endl;
}
"#;

fn hears(place: &Place, program: &str, ways: &[&str]) -> String {
    let said = place.says(&[&["python3", "-c", HOST, program], ways].concat());
    place.connections_of_client(ways.len() as u64);
    said
}

#[test]
#[ignore = "needs c++, python3"]
fn cpp_programs_use_inherited_streams() {
    alike(0, |place| {
        let program = compile(place, "c++ -x c++", STREAMS);
        hears(place, &program, &["together", "apart"])
    });
}

const STDIO: &str = include_str!("streams.c");

/// Regression: functions of libc wrote to the descriptor's other end, which had no reader, and
/// blocked.
#[test]
#[ignore = "needs cc"]
fn c_programs_read_and_write_streams_of_connections() {
    for case in ["inherited", "becomes", "opened", "printed"] {
        alike(0, |place| {
            let program = compile(place, "cc -O2 -D_FORTIFY_SOURCE=2", STDIO);
            let said = place.says(&[&program, case]);
            place.connections_of_client(1);
            said
        });
    }
}

/// Regression: `execl` and its like bypassed the library, which then did not know the program.
#[test]
#[ignore = "needs cc"]
fn programs_are_executed_with_arguments_one_by_one() {
    for case in ["execl", "execlp", "execle", "system", "popen"] {
        alike(0, |place| {
            let program = compile(place, "cc", STDIO);
            // The started program cannot use the node.
            let fixed = place.compile("cc -static", "fixed", STDIO);
            let said = place.says(&[&program, case, &fixed]);
            place.connections_of_client(1);
            said
        });
    }
}

/// Regression: all connections of a program went through the engine, whichever it gave away.
#[test]
#[ignore = "needs cc"]
fn only_inherited_connections_are_relayed() {
    alike(0, |place| {
        let program = compile(place, "cc", STDIO);
        let fixed = place.compile("cc -static", "fixed", STDIO);
        let words = ["timeout", LIMIT, &program, "spawned", &fixed];
        let Some(fabrics) = &place.nodes else {
            return place.says(&words);
        };
        let mut command = fabrics.command("run --quiet --stats=stats --node client --");
        command.args(words).env("TOEHOLD_LIBRARY", &*LIBRARY);
        let said = command.current_dir(place.files.path()).output().unwrap();
        let stats = std::fs::read(place.path("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        assert_eq!(stats["counters"]["relayed"], 1, "{stats}");
        text(&said.stdout)
    });
}
