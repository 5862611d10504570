//! The process that holds a site: it starts rooms and servers, and ends with all of them.
//!
//! It outlives the command that starts it. On standard output it tells that command, in one line
//! each, what it does, and then whether the site is up. It ends if nothing reads that.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::content::path_of;
use super::deployment::Deployment;
use super::error::SiteFailure;
use super::fetch::FETCH_NAME;
use super::nodes::{RoomOrder, SiteGround, SiteRooms};
use super::record::{self, SiteRecord, SiteState, Sites, TierRecord};
use super::room::{RoomDoor, TMPFS};
use super::servers::ServerPlace;
use super::storage::{MountMode, Storage, StorageGround};
use crate::cgroup::ControlGroup;
use crate::keeper::Keeper;
use crate::programs::web::Asked;
use crate::programs::{Running, succeed};

/// The command that brings this program to [`main`].
pub const RUNNER_NAME: &str = "site-runner";

/// The option of a runner that ends with its standard input.
pub const HELD_OPTION: &str = "--held";

/// The requests of a site, in its directory.
pub(super) const ASKED: &str = "asked.json";

/// The name of the clients' room.
const CLIENTS: &str = "clients";

/// The port of each server, at an address of its own.
const PORT: u16 = 8080;

/// Time for the first answer through the whole chain. Varnish compiles its configuration first.
const BEGINNING: Duration = Duration::from_secs(60);

/// Bytes of a page: files take whole ones.
const PAGE: u64 = 4096;

/// Interval of checks.
const LOOK: Duration = Duration::from_millis(50);

/// Most bytes of a log's end that are read.
const MOST_SAID: u64 = 4096;

/// Begins a line about progress, and the line about a failure.
pub(super) const STEP: &str = "step ";
pub(super) const FAILED: &str = "failed ";
/// The line of a site that is up.
pub(super) const UP: &str = "up";

/// How long a site is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteLife {
    /// Until a signal asks for its end.
    Own,
    /// Until its standard input ends, too.
    WithInput,
}

