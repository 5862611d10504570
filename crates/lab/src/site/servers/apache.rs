//! Apache with the event module: threads from the start, which serve files or pass requests on.

use std::io;

use super::{ServerLine, ServerPlace, TierPlan};

/// Directory of Debian's modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// More threads than clients: idle connections keep none, but ends of connections do for a moment.
const MORE_THREADS: u16 = 16;

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
    let own = place.own.display();
    let user = match nix::unistd::geteuid().is_root() {
        true => "User www-data\nGroup www-data",
        false => "",
    };
    let threads = u16::from(place.clients) + MORE_THREADS;
    let (address, port) = (place.address, place.port);
    let role = match place.next {
        None => {
            let content = place.content.display();
            let sendfile = if tier.sendfile == Some(false) { "off" } else { "on" };
            // As the datacenter paper's servers read: by read and write, or sendfile, but never mmap.
            format!(
                "DocumentRoot \"{content}\"\nEnableSendfile {sendfile}\nEnableMMAP off\nReadBufferSize 262144\n\
                 <Directory \"{content}\">\nRequire all granted\n</Directory>"
            )
        }
        Some((next, next_port)) => format!(
            "LoadModule proxy_module {MODULES}/mod_proxy.so\n\
             LoadModule proxy_http_module {MODULES}/mod_proxy_http.so\n\
             ProxyPass \"/\" \"http://{next}:{next_port}/\" keepalive=On max={threads} ttl=3600"
        ),
    };
    let text = format!(
        "ServerRoot \"{own}\"
ServerName site
Listen {address}:{port}
PidFile \"{own}/apache.pid\"
ErrorLog \"{own}/error.log\"
{user}
LoadModule mpm_event_module {MODULES}/mod_mpm_event.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
StartServers 1
ServerLimit 1
ThreadLimit {threads}
ThreadsPerChild {threads}
MaxRequestWorkers {threads}
MinSpareThreads 1
MaxSpareThreads {threads}
MaxKeepAliveRequests 0
KeepAliveTimeout 3600
Mutex pthread
{role}
"
    );
    let path = place.write("apache.conf", &text)?;
    let words = ["apache2", "-DFOREGROUND", "-f", &path.display().to_string()];
    Ok(ServerLine::new(&words, &path))
}
