//! The files that programs serve and write, in a directory of the run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::ProgramsError;
use crate::keeper::Keeper;

/// The configuration of nginx, which serves the directory on the port in place of `PORT`.
const NGINX: &str = "daemon off; worker_processes 1; pid ROOT/nginx.pid; error_log ROOT/nginx.log; USER
    events { worker_connections 512; }
    http { access_log off; sendfile on; keepalive_requests 1000000000;
        client_body_temp_path ROOT/body; proxy_temp_path ROOT/proxy;
        fastcgi_temp_path ROOT/fastcgi; uwsgi_temp_path ROOT/uwsgi; scgi_temp_path ROOT/scgi;
        server { listen PORT; root ROOT; } }
";

/// The configuration of Apache, which uses a thread for each connection in progress.
const APACHE: &str = "ServerRoot ROOT
ServerName test
Listen 0.0.0.0:${PORT}
PidFile ROOT/apache.pid
ErrorLog ROOT/apache.log
DocumentRoot ROOT
USER
LoadModule mpm_event_module MODULES/mod_mpm_event.so
LoadModule authz_core_module MODULES/mod_authz_core.so
StartServers 1
ServerLimit 1
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
MinSpareThreads 1
MaxSpareThreads 64
MaxKeepAliveRequests 0
KeepAliveTimeout 60
EnableSendfile on
Mutex pthread
<Directory ROOT>
Require all granted
</Directory>
";

/// Directory of Debian's Apache modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// A temporary directory that servers of other users may read. Programs and nodes started for it
/// end with it. All of it ends with this process, for any reason.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    keeper: Keeper,
}

impl Files {
    /// Creates the directory, with `nginx.conf`, `apache.conf`, and files of 1 KiB and 1 MiB, `1k`
    /// and `1m`. `toehold` is the command that ends nodes.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn make(toehold: &Path) -> Result<Files, ProgramsError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Its path must be short enough for the name of a socket.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("toehold-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let failed = |error| ProgramsError::Files(path.clone(), error);
        fs::create_dir(&path).map_err(failed)?;
        let keeper = Keeper::of(&path, Some(toehold)).inspect_err(|_| drop(fs::remove_dir(&path)));
        let files = Files {
            path: path.clone(),
            keeper: keeper.map_err(failed)?,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        files.renew_sockets().map_err(failed)?;
        files.configure().map_err(failed)?;
        for (name, length) in [("1k", 1 << 10), ("1m", 1 << 20)] {
            files.serve(name, length).map_err(failed)?;
        }
        Ok(files)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of Unix sockets, in which servers of any user may create some.
    pub(super) fn sockets(&self) -> PathBuf {
        self.path.join("sockets")
    }

    /// Creates the directory of sockets again: killed servers leave their sockets.
    pub(super) fn renew_sockets(&self) -> io::Result<()> {
        let sockets = self.sockets();
        match fs::remove_dir_all(&sockets) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&sockets)?;
        fs::set_permissions(sockets, fs::Permissions::from_mode(0o1777))
    }

    /// The keeper that cleans up.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Writes a file of `length` bytes.
    pub(super) fn serve(&self, name: &str, length: u64) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(length);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        fs::write(self.path.join(name), bytes)
    }

    fn configure(&self) -> io::Result<()> {
        let root = self.path.display().to_string();
        let is_root = nix::unistd::geteuid().is_root();
        let servers = [
            ("nginx.conf", NGINX, "user root;"),
            ("apache.conf", APACHE, "User www-data\nGroup www-data"),
        ];
        for (name, text, user) in servers {
            let user = if is_root { user } else { "" };
            let text = text.replace("ROOT", &root).replace("MODULES", MODULES);
            fs::write(self.path.join(name), text.replace("USER", user))?;
        }
        Ok(())
    }
}
