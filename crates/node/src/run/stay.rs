//! Staying on a node: joining one that runs, or starting one that lasts as long as it is used.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use rustix::thread::{
    CapabilitySet, CapabilitySets, ThreadNameSpaceType, move_into_thread_name_spaces, set_capabilities,
};
use toehold_link::interface::NamespaceName;

use super::FIRST_DESCRIPTOR;
use crate::control::{Connection, ControlError, tell};
use crate::engine::{Launch, LaunchError};
use crate::fabric::{Fabric, FabricError, Networks, meaning_outside};
use crate::why::Report;

/// How often nodes of the same name may come and go before this one gives up. Each time, one has
/// ended just before it could be joined, and another was started just then.
const MAX_TRIES: usize = 32;

/// Names that are tried.
const MAX_NAMES: usize = 1 << 12;

/// Bytes of a name's first part, at most: a number follows.
const MAX_NAME: usize = 56;

/// The reason why there is no node to stay on.
#[derive(Debug, thiserror::Error)]
pub enum StayError {
    /// The fabric cannot be used.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The node cannot be reached.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The node cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Others start and end it all the time, or it does not speak this language.
    #[error(
        "node {0} cannot be joined; is its engine process of another version? (`toehold down {0}` ends it)"
    )]
    Restless(String),
    /// All names are taken.
    #[error("all names from {0} to {0}-{MAX_NAMES} are taken; name the node (--node)")]
    Names(String),
    /// The node has no device.
    #[error(
        "node {0} has no network of its own: it was started without a TAP device; join it with --net host, or \
         end it first (`toehold down {0}`)"
    )]
    NoNetwork(String),
    /// The node's network cannot be entered.
    #[error("cannot enter the network of node {0}: {1}; this takes its user's rights in the namespace")]
    Enter(String, Errno),
    /// The system has no descriptor left.
    #[error("cannot keep the node: {0}; raise the limit of descriptors (`ulimit -n 1024`)")]
    Descriptors(#[from] io::Error),
}

/// A node that lasts until this is dropped, if it ends with its last user.
#[derive(Debug)]
pub struct Stay {
    fabric: Fabric,
    node: String,
    /// The networks of the node's fabric; `None` if the node's record has gone meanwhile, with the
    /// node.
    networks: Option<Networks>,
    /// The connection to the node; `None` if this process has started the node, and has not asked
    /// it for anything.
    connection: Option<Connection>,
    keeper: OwnedFd,
}

impl Stay {
    /// Joins the node that the launch names. If there is none, starts it.
    ///
    /// # Errors
    ///
    /// If it belongs to another user, does not answer, or cannot be started.
    pub fn on(launch: &Launch) -> Result<Stay, StayError> {
        for _ in 0..MAX_TRIES {
            if let Some(stay) = Stay::join(launch)? {
                return Ok(stay);
            }
            if let Some(stay) = Stay::start(launch)? {
                return Ok(stay);
            }
        }
        Err(StayError::Restless(launch.node.clone()))
    }

    /// Starts a node under the first name that is free: the launch's, or that with a number.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or no name is free.
    pub fn on_another(mut launch: Launch) -> Result<Stay, StayError> {
        let first = std::mem::take(&mut launch.node);
        let fabric = Fabric::open(&launch.fabric)?;
        for number in 1..=MAX_NAMES {
            launch.node = match number {
                1 => first.clone(),
                number => format!("{first}-{number}"),
            };
            if fabric.resolve(&launch.node).is_ok() || meaning_outside(&launch.node).is_some() {
                continue;
            }
            if let Some(stay) = Stay::start(&launch)? {
                return Ok(stay);
            }
        }
        Err(StayError::Names(first))
    }

