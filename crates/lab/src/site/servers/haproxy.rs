//! HAProxy: one thread, which passes requests on, with or without a cache.
//!
//! It keeps answers of up to half its cache.

use std::io;

use super::{ServerLine, ServerPlace, TierPlan};

/// The largest cache that it takes, in megabytes.
const MOST_MEGABYTES: u64 = 4095;

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
    let (next, next_port) = place.next.unwrap_or_default();
    let (address, port) = (place.address, place.port);
    let (cache, rules) = match tier.cache {
        None => (String::new(), ""),
        Some(cache) => {
            let megabytes = (cache >> 20).clamp(1, MOST_MEGABYTES);
            let largest = cache.min(MOST_MEGABYTES << 20) / 2;
            (
                format!(
                    "cache site\n    total-max-size {megabytes}\n    max-object-size {largest}\n    max-age 86400\n"
                ),
                "    http-request cache-use site\n    http-response set-header Cache-Control max-age=86400\n    \
                 http-response cache-store site\n    \
                 http-response set-header X-Cache HIT if { res.cache_hit }\n    \
                 http-response set-header X-Cache MISS unless { res.cache_hit }\n",
            )
        }
    };
    let text = format!(
        "global
    nbthread 1
    maxconn 2048
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    http-reuse always
{cache}listen site
    bind {address}:{port}
{rules}    server next {next}:{next_port}
"
    );
    let path = place.write("haproxy.cfg", &text)?;
    let words = ["haproxy", "-db", "-f", &path.display().to_string()];
    Ok(ServerLine::new(&words, &path))
}

#[cfg(test)]
mod tests {
    use super::super::ServerProgram::Haproxy;
    use super::super::tests::configured;

    #[test]
    fn cache_holds_answers_of_up_to_half_of_it() {
        let own = tempfile::tempdir().unwrap();
        let next = Some(("10.0.0.2", 8080));
        let (_, text) = configured(Haproxy, own.path(), next, Some(64 << 20));
        assert!(
            text.contains("total-max-size 64") && text.contains("max-object-size 33554432"),
            "{text}"
        );
        let (_, text) = configured(Haproxy, own.path(), next, None);
        assert!(!text.contains("cache"), "{text}");
    }
}
