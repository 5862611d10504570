//! In-memory stores.

use rustix::process::Signal;

use crate::{Place, alike};

fn redis(place: &Place, words: &[&str]) -> String {
    let port = place.port.to_string();
    place.says(&[&["redis-cli", "-h", place.address(), "-p", &port], words].concat())
}

#[test]
#[ignore = "needs redis-server, redis-cli, redis-benchmark"]
fn redis_answers_pipelines_and_saves_in_a_child() {
    alike(50, |place| {
        let port = place.port.to_string();
        let directory = place.files.path().to_str().unwrap();
        let server = place.serve(&[
            "redis-server",
            "--port",
            &port,
            "--bind",
            "0.0.0.0",
            "--protected-mode",
            "no",
            "--io-threads",
            "2",
            "--save",
            "",
            "--dir",
            directory,
        ]);
        let mut said = vec![
            redis(place, &["SET", "key", "value"]),
            redis(place, &["GET", "key"]),
        ];
        for words in [&["-c", "20"][..], &["-c", "20", "-P", "16"]] {
            let fixed = ["redis-benchmark", "-h", place.address(), "-p", &port, "-q"];
            let load = ["-t", "set,get,lrange_100", "-n", "4000", "-d", "2000"];
            let results = place.says(&[&fixed, &load, words].concat());
            assert_eq!(results.matches("requests per second").count(), 4, "{results}");
        }
        // In a child that has the connections too, and does not use them.
        said.push(redis(place, &["BGSAVE"]));
        crate::support::eventually("what is saved", || {
            redis(place, &["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0")
        });
        assert!(redis(place, &["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"));
        said.push(redis(place, &["DBSIZE"]));
        said.push(redis(place, &["SHUTDOWN", "SAVE"]));
        (said, server.wait())
    });
}

const MEMCACHED_CLIENT: &str = "
import hashlib, socket, sys
sent = b'x' * 500_000
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
file = client.makefile('rwb')
for key in range(20):
    file.write(b'set key%d 0 0 %d\\r\\n%s\\r\\n' % (key, len(sent), sent))
file.flush()
print([file.readline() for _ in range(20)])
file.write(b'get ' + b' '.join(b'key%d' % key for key in range(20)) + b'\\r\\n')
file.flush()
got = hashlib.sha256()
while True:
    line = file.readline()
    got.update(line)
    if line == b'END\\r\\n': break
print(got.hexdigest())
";

#[test]
#[ignore = "needs memcached, python3"]
fn memcached_returns_stored_values() {
    alike(1, |place| {
        let port = place.port.to_string();
        let server = place.serve(&[
            "memcached",
            "-u",
            "nobody",
            "-l",
            "0.0.0.0",
            "-U",
            "0",
            "-p",
            &port,
        ]);
        let said = place.says(&["python3", "-c", MEMCACHED_CLIENT, place.address(), &port]);
        (said, server.end(Signal::TERM))
    });
}
