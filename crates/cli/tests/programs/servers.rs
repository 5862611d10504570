//! Servers of many kinds, and proxies in front of others.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::{Place, Server, alike, free_port, noise};

const LENGTH: usize = 3_000_000;
const CURL: [&str; 3] = ["curl", "--silent", "--show-error"];

/// Whether a client gets the served file, twice.
fn gets_file(place: &Place, more: &[&str]) -> [bool; 2] {
    let file = fs::read(place.path("www/file")).unwrap();
    let url = place.url("file");
    [(); 2].map(|()| place.gets(&[&CURL, more, &[&url]].concat()) == file)
}

/// A server of a file behind proxies, and its address for them.
fn origin(place: &Place) -> (Server, String) {
    place.file("www/file", noise(LENGTH));
    let (port, root) = (free_port(), place.path("www"));
    let words = [
        "python3",
        "-m",
        "http.server",
        "--directory",
        &root,
        &port.to_string(),
    ];
    let server = place.serve_at(port, "origin", &words);
    (server, format!("{}:{port}", place.address()))
}

#[test]
#[ignore = "needs haproxy, python3, curl"]
fn haproxy_forwards_to_other_server() {
    alike(2, |place| {
        let (_origin, origin) = origin(place);
        let configuration = format!(
            "defaults\n mode http\n timeout connect 20s\n timeout client 20s\n timeout server 20s\n\
             frontend all\n bind *:{}\n default_backend one\nbackend one\n server one {origin}\n",
            place.port
        );
        let path = place.file("haproxy.cfg", configuration);
        let haproxy = place.serve(&["haproxy", "-db", "-f", &path]);
        (gets_file(place, &[]), haproxy.end(Signal::USR1))
    });
}

