//! The programs of the soak: which there are, what becomes of them, and how they begin again.

use super::place::{Place, address, eventually, is_alive};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// The bytes of the file that the HTTP server gives.
const FILE: usize = 20_000;

/// What can happen to a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is never killed or stopped, and measured.
    Steady,
    /// It is killed and stopped.
    Victim,
    /// It ends by itself now and then, and begins again.
    Burst,
}

/// What a program does now.
enum State {
    Running(Child),
    /// One of its processes is stopped.
    Stopped(Child, Pid, Instant),
    Away(Instant),
}

/// A place in the load that one program after the other takes.
struct Program {
    name: String,
    node: Option<&'static str>,
    words: Vec<String>,
    fate: Fate,
    /// The file in which it counts what it has done.
    counts: Option<PathBuf>,
    state: State,
}

/// All programs of the soak.
pub(super) struct Programs {
    programs: Vec<Program>,
    /// What ended otherwise than it may.
    pub(super) failures: Vec<String>,
    pub(super) killed: u32,
    pub(super) stopped: u32,
}

impl Programs {
    /// Starts everything: our own programs, and those real servers that this machine has.
    pub(super) fn start(
        place: &Place,
        random: &mut fastrand::Rng,
        real: &[&'static str],
    ) -> Result<Programs> {
        let mut list = List {
            place,
            programs: Vec::new(),
        };
        let [server, client] = [address("server"), address("client")];
        let [restless_1, restless_2] = [address("restless-1"), address("restless-2")];
        // Nodes share the ports of the kernel's network that they are in.
        let [probed, one, two, three, four, steady, http, redis] = free_ports();
        list.echo("probed", "server", probed, Fate::Steady);
        list.echo("echo-1", "server", one, Fate::Victim);
        list.echo("echo-2", "server", two, Fate::Victim);
        list.echo("echo-3", "client", three, Fate::Victim);
        list.echo("echo-4", "restless-1", four, Fate::Victim);
        list.echo("steady-echo", "restless-2", steady, Fate::Steady);
        let mut talk = |name, node, to: &str, port: u16, fate| {
            list.talk(name, node, &format!("{to}:{port}"), random.u64(..), fate);
        };
        talk("talk-1", Some("client"), &server, one, Fate::Victim);
        talk("talk-2", Some("client"), &server, two, Fate::Victim);
        talk("talk-3", Some("server"), &server, one, Fate::Victim);
        talk("talk-4", Some("restless-1"), &client, three, Fate::Victim);
        talk("talk-5", Some("server"), &restless_1, four, Fate::Victim);
        talk("passing", None, &server, two, Fate::Victim);
        talk(
            "steady-talk",
            Some("restless-1"),
            &restless_2,
            steady,
            Fate::Steady,
        );
        if real.contains(&"nginx") {
            list.nginx(http)?;
        }
        if real.contains(&"redis-server") {
            list.redis(redis);
        }
        if real.contains(&"nginx") && real.contains(&"wrk") {
            let url = format!("http://{server}:{http}/file");
            list.add(
                "wrk",
                Some("client"),
                &["wrk", "-t1", "-c16", "-d2", &url],
                Fate::Burst,
            );
        }
        let times = list.file("probe");
        list.role(
            "probe",
            Some("client"),
            &["probe", &format!("{server}:{probed}"), &times],
            Fate::Steady,
        );
        let mut programs = Programs {
            programs: list.programs,
            failures: Vec::new(),
            killed: 0,
            stopped: 0,
        };
        programs.look(place, Instant::now())?;
        Ok(programs)
    }

    /// The first process of each program that lives as long as the soak.
    pub(super) fn steady(&self) -> impl Iterator<Item = (String, Pid)> {
        self.programs.iter().filter_map(|program| match &program.state {
            State::Running(child) if program.fate == Fate::Steady => {
                Some((format!("program {}", program.name), Pid::from_child(child)))
            }
            _ => None,
        })
    }

    /// Starts what is to begin again, continues what was stopped for long enough, and notices ends.
    pub(super) fn look(&mut self, place: &Place, now: Instant) -> Result<()> {
        for at in 0..self.programs.len() {
            let program = &mut self.programs[at];
            let state = std::mem::replace(&mut program.state, State::Away(now));
            program.state = match state {
                State::Away(until) if until <= now => State::Running(program.start(place)?),
                State::Stopped(child, process, until) if until <= now => {
                    let _ = kill_process(process, Signal::CONT);
                    State::Running(child)
                }
                State::Running(mut child) => match child.try_wait()? {
                    None => State::Running(child),
                    Some(status) => {
                        let failure = program.failure(place, status);
                        let pause = if program.fate == Fate::Burst { 10 } else { 1 };
                        self.failures.extend(failure);
                        State::Away(now + Duration::from_secs(pause))
                    }
                },
                other => other,
            };
        }
        Ok(())
    }

    /// Kills or stops one program that runs, if a victim does.
    pub(super) fn harm(&mut self, random: &mut fastrand::Rng, now: Instant) -> Result<()> {
        let running = |program: &Program| matches!(program.state, State::Running(_));
        let victims: Vec<usize> = (0..self.programs.len())
            .filter(|&at| self.programs[at].fate == Fate::Victim && running(&self.programs[at]))
            .collect();
        let Some(&at) = random.choice(&victims) else {
            return Ok(());
        };
        let program = &mut self.programs[at];
        let State::Running(child) = std::mem::replace(&mut program.state, State::Away(now)) else {
            return Ok(());
        };
        let first = Pid::from_child(&child);
        let process = random.choice(processes(first)).unwrap_or(first);
        if random.u8(..10) < 4 {
            let _ = kill_process(process, Signal::STOP);
            let until = now + Duration::from_millis(random.u64(1..2000));
            program.state = State::Stopped(child, process, until);
            self.stopped += 1;
        } else if process == first {
            end(child)?;
            program.state = State::Away(now + Duration::from_millis(random.u64(..1000)));
            self.killed += 1;
        } else {
            // A worker of a server, which starts another.
            let _ = kill_process(process, Signal::KILL);
            program.state = State::Running(child);
            self.killed += 1;
        }
        Ok(())
    }

    /// Waits until every program that counts has done something more, without further harm.
    pub(super) fn await_progress(&mut self, place: &Place) -> Result<()> {
        let long_ago = Instant::now() + Duration::from_secs(3600);
        self.look(place, long_ago)?;
        let counts: Vec<(String, PathBuf)> = self
            .programs
            .iter()
            .filter_map(|program| Some((program.name.clone(), program.counts.clone()?)))
            .collect();
        let before: Vec<u64> = counts.iter().map(|(_, path)| count_in(path)).collect();
        for ((name, path), before) in counts.iter().zip(before) {
            eventually(&format!("progress of {name} after the last fault"), || {
                let _ = self.look(place, Instant::now());
                count_in(path) > before
            })?;
        }
        Ok(())
    }

    /// What each program that counts has done in all.
    pub(super) fn counts(&self) -> Vec<(String, u64)> {
        let counted = |program: &Program| Some((program.name.clone(), count_in(program.counts.as_ref()?)));
        self.programs.iter().filter_map(counted).collect()
    }

    /// Ends all programs.
    pub(super) fn end(&mut self) -> Result<()> {
        for program in self.programs.drain(..) {
            if let State::Running(child) | State::Stopped(child, ..) = program.state {
                end(child)?;
            }
        }
        Ok(())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Program {
    fn start(&self, place: &Place) -> Result<Child> {
        let mut command = place.toehold(&["run", "--quiet"]);
        if let Some(node) = self.node {
            command.args(["--node", node]);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(place.path(&self.log()))?;
        command
            .arg("--")
            .args(&self.words)
            .stdout(log.try_clone()?)
            .stderr(log);
        // All that it starts ends with it.
        command.process_group(0);
        command
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))
    }

    fn log(&self) -> String {
        format!("{}.log", self.name)
    }

    /// What is wrong about a program's end that this process did not bring about.
    fn failure(&self, place: &Place, status: ExitStatus) -> Option<String> {
        if self.fate == Fate::Burst && status.signal().is_none() {
            return None;
        }
        let log = fs::read_to_string(place.path(&self.log())).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        Some(format!("{} ended: {status}: {said}", self.name))
    }
}

/// The list of programs, as it is made.
struct List<'p> {
    place: &'p Place,
    programs: Vec<Program>,
}

impl List<'_> {
    fn file(&self, name: &str) -> String {
        self.place.path(name).to_string_lossy().into_owned()
    }

