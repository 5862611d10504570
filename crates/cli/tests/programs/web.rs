//! HTTP servers and clients.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::library::LIBRARY;
use crate::support::text;
use crate::{Place, Server, alike, noise};

const FILES: [(&str, usize); 3] = [("1k", 1 << 10), ("1m", 1 << 20), ("100m", 100_000_000)];

pub(crate) fn write_files(place: &Place) {
    for (name, length) in FILES {
        place.file(&format!("www/{name}"), noise(length));
    }
}

/// Fetches every file; returns which of them arrived intact.
fn fetch_all(place: &Place, client: &[&str]) -> Vec<bool> {
    let fetch = |(name, _): (&str, usize)| {
        let url = place.url(name);
        let got = place.gets(&[client, &[&url]].concat());
        got == fs::read(place.path(&format!("www/{name}"))).unwrap()
    };
    FILES.into_iter().map(fetch).collect()
}

fn nginx(place: &Place) -> Server {
    nginx_with(place, &[])
}

/// nginx with additional arguments.
pub(crate) fn nginx_with(place: &Place, words: &[&str]) -> Server {
    let root = place.files.path().display();
    let configuration = format!(
        "daemon off; worker_processes 4; pid {root}/nginx.pid; error_log {root}/error.log;
         events {{ worker_connections 256; }}
         http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {root}/body;
             proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
             uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
             server {{ listen {}; root {root}/www; }} }}",
        place.port
    );
    let path = place.file("nginx.conf", configuration);
    place.serve(&[&["nginx", "-c", &path], words].concat())
}

#[test]
#[ignore = "needs nginx, curl, wget"]
fn nginx_serves_files_of_all_sizes() {
    alike(6, |place| {
        write_files(place);
        let nginx = nginx(place);
        let got = [
            fetch_all(place, &["curl", "--silent", "--show-error", "--fail"]),
            fetch_all(place, &["wget", "--quiet", "--output-document=-"]),
        ];
        let (one, other) = (place.url("1k"), place.url("1m"));
        let together = place.gets(&["curl", "-sSZ", &one, &other, &one, &other]).len();
        (got, together, nginx.end(Signal::QUIT))
    });
}

#[test]
#[ignore = "needs nginx, wrk"]
fn nginx_changes_its_workers_under_load() {
    alike(16, |place| {
        write_files(place);
        let nginx = nginx(place);
        let url = place.url("1k");
        let loaded = std::thread::scope(|scope| {
            let words = ["wrk", "-t1", "-c8", "-d4", "-H", "Connection: close", &url];
            let load = scope.spawn(move || place.says(&words));
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_secs(1));
                nginx.signal(Signal::HUP);
            }
            load.join().unwrap()
        });
        assert!(loaded.contains("requests in"), "{loaded}");
        // A reload closes accepted connections only after their answer.
        let errors = |line: &&str| line.contains("errors") || line.contains("Non-2xx");
        let errors = loaded.lines().find(errors).map(str::to_owned);
        (errors, nginx.end(Signal::QUIT))
    });
}

/// Apache with one of its concurrency models.
fn apache(place: &Place, model: &str) -> Server {
    let root = place.files.path().display();
    let modules = "/usr/lib/apache2/modules";
    let configuration = format!(
        "ServerRoot {root}\nServerName test\nListen 0.0.0.0:{}\nPidFile {root}/apache.pid\n\
         ErrorLog {root}/error.log\nDocumentRoot {root}/www\nUser www-data\nGroup www-data\n\
         LoadModule mpm_{model}_module {modules}/mod_mpm_{model}.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         EnableSendfile on\nMutex pthread\n<Directory {root}/www>\nRequire all granted\n</Directory>\n",
        place.port
    );
    let path = place.file("apache.conf", configuration);
    place.serve(&["apache2", "-DFOREGROUND", "-f", &path])
}