/// Sets `stop` when standard input has ended.
fn end_with_input(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        // The input carries nothing: its end is the message, and an error is an end.
        let _ = io::Read::read(&mut io::stdin(), &mut [0]);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Brings a plan's site up, and holds it until `stop` is set.
pub fn main(plan: &Path, sites: &Sites, toehold: &Path, life: SiteLife, stop: &Arc<AtomicBool>) -> ExitCode {
    if life == SiteLife::WithInput {
        end_with_input(stop);
    }
    match hold(plan, sites, toehold, stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The reader may be gone.
            let _ = writeln!(io::stdout(), "{FAILED}{}", error.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Tells the command that waits. Its absence ends the setup.
fn say(line: &str) -> Result<(), SiteFailure> {
    writeln!(io::stdout(), "{line}").map_err(|_| SiteFailure::Interrupted)
}

fn hold(plan: &Path, sites: &Sites, toehold: &Path, stop: &AtomicBool) -> Result<(), SiteFailure> {
    let text = fs::read_to_string(plan).map_err(|error| SiteFailure::File(plan.to_owned(), error))?;
    let deployment = Deployment::parse(plan, &text)?;
    say(&format!("{STEP}content"))?;
    let asked = deployment.content.asked().map_err(SiteFailure::Content)?;
    let mut record = begun(&deployment, plan, toehold, &asked)?;
    let _lock = sites.begin(&record)?;
    let directory = sites.directory_of(&record.name);
    let failed = |error| SiteFailure::File(directory.clone(), error);
    let keeper = Keeper::of(&directory, Some(toehold)).map_err(failed)?;
    // It learns of the group before that is there: a kill between the two leaves nothing.
    keeper.remove_control_group(&record.group).map_err(failed)?;
    record.group.make().map_err(|error| {
        SiteFailure::Missing(format!("cannot make a control group (it takes root): {error}"))
    })?;
    let ground = SiteGround {
        stack: deployment.stack,
        toehold,
        directory: &directory,
        group: &record.group.clone(),
        keeper: &keeper,
    };
    let site = HeldSite::start(&ground, &deployment, &asked, &mut record, stop);
    let mut site = match site {
        Ok(site) => site,
        // The logs go with the directory.
        Err(error) => return Err(with_logs(error, &record)),
    };
    record.state = SiteState::Up;
    record::save(&directory, &record)?;
    say(UP)?;
    while !stop.load(Ordering::Relaxed) {
        if record.state == SiteState::Up
            && let Err(error) = site.check(&record)
        {
            record.state = SiteState::Failed;
            record.failure = Some(with_logs(error, &record).to_string());
            record::save(&directory, &record)?;
        }
        std::thread::sleep(LOOK);
    }
    site.end();
    Ok(())
}

/// The record of a site of which nothing is there yet.
fn begun(
    deployment: &Deployment,
    plan: &Path,
    toehold: &Path,
    asked: &Asked,
) -> Result<SiteRecord, SiteFailure> {
    let runner = std::process::id();
    let missing = |error| {
        SiteFailure::Missing(format!(
            "no control groups for memory and processor time: {error}"
        ))
    };
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(SiteRecord {
        name: deployment.name.clone(),
        state: SiteState::Starting,
        started: started.map_or(0, |since| since.as_secs()),
        runner,
        plan: std::path::absolute(plan).unwrap_or_else(|_| plan.to_owned()),
        stack: deployment.stack,
        clients: deployment.clients,
        tiers: Vec::new(),
        door: None,
        file: proof(asked),
        group: ControlGroup::named(&format!("toehold-site-{}-{runner}", deployment.name)).map_err(missing)?,
        toehold: toehold.to_owned(),
        disks: Vec::new(),
        failure: None,
    })
}

/// The smallest requested file that has bytes, whose way through the chain shows that it works.
fn proof(asked: &Asked) -> String {
    let requested = asked
        .requests
        .iter()
        .filter_map(|&number| asked.files.get(number as usize));
    let smallest = requested
        .filter(|file| file.length > 0)
        .min_by_key(|file| file.length);
    smallest
        .or(asked.files.first())
        .map(|file| file.name.clone())
        .unwrap_or_default()
}

/// The rooms and servers of a site.
struct HeldSite<'a> {
    /// In the order of tiers.
    servers: Vec<Running<'a>>,
    _rooms: SiteRooms,
    /// What the rooms have mounted, so it ends after them.
    storage: Option<Storage<'a>>,
}

/// Where the files are that the last tier serves.
enum SiteFiles {
    /// In a directory.
    Directory(PathBuf),
    /// In a directory, from which they are copied into memory.
    Memory(PathBuf),
    /// In the directory `content` of the file system on a device.
    Device(PathBuf),
}

impl SiteFiles {
    /// What a room mounts.
    fn source(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Device(path) => path,
            Self::Memory(_) => Path::new(TMPFS),
        }
    }
}

/// Writes the files of a site, and returns where they are.
fn provide<'a>(
    ground: &SiteGround<'a>,
    deployment: &Deployment,
    asked: &Asked,
) -> Result<(SiteFiles, Option<Storage<'a>>), SiteFailure> {
    let directory = ground.directory;
    let (Some(plan), Some(scale)) = (deployment.storage, deployment.content.scale()) else {
        let content = deployment.content.provide(asked, &directory.join("content"));
        return Ok((SiteFiles::Directory(content.map_err(SiteFailure::Content)?), None));
    };
    if plan.disk.is_none() {
        let content = deployment.content.provide(asked, &directory.join("content"));
        return Ok((SiteFiles::Memory(content.map_err(SiteFailure::Content)?), None));
    }
    say(&format!("{STEP}disks"))?;
    let place = directory.join("storage");
    fs::create_dir(&place).map_err(|error| SiteFailure::File(place.clone(), error))?;
    let under = StorageGround {
        toehold: ground.toehold,
        keeper: ground.keeper,
        directory: place,
        group: ground.group.child("storage"),
        core: deployment.cores.map(|cores| cores[1]),
    };
    let bytes = asked
        .files
        .iter()
        .map(|file| file.length.next_multiple_of(PAGE))
        .sum();
    let storage = Storage::make(plan, bytes, scale, &under)?;
    let root = storage.mount(MountMode::ReadWrite)?;
    let content = deployment.content.provide(asked, &root.join("content"));
    content.map_err(SiteFailure::Content)?;
    storage.unmount()?;
    let device = storage.device().unwrap_or(Path::new("/dev/null")).to_owned();
    Ok((SiteFiles::Device(device), Some(storage)))
}

/// Copies files into a room's memory by a process of the room, whose memory they then are.
fn copy_in(door: &RoomDoor, from: &Path, to: &Path) -> Result<(), SiteFailure> {
    let words = [
        "cp",
        "-r",
        &format!("{}/.", from.display()),
        &to.display().to_string(),
    ]
    .map(str::to_owned);
    Ok(succeed(door.command(&words), "copy the files into memory")?)
}

impl<'a> HeldSite<'a> {
    fn start(
        ground: &SiteGround<'a>,
        deployment: &Deployment,
        asked: &Asked,
        record: &mut SiteRecord,
        stop: &AtomicBool,
    ) -> Result<Self, SiteFailure> {
        let directory = ground.directory;
        let failed = |error| SiteFailure::File(directory.to_owned(), error);
        let text = serde_json::to_vec(asked).map_err(|error| failed(error.into()))?;
        fs::write(directory.join(ASKED), text).map_err(failed)?;
        let (content, storage) = provide(ground, deployment, asked)?;
        say(&format!("{STEP}rooms"))?;
        let places = deployment
            .tiers
            .iter()
            .map(|tier| directory.join("tiers").join(&tier.name));
        let places: Vec<PathBuf> = places.collect();
        for place in &places {
            // A room sees the content there.
            fs::create_dir_all(place.join("content")).map_err(failed)?;
        }
        let seen = places[places.len() - 1].join("content");
        let served = match &content {
            SiteFiles::Device(_) => seen.join("content"),
            _ => seen.clone(),
        };
        let last = deployment.tiers.len() - 1;
        let tiers = deployment
            .tiers
            .iter()
            .enumerate()
            .map(|(number, tier)| RoomOrder {
                name: &tier.name,
                core: deployment.cores.map(|cores| cores[0]),
                content: (number == last).then_some((content.source(), seen.as_path())),
            });
        let clients = RoomOrder {
            name: CLIENTS,
            core: deployment.cores.map(|cores| cores[1]),
            content: None,
        };
        let orders: Vec<_> = std::iter::once(clients).chain(tiers).collect();
        let rooms = SiteRooms::make(ground, &orders)?;
        let (clients, doors) = rooms.doors.split_first().ok_or(SiteFailure::Interrupted)?;
        record.door = Some(clients.clone());
        if let (SiteFiles::Memory(from), Some(door)) = (&content, doors.last()) {
            copy_in(door, from, &seen)?;
        }
        let mut servers = Vec::new();
        for (number, (tier, door)) in deployment.tiers.iter().zip(doors).enumerate().rev() {
            let place = ServerPlace {
                address: &door.address,
                port: PORT,
                next: doors.get(number + 1).map(|next| (next.address.as_str(), PORT)),
                content: &served,
                own: &places[number],
                clients: deployment.clients,
            };
            say(&format!("{STEP}{} with {}", tier.name, tier.program.name()))?;
            let line = tier.program.configure(tier, &place).map_err(failed)?;
            let log = places[number].join("server.log");
            servers.insert(0, serve(ground.keeper, door, &line, &log)?);
            let tier = TierRecord {
                name: tier.name.clone(),
                program: tier.program,
                port: PORT,
                log,
                configuration: line.configuration,
                has_cache: tier.cache.is_some(),
                memory: tier.memory,
                door: door.clone(),
            };
            record.tiers.insert(0, tier);
        }
        record.disks = storage.as_ref().map(Storage::controls).unwrap_or_default();
        record::save(directory, record)?;
        let compared = match (&content, doors.last()) {
            (SiteFiles::Directory(root) | SiteFiles::Memory(root), _) => root.clone(),
            (SiteFiles::Device(_), Some(door)) => door.seen(&served),
            (SiteFiles::Device(_), None) => served,
        };
        let mut site = Self {
            servers,
            _rooms: rooms,
            storage,
        };
        site.await_answer(record, &path_of(&compared, &record.file), stop)?;
        if let Some(storage) = &site.storage {
            storage.set_clock(true)?;
        }
        Ok(site)
    }

    /// Waits until a request through the whole chain brings the right bytes.
    fn await_answer(
        &mut self,
        record: &SiteRecord,
        file: &Path,
        stop: &AtomicBool,
    ) -> Result<(), SiteFailure> {
        say(&format!("{STEP}first answer"))?;
        let (Some(clients), Some(first)) = (&record.door, record.tiers.first()) else {
            return Err(SiteFailure::Interrupted);
        };
        let words = [
            record.toehold.display().to_string(),
            FETCH_NAME.to_owned(),
            format!("{}:{}", first.door.address, first.port),
            record.file.clone(),
            file.display().to_string(),
        ];
        let deadline = Instant::now() + BEGINNING;
        loop {
            self.check(record)?;
            let mut command = clients.command(&words);
            let answer = command.stdin(Stdio::null()).output();
            let answer =
                answer.map_err(|error| SiteFailure::Server(format!("cannot start a client: {error}")))?;
            if answer.status.success() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(SiteFailure::Interrupted);
            }
            if Instant::now() > deadline {
                let reason = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
                let seconds = BEGINNING.as_secs();
                return Err(SiteFailure::Server(format!(
                    "no right answer for /{} from the first tier in {seconds} s: {reason}",
                    record.file
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Fails if a server has ended.
    fn check(&mut self, record: &SiteRecord) -> Result<(), SiteFailure> {
        for (server, tier) in self.servers.iter_mut().zip(&record.tiers) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(SiteFailure::Server(format!(
                    "the server of {} ended with {status}",
                    tier.name
                )));
            }
        }
        Ok(())
    }

    /// Asks all servers to end, and waits for each a moment.
    fn end(self) {
        self.servers.iter().for_each(Running::ask_to_end);
        self.servers.into_iter().for_each(Running::end);
    }
}

/// Starts a server in its room.
fn serve<'a>(
    keeper: &'a Keeper,
    door: &RoomDoor,
    line: &super::servers::ServerLine,
    log: &Path,
) -> Result<Running<'a>, SiteFailure> {
    let failed = |error| SiteFailure::File(log.to_owned(), error);
    let mut command = door.command(&line.words);
    for (name, value) in &line.variables {
        command.env(name, value);
    }
    let mut command = keeper.watched(&command).map_err(failed)?;
    let output = File::create(log).map_err(failed)?;
    command.stderr(output.try_clone().map_err(failed)?).stdout(output);
    Running::start(command, keeper).map_err(failed)
}

/// The end of a log, in one line.
fn said(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        io::Seek::seek(&mut file, io::SeekFrom::Start(length.saturating_sub(MOST_SAID)))?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let mut lines: Vec<_> = text
        .lines()
        .rev()
        .filter(|line| !line.is_empty())
        .take(4)
        .collect();
    lines.reverse();
    lines.join(" / ")
}

/// A failure of a server, with what all servers said last.
fn with_logs(error: SiteFailure, record: &SiteRecord) -> SiteFailure {
    let SiteFailure::Server(reason) = &error else {
        return error;
    };
    let logs = record.tiers.iter().map(|tier| (tier, said(&tier.log)));
    let logs = logs.filter(|(_, said)| !said.is_empty());
    let logs: Vec<_> = logs
        .map(|(tier, said)| format!("{} said: {said}", tier.name))
        .collect();
    let all: Vec<_> = std::iter::once(reason.clone()).chain(logs).collect();
    SiteFailure::Server(all.join("; "))
}