    fn add(&mut self, name: &str, node: Option<&'static str>, words: &[&str], fate: Fate) {
        self.programs.push(Program {
            name: name.to_owned(),
            node,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            fate,
            counts: None,
            state: State::Away(Instant::now()),
        });
    }

    /// Adds one of our own programs.
    fn role(&mut self, name: &str, node: Option<&'static str>, words: &[&str], fate: Fate) {
        let own = std::env::current_exe().unwrap_or_default();
        let own = own.to_string_lossy();
        self.add(name, node, &[&[&*own, "soak-program"], words].concat(), fate);
    }

    fn counting(&mut self, name: &str, node: Option<&'static str>, words: &[&str], fate: Fate) {
        let counts = self.file(&format!("{name}.counts"));
        self.role(name, node, &[words, &[&counts]].concat(), fate);
        if let Some(added) = self.programs.last_mut() {
            added.counts = Some(counts.into());
        }
    }

    fn echo(&mut self, name: &str, node: &'static str, port: u16, fate: Fate) {
        self.role(name, Some(node), &["echo", &port.to_string()], fate);
    }

    fn talk(&mut self, name: &str, node: Option<&'static str>, to: &str, seed: u64, fate: Fate) {
        self.counting(name, node, &["talk", to, &seed.to_string()], fate);
    }

