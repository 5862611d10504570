//! nginx: one worker, which serves files or passes requests on.
//!
//! Its cache has no bound here: nginx enforces one every ten seconds only. So `cache` bounds it
//! roughly, and a load says what it hit.

use std::io;

use super::{ServerLine, ServerPlace, TierPlan};

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
    let own = place.own.display();
    let user = match nix::unistd::geteuid().is_root() {
        true => "user root;",
        false => "",
    };
    let (address, port) = (place.address, place.port);
    let (http, location) = match place.next {
        None => (String::new(), format!("root {};", place.content.display())),
        Some((next, next_port)) => passing_on(tier, place, next, next_port),
    };
    let sendfile = if tier.sendfile == Some(false) { "off" } else { "on" };
    let text = format!(
        "daemon off; worker_processes 1; pid {own}/nginx.pid; error_log {own}/error.log; {user}
events {{ worker_connections 2048; }}
http {{
    access_log off; sendfile {sendfile}; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 1h;
    client_body_temp_path {own}/body; proxy_temp_path {own}/proxy;
    fastcgi_temp_path {own}/fastcgi; uwsgi_temp_path {own}/uwsgi; scgi_temp_path {own}/scgi;
    {http}
    server {{ listen {address}:{port}; location / {{ {location} }} }}
}}
"
    );
    let path = place.write("nginx.conf", &text)?;
    let words = [
        "nginx",
        "-e",
        &format!("{own}/error.log"),
        "-c",
        &path.display().to_string(),
    ];
    Ok(ServerLine::new(&words, &path))
}

fn passing_on(tier: &TierPlan, place: &ServerPlace<'_>, next: &str, next_port: u16) -> (String, String) {
    let mut http = format!(
        "upstream next {{ server {next}:{next_port}; keepalive {}; }}",
        place.clients
    );
    let mut location =
        "proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection \"\";".to_owned();
    if let Some(cache) = tier.cache {
        http += &format!(
            "\n    proxy_cache_path {}/cache levels=1:2 keys_zone=cache:16m max_size={cache} inactive=1d \
             use_temp_path=off;",
            place.own.display()
        );
        location += " proxy_cache cache; proxy_cache_valid 200 1d; proxy_cache_lock on; \
                     proxy_ignore_headers Cache-Control Expires Vary; \
                     add_header X-Cache $upstream_cache_status;";
    }
    (http, location)
}

#[cfg(test)]
mod tests {
    use super::super::ServerProgram::Nginx;
    use super::super::tests::configured;

    #[test]
    fn cache_is_configured_only_where_the_plan_has_one() {
        let own = tempfile::tempdir().unwrap();
        let next = Some(("10.0.0.2", 8080));
        let (_, with) = configured(Nginx, own.path(), next, Some(1 << 20));
        assert!(
            with.contains("max_size=1048576") && with.contains("X-Cache"),
            "{with}"
        );
        let (_, without) = configured(Nginx, own.path(), next, None);
        assert!(
            without.contains("proxy_pass") && !without.contains("proxy_cache_path"),
            "{without}"
        );
    }
}
