//! Varnish: a cache with a strict bound.
//!
//! Files that it fetches at the same time must fit its cache, or answers are cut off. So it passes
//! on what exceeds cache ÷ (2 × clients) and never keeps it.

use std::io;

use super::{ServerLine, ServerPlace, TierPlan};

/// The place holders are HOST, PORT and LARGEST.
const VCL: &str = r#"vcl 4.1;
import std;
backend next { .host = "HOST"; .port = "PORT"; }
sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") { return (pass); }
    unset req.http.Cookie;
    return (hash);
}
sub vcl_backend_response {
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    if (beresp.status != 200 || std.integer(beresp.http.Content-Length, 0) > LARGEST) {
        return (pass(1h));
    }
    set beresp.ttl = 1d;
}
sub vcl_deliver {
    if (obj.hits > 0) { set resp.http.X-Cache = "HIT"; } else { set resp.http.X-Cache = "MISS"; }
}
"#;

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
    let cache = tier.cache.unwrap_or(0);
    let largest = cache / (2 * u64::from(place.clients.max(1)));
    let (next, next_port) = place.next.unwrap_or_default();
    let text = VCL
        .replace("HOST", next)
        .replace("PORT", &next_port.to_string())
        .replace("LARGEST", &largest.to_string());
    let path = place.write("site.vcl", &text)?;
    let words = [
        "varnishd",
        "-F",
        "-j",
        "none",
        "-T",
        "none",
        "-n",
        &place.own.join("work").display().to_string(),
        "-a",
        &format!("{}:{}", place.address, place.port),
        "-f",
        &path.display().to_string(),
        "-s",
        &format!("malloc,{cache}"),
        // With its default of 2 s, the order of eviction would be that of arrival in short runs.
        "-p",
        "lru_interval=0",
        "-p",
        "nuke_limit=10000",
        "-p",
        "vsl_space=1M",
        "-p",
        "timeout_idle=3600",
        "-p",
        "thread_pools=1",
        "-p",
        "thread_pool_min=20",
    ];
    Ok(ServerLine::new(&words, &path))
}

#[cfg(test)]
mod tests {
    use super::super::ServerProgram::Varnish;
    use super::super::tests::configured;

    #[test]
    fn files_that_could_be_cut_off_are_passed_on() {
        let own = tempfile::tempdir().unwrap();
        let (line, text) = configured(Varnish, own.path(), Some(("10.0.0.2", 8080)), Some(32 << 20));
        assert!(text.contains("> 1048576) {"), "{text}");
        assert!(line.words.contains(&"malloc,33554432".to_owned()), "{line:?}");
    }
}
