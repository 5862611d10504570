//! The engine process: it has the node's place in its fabric, its memory and its descriptors, and
//! serves processes that attach.
//!
//! [`Launch`] starts one, [`main`] is one. An [`Engine`] is the part that they have in common: a
//! [`Host`] that is served at a [`Place`] by a control thread. Nothing outlives the process but the
//! node's files, which the next command removes.

mod host;
mod launch;
mod process;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use ipnet::IpNet;

pub use crate::control::Lifetime;
use crate::control::{Host, KeeperEnd, Server};
use crate::fabric::{Fabric, NodeRecord, Place, Role, TakeError};
pub use crate::probe::AddressTaken;
use crate::settings::{InvalidSetting, NodeSettings};
use crate::uplink;

pub use self::host::StackHost;
pub use self::launch::{Launch, LaunchError};
pub use self::process::{main, main_as};

/// An error of a host.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// The facts that an engine is given: its fabric, name and settings.
#[derive(Debug)]
pub struct Seat {
    /// The fabric.
    pub fabric: Fabric,
    /// The node's name.
    pub node: String,
    /// The node's settings.
    pub settings: NodeSettings,
    /// Networks of the fabric, if this is its first node and they are to be others
    /// than the default ones.
    pub networks: Vec<IpNet>,
    /// How long the node lasts.
    pub lifetime: Lifetime,
}

/// The reason why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The fabric has no place for the node.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// A host beyond the fabric has an address.
    #[error(transparent)]
    Taken(#[from] AddressTaken),
    /// The node itself could not be made.
    #[error("cannot make the node: {0}")]
    Host(#[source] HostError),
    /// The system has no descriptor or thread left.
    #[error("cannot start the node's control thread: {0} (see `ulimit -n` and `ulimit -u`)")]
    Thread(#[source] io::Error),
}

/// A node that runs in this process. Dropping it ends the node.
pub struct Engine {
    host: Arc<dyn Host>,
    stopper: UnixStream,
    control: Option<JoinHandle<Server>>,
    place: Place,
    /// The server after its end. Its clients see that last of all, when the node's name is free
    /// again: so it is the last field.
    ended: Option<Server>,
}

impl Engine {
    /// Takes the node's place in the fabric, makes its host, and serves it.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the place is taken, or the host cannot be made.
    pub fn start(
        seat: Seat,
        host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
    ) -> Result<Engine, StartError> {
        Self::start_as(Role::Node, seat, host)
    }

    /// Takes the place in the fabric of a member that may be no node, makes its host, and serves
    /// it.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the place is taken, or the host cannot be made.
    pub fn start_as(
        role: Role,
        seat: Seat,
        host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
    ) -> Result<Engine, StartError> {
        Self::start_with(role, None, seat, host)
    }

    /// Starts a member that `keeper` keeps from the start, if there is one.
    fn start_with(
        role: Role,
        keeper: Option<KeeperEnd>,
        seat: Seat,
        host: impl FnOnce(&Place, &NodeSettings) -> Result<Arc<dyn Host>, HostError>,
    ) -> Result<Engine, StartError> {
        seat.settings.check()?;
        let beyond = uplink::known_beyond(&seat.fabric);
        let place = seat
            .fabric
            .take_as(role, &seat.node, &seat.settings, &seat.networks, &beyond)?;
        uplink::ask_beyond(&place, &seat.settings)?;
        let (stopper, stop) = UnixStream::pair().map_err(StartError::Thread)?;
        let listener = place.listener().try_clone_to_owned();
        let listener = listener.map_err(StartError::Thread)?;
        let host = host(&place, &seat.settings).map_err(StartError::Host)?;
        let mut engine = Engine {
            host,
            stopper,
            control: None,
            place,
            ended: None,
        };
        let record = engine.place.record().clone();
        let server = Server::new(listener, stop.into(), record, Arc::clone(&engine.host));
        let server = server.map_err(|errno| StartError::Thread(errno.into()))?;
        let mut server = server.lifetime(seat.lifetime).at(&engine.place);
        if let Some(keeper) = keeper {
            server = server
                .kept_by(keeper)
                .map_err(|errno| StartError::Thread(errno.into()))?;
        }
        let thread = std::thread::Builder::new().name("toehold-control".into());
        let control = thread
            .spawn(move || {
                server.run();
                server
            })
            .map_err(StartError::Thread)?;
        engine.control = Some(control);
        Ok(engine)
    }

    /// The facts that the node tells every process about itself.
    pub fn record(&self) -> &NodeRecord {
        self.place.record()
    }

    /// Makes signals end the node, once [`Engine::run`] waits for that.
    ///
    /// # Errors
    ///
    /// If one of them cannot be handled, or the system has no descriptor left.
    pub fn stop_on(&self, signals: &[i32]) -> io::Result<()> {
        for &signal in signals {
            signal_hook::low_level::pipe::register(signal, self.stopper.try_clone()?)?;
        }
        Ok(())
    }

    /// Waits until a client asks for the node's end, and ends it.
    pub fn run(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(control) = self.control.take() {
            // A control thread that has panicked too often ends the node: no process could reach
            // it any more. Each panic was told.
            self.ended = control.join().ok();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A full socket has been written to before.
        let _ = self.stopper.write(&[0]);
        self.join();
        self.place.withdraw();
        self.host.stop();
    }
}