#[test]
#[ignore = "needs varnishd, python3, curl"]
fn varnish_caches_other_server() {
    alike(3, |place| {
        let (_origin, origin) = origin(place);
        let (own, at) = (place.path("varnish"), format!("0.0.0.0:{}", place.port));
        let words = [
            "varnishd", "-F", "-n", &own, "-a", &at, "-b", &origin, "-T", "none",
        ];
        let varnish = place.serve(&words);
        let from_memory = |_| {
            let said = place.says(&[&CURL[..], &["--head", &place.url("file")]].concat());
            said.lines()
                .any(|line| line.starts_with("X-Varnish") && line.split(' ').count() == 3)
        };
        let got = gets_file(place, &[]);
        (got, [0, 1].map(from_memory), varnish.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs lighttpd, curl"]
fn lighttpd_serves_files_and_their_parts() {
    alike(3, |place| {
        place.file("www/file", noise(LENGTH));
        let (port, root) = (place.port, place.path("www"));
        let configuration = format!("server.document-root=\"{root}\"\nserver.port={port}\n");
        let path = place.file("lighttpd.conf", configuration);
        let lighttpd = place.serve(&["lighttpd", "-D", "-f", &path]);
        let part = place.gets(&[&CURL[..], &["--range", "1000-2999", &place.url("file")]].concat());
        let is_part = part == noise(LENGTH)[1000..3000];
        (gets_file(place, &[]), is_part, lighttpd.end(Signal::INT))
    });
}

#[test]
#[ignore = "needs nghttpd, curl"]
fn nghttpd_serves_files_over_http_2() {
    alike(2, |place| {
        place.file("www/file", noise(LENGTH));
        let (port, root) = (place.port.to_string(), place.path("www"));
        let _nghttpd = place.serve(&["nghttpd", "--no-tls", "-d", &root, &port]);
        gets_file(place, &["--http2-prior-knowledge"])
    });
}

const APPLICATION: &str = "
def answer(environment, begin):
    begin('200 OK', [('Content-Type', 'text/plain')])
    return [environment['wsgi.input'].read() * 2]
";

#[test]
#[ignore = "needs gunicorn, curl"]
fn gunicorn_answers_with_several_processes() {
    alike(4, |place| {
        place.file("application.py", APPLICATION);
        let at = format!("0.0.0.0:{}", place.port);
        let gunicorn = place.serve(&["gunicorn", "-w", "3", "-b", &at, "application:answer"]);
        let sent = format!("@{}", place.file("sent", noise(LENGTH)));
        let url = place.url("");
        let answer = || place.gets(&[&CURL[..], &["--data-binary", &sent, &url]].concat());
        let answers = [(); 4].map(|()| answer() == noise(LENGTH).repeat(2));
        (answers, gunicorn.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs mosquitto, mosquitto_pub, mosquitto_sub"]
fn mosquitto_retains_messages_for_later_subscribers() {
    alike(6, |place| {
        let configuration = format!("listener {} 0.0.0.0\nallow_anonymous true\n", place.port);
        let path = place.file("mosquitto.conf", configuration);
        let mosquitto = place.serve(&["mosquitto", "-c", &path]);
        let at = ["-h", place.address(), "-p", &place.port.to_string()];
        let heard = ["one", "two", "three"].map(|topic| {
            let message = topic.repeat(10_000);
            place.says(
                &[
                    &["mosquitto_pub"],
                    &at[..],
                    &["-t", topic, "-m", &message, "-r", "-q", "1"],
                ]
                .concat(),
            );
            let heard = place.says(&[&["mosquitto_sub"], &at[..], &["-t", topic, "-C", "1"]].concat());
            heard.trim() == message
        });
        (heard, mosquitto.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs rsync"]
fn rsync_copies_from_its_server() {
    alike(1, |place| {
        place.file("served/file", noise(LENGTH));
        place.file("served/below/other", noise(10));
        let configuration = format!("use chroot = no\n[files]\npath = {}\n", place.path("served"));
        let path = format!("--config={}", place.file("rsyncd.conf", configuration));
        let port = format!("--port={}", place.port);
        let _rsync = place.serve(&["rsync", "--daemon", "--no-detach", &path, &port]);
        let url = format!("rsync://{}:{}/files/", place.address(), place.port);
        let copied = place.path("copied");
        place.gets(&["rsync", "--recursive", &url, &copied]);
        ["file", "below/other"].map(|name| {
            let of = |folder: &str| fs::read(place.path(&format!("{folder}/{name}"))).unwrap();
            of("copied") == of("served")
        })
    });
}

#[test]
#[ignore = "needs git"]
fn git_clones_from_its_server() {
    alike(1, |place| {
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]);
            git.args(words).current_dir(place.files.path());
            assert!(git.output().unwrap().status.success(), "{words:?}");
        };
        git(&["init", "--quiet", "served"]);
        place.file("served/file", noise(LENGTH));
        git(&["-C", "served", "add", "file"]);
        git(&["-C", "served", "commit", "--quiet", "-m", "a file"]);
        place.file("served/.git/git-daemon-export-ok", "");
        let (base, port) = (place.path(""), format!("--port={}", place.port));
        let base = format!("--base-path={base}");
        let _git = place.serve(&["git", "daemon", "--listen=0.0.0.0", &base, &port]);
        let url = format!("git://{}:{}/served", place.address(), place.port);
        place.gets(&["git", "clone", "--quiet", &url, "cloned"]);
        fs::read(place.path("cloned/file")).unwrap() == noise(LENGTH)
    });
}

/// BIND listens at the address of each interface, not at all addresses.
#[test]
#[ignore = "needs named, dig"]
fn bind9_answers_over_tcp_at_the_address_of_its_interface() {
    const ZONE: &str = "$TTL 60
@ IN SOA ns hostmaster 1 60 60 60 60
@ IN NS ns
ns IN A 192.0.2.1
long IN TXT \"answered over TCP\"
";
    alike(3, |place| {
        let zone = place.file("zone", ZONE);
        let folder = place.path("");
        let port = place.port.to_string();
        let configuration = format!(
            "options {{ directory \"{folder}\"; pid-file \"{folder}/pid\"; session-keyfile \"{folder}/key\";
            listen-on port {port} {{ any; }}; listen-on-v6 {{ none; }}; recursion no; }};
            controls {{ }}; zone \"example\" {{ type primary; file \"{zone}\"; }};"
        );
        let configuration = place.file("named.conf", configuration);
        let server = place.serve(&["named", "-g", "-u", "root", "-n", "1", "-c", &configuration]);
        let at = format!("@{}", place.address());
        let said = ["long.example TXT", "ns.example A", "none.example A"].map(|question| {
            let mut words = vec!["dig", "+tcp", "+short", "+tries=1", "-p", &port, &at];
            words.extend(question.split(' '));
            place.says(&words)
        });
        server.end(Signal::TERM);
        said
    });
}