    /// Starts the node. Returns `None` if another process has just started a node of the name.
    fn start(launch: &Launch) -> Result<Option<Stay>, StayError> {
        let (record, keeper) = match launch.start_kept() {
            Ok(started) => started,
            Err(LaunchError::NameInUse(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Stay {
            fabric: Fabric::open(&launch.fabric)?,
            node: launch.node.clone(),
            networks: Some(Networks::of(&record)),
            connection: None,
            keeper,
        }))
    }

    /// Joins the node. Returns `None` if there is no such node, or not any more.
    fn join(launch: &Launch) -> Result<Option<Stay>, StayError> {
        let fabric = Fabric::open(&launch.fabric)?;
        let joined = Connection::open(&fabric, &launch.node).and_then(|mut connection| {
            let keeper = connection.keep_for_life()?;
            Ok((connection, keeper))
        });
        match joined {
            Ok((connection, keeper)) => Ok(Some(Stay {
                // The node has just answered, so it lives.
                networks: fabric
                    .record(&connection.node())
                    .map(|record| Networks::of(&record)),
                fabric,
                node: launch.node.clone(),
                connection: Some(connection),
                keeper,
            })),
            Err(ControlError::Unknown { .. } | ControlError::HungUp(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The node's fabric.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The networks of the node's fabric. Returns `None` if the node has ended meanwhile.
    pub fn networks(&self) -> Option<Networks> {
        self.networks
    }

    /// The user whose node it is, if that is not this process's.
    pub fn other_user(&self) -> Option<u32> {
        self.connection.as_ref()?.other_user()
    }

    /// Tells the node of a program that will not use it.
    pub fn tell(&self, report: &Report) {
        tell(self.keeper.as_fd(), report);
    }

    /// A descriptor that programs inherit: as long as one of them has it, the node lasts.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn inherited(&self) -> Result<OwnedFd, StayError> {
        let copy = rustix::io::fcntl_dupfd_cloexec(&self.keeper, FIRST_DESCRIPTOR);
        let copy = copy.map_err(|errno| match errno {
            // The limit is lower than that.
            Errno::INVAL => Errno::MFILE,
            errno => errno,
        });
        let copy = copy.map_err(io::Error::from)?;
        rustix::io::fcntl_setfd(&copy, FdFlags::empty()).map_err(io::Error::from)?;
        Ok(copy)
    }

    /// Moves this process into the network namespace of the node's device, and its user namespace
    /// if that is another one. The process must have one thread only.
    ///
    /// # Errors
    ///
    /// If it has none, or this process may not be in it.
    pub fn enter_network(&mut self) -> Result<(), StayError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(&self.fabric, &self.node)?),
        };
        let kernel = connection.status()?.stack.kernel;
        let kernel = kernel.ok_or_else(|| StayError::NoNetwork(self.node.clone()))?;
        let entered = match &kernel.netns {
            Some(name) => enter_named(name),
            None => enter_that_of(connection.engine()?),
        };
        entered.map_err(|errno| StayError::Enter(self.node.clone(), errno))
    }
}

fn enter_named(name: &str) -> Result<(), Errno> {
    use rustix::fs::{Mode, OFlags};
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let name: NamespaceName = name.parse().map_err(|_| Errno::INVAL)?;
    let namespace = rustix::fs::open(name.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

fn enter_that_of(engine: Pid) -> Result<(), Errno> {
    let process = pidfd_open(engine, PidfdFlags::empty())?;
    let namespace = |process: &str, kind: &str| {
        rustix::fs::stat(format!("/proc/{process}/ns/{kind}")).map(|stat| stat.st_ino)
    };
    let engine = engine.as_raw_nonzero().to_string();
    let is_other = |kind: &str| Ok::<_, Errno>(namespace(&engine, kind)? != namespace("self", kind)?);
    let mut namespaces = ThreadNameSpaceType::empty();
    namespaces.set(ThreadNameSpaceType::USER, is_other("user")?);
    namespaces.set(ThreadNameSpaceType::NETWORK, is_other("net")?);
    if namespaces.is_empty() {
        return Ok(());
    }
    move_into_thread_name_spaces(process.as_fd(), namespaces)?;
    if namespaces.contains(ThreadNameSpaceType::USER) && !geteuid().is_root() {
        // A program that this process becomes has none of the rights over the namespace. This process
        // gives them up, too, so that the program may look at it if it stays.
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )?;
    }
    Ok(())
}

/// A name for the node of a program: the program's, as far as it is a name.
pub fn name_of(program: &std::path::Path) -> String {
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    let allowed = |character: &char| character.is_ascii_alphanumeric() || "-_.".contains(*character);
    let name: String = file.chars().filter(allowed).take(MAX_NAME).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "program".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use toehold_link::mq::NodeName;

    use super::*;
    use crate::engine::Lifetime;
    use crate::settings::NodeSettings;

    #[test]
    fn a_node_that_hangs_up_on_everybody_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let fabric = Fabric::open(path).unwrap();
        let place = fabric.take("web", &NodeSettings::default(), &[]).unwrap();
        let listener = place.listener().try_clone_to_owned().unwrap();
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let hanging_up = std::thread::spawn(move || {
            while !ended.load(Relaxed) {
                drop(rustix::net::accept(&listener).unwrap());
            }
        });
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), r#"echo '{"name_in_use":"somebody has it"}'"#.into()],
            fabric: path.to_owned(),
            node: "web".to_owned(),
            settings: NodeSettings::default(),
            networks: Vec::new(),
            lifetime: Lifetime::WhileUsed,
            own_network: false,
            log: None,
        };
        let error = Stay::on(&launch).map(drop).unwrap_err();
        assert!(matches!(error, StayError::Restless(_)), "{error}");
        done.store(true, Relaxed);
        // The last one that comes.
        let _ = Fabric::open(path).unwrap().dial_control(&"web".parse().unwrap());
        hanging_up.join().unwrap();
    }

    #[test]
    fn programs_give_names() {
        let long = "x".repeat(100);
        for (program, name) in [
            ("/usr/bin/wrk", "wrk"),
            ("./a b+é.sh", "ab.sh"),
            ("[", "program"),
            (".hidden", "hidden"),
            ("/", "program"),
            (long.as_str(), &long[..MAX_NAME]),
        ] {
            assert_eq!(name_of(Path::new(program)), name);
            let numbered = format!("{name}-{MAX_NAMES}");
            assert!(numbered.parse::<NodeName>().is_ok(), "{numbered}");
        }
    }
}