fn serve_with_apache(model: &str) {
    alike(3, |place| {
        write_files(place);
        let apache = apache(place, model);
        let got = fetch_all(place, &["curl", "--silent", "--show-error", "--fail"]);
        (got, apache.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs root, apache2, curl"]
fn apache_serves_with_threads_of_another_user() {
    serve_with_apache("event");
}

#[test]
#[ignore = "needs root, apache2, curl"]
fn apache_serves_with_processes_of_another_user() {
    serve_with_apache("prefork");
}

const NODE_SERVER: &str = "
const fs = require('fs');
const server = require('http').createServer((request, response) => {
    if (request.method == 'POST') return request.pipe(response);
    fs.createReadStream('www' + request.url).pipe(response);
});
server.listen(Number(process.argv[2]), '0.0.0.0');
process.on('SIGTERM', () => server.close(() => process.exit(3)));
server.keepAliveTimeout = 100;
";

#[test]
#[ignore = "needs node, curl"]
fn node_serves_files_and_echoes_posts() {
    alike(4, |place| {
        write_files(place);
        let script = place.file("server.js", NODE_SERVER);
        let node = place.serve(&["node", &script, &place.port.to_string()]);
        let got = fetch_all(place, &["curl", "--silent", "--show-error", "--fail"]);
        let sent = format!("@{}", place.path("www/1m"));
        let back = place.gets(&["curl", "-sS", "--data-binary", &sent, &place.url("")]);
        (got, back == noise(1 << 20), node.end(Signal::TERM))
    });
}

const NODE_CLIENT: &str = "
const http = require('http');
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
let left = 40, bytes = 0;
for (let i = 0; i < 40; i++)
    http.get(process.argv[2], { agent }, response => {
        response.on('data', data => bytes += data.length);
        response.on('end', () => {
            if (--left == 0) { console.log(JSON.stringify({ bytes })); agent.destroy(); }
        });
    });
";

#[test]
#[ignore = "needs node, nginx"]
fn node_client_reuses_connections() {
    alike(4, |place| {
        write_files(place);
        let nginx = nginx(place);
        let script = place.file("client.js", NODE_CLIENT);
        let said = place.gets(&["node", &script, &place.url("1m")]);
        let said: Value = serde_json::from_slice(&said).unwrap();
        (said, nginx.end(Signal::QUIT))
    });
}

const BROWSER: &str = "
import http.server, os, subprocess, sys, threading
os.chdir(sys.argv[1])
with open('page.html', 'w') as page:
    page.write('<script src=script.js></script>')
with open('script.js', 'w') as script:
    script.write('document.write(6 * 7)')
class Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Files)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f'http://127.0.0.1:{server.server_port}/page.html'
browser = ['chromium', '--headless=new', '--disable-gpu', '--no-first-run', '--disable-dev-shm-usage',
           '--user-data-dir=' + sys.argv[1] + '/profile', '--dump-dom', url]
shown = subprocess.run(browser, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
print(shown.returncode, shown.stdout.decode(), shown.stderr.decode() if shown.returncode else '')
";

/// Regression: its sandbox refused to start, since the fabric's directory was open. Root runs it
/// without a sandbox, so the test uses another user with a fabric of its own.
#[test]
#[ignore = "needs root, chromium, python3, setpriv"]
fn chromium_in_sandbox_shows_page() {
    alike(0, |place| {
        let home = place.path("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
        let mut browse = Command::new("setpriv");
        browse.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        if place.nodes.is_some() {
            // Files that the other user can read.
            let (toehold, library) = (place.path("toehold"), place.path("libtoehold.so"));
            fs::copy(env!("CARGO_BIN_EXE_toehold"), &toehold).unwrap();
            fs::copy(&*LIBRARY, &library).unwrap();
            browse.args([&toehold, "run", "--quiet", "--stats", "--"]);
            browse
                .env("TOEHOLD_RUNTIME_DIR", format!("{home}/run"))
                .env("TOEHOLD_LIBRARY", library);
        }
        browse
            .args(["python3", "-c", BROWSER, &home])
            // Directories that the other user can read.
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &home)
            .env("XDG_RUNTIME_DIR", &home);
        let shown = browse.output().unwrap();
        let said = text(&shown.stderr);
        assert!(shown.status.success(), "{said}");
        let mut lines = said.lines();
        let opened = lines.find(|line| line.contains("connections opened on the node"));
        let is_none = opened.is_none_or(|line| line.ends_with(" 0 "));
        assert_eq!(is_none, place.nodes.is_none(), "{said}");
        text(&shown.stdout)
    });
}