    fn nginx(&mut self, port: u16) -> Result<()> {
        fs::create_dir_all(self.place.path("www"))?;
        fs::write(self.place.path("www/file"), vec![b'x'; FILE])?;
        let root = self.file("");
        let root = root.trim_end_matches('/');
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let configuration = format!(
            "daemon off; {user} worker_processes 2; pid {root}/nginx.pid; error_log {root}/nginx.errors;
             events {{ worker_connections 256; }}
             http {{ access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;
                 fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi;
                 scgi_temp_path {root}/scgi; server {{ listen {port}; root {root}/www; }} }}"
        );
        let path = self.file("nginx.conf");
        fs::write(&path, configuration)?;
        self.add("nginx", Some("server"), &["nginx", "-c", &path], Fate::Victim);
        let to = format!("{}:{port}", address("server"));
        self.counting(
            "fetch",
            Some("client"),
            &["fetch", &to, &FILE.to_string()],
            Fate::Victim,
        );
        Ok(())
    }

    fn redis(&mut self, port: u16) {
        let text = port.to_string();
        let words = [
            "redis-server",
            "--port",
            &text,
            "--save",
            "",
            "--protected-mode",
            "no",
        ];
        self.add("redis", Some("server"), &words, Fate::Victim);
        self.counting(
            "keep",
            Some("client"),
            &["keep", &format!("{}:{port}", address("server"))],
            Fate::Victim,
        );
    }
}

/// Ports that are free now, below those that are given to programs that ask for none.
fn free_ports<const N: usize>() -> [u16; N] {
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    let mut free = (first..).filter(|&port| TcpListener::bind(("0.0.0.0", port)).is_ok());
    std::array::from_fn(|_| free.next().unwrap_or_default())
}

/// A process and its children.
fn processes(first: Pid) -> Vec<Pid> {
    let pid = first.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|child| Pid::from_raw(child.parse().ok()?));
    std::iter::once(first).chain(children).collect()
}

/// Kills a program and all that it has started.
fn end(mut child: Child) -> Result<()> {
    let first = Pid::from_child(&child);
    let all = processes(first);
    let _ = kill_process_group(first, Signal::KILL);
    let status = child.wait()?;
    for process in all.into_iter().skip(1) {
        eventually("the end of a killed worker", || !is_alive(process))?;
    }
    match status.signal() {
        Some(_) => Ok(()),
        None => bail!("a killed program ended otherwise: {status}"),
    }
}

/// The number that a program has counted to.
fn count_in(path: &PathBuf) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
