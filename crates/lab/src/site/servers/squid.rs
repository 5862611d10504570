//! Squid: one process, which passes requests on and keeps answers in its memory.
//!
//! It keeps answers of up to half its cache, and none on a disk.

use std::io;

use super::{ServerLine, ServerPlace, TierPlan};

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
    let (next, next_port) = place.next.unwrap_or_default();
    let (address, port) = (place.address, place.port);
    let caching = match tier.cache {
        // An answer above 512 KB would else not be kept in memory.
        Some(cache) => format!(
            "cache_mem {cache} bytes\nmaximum_object_size {largest} bytes\n\
             maximum_object_size_in_memory {largest} bytes\nmemory_replacement_policy lru\n\
             refresh_pattern . 1440 100% 1440 override-expire",
            largest = cache / 2
        ),
        None => "cache deny all".to_owned(),
    };
    let text = format!(
        "http_port {address}:{port} accel defaultsite=site no-vhost
cache_peer {next} parent {next_port} 0 no-query no-digest no-netdb-exchange originserver name=next
cache_peer_access next allow all
never_direct allow all
http_access allow all
{caching}
access_log none
cache_log /dev/null
pid_filename none
pinger_enable off
visible_hostname site
shutdown_lifetime 0 seconds
client_idle_pconn_timeout 1 hour
server_idle_pconn_timeout 1 hour
client_lifetime 1 day
max_filedescriptors 4096
coredump_dir none
"
    );
    let path = place.write("squid.conf", &text)?;
    let words = ["squid", "-N", "-f", &path.display().to_string()];
    Ok(ServerLine::new(&words, &path))
}

#[cfg(test)]
mod tests {
    use super::super::ServerProgram::Squid;
    use super::super::tests::configured;

    #[test]
    fn cache_is_in_memory_and_holds_answers_of_up_to_half_of_it() {
        let own = tempfile::tempdir().unwrap();
        let next = Some(("10.0.0.2", 8080));
        let (_, text) = configured(Squid, own.path(), next, Some(64 << 20));
        assert!(text.contains("cache_mem 67108864 bytes"), "{text}");
        assert!(
            text.contains("maximum_object_size_in_memory 33554432 bytes"),
            "{text}"
        );
        assert!(!text.contains("cache_dir"), "{text}");
        let (_, text) = configured(Squid, own.path(), next, None);
        assert!(text.contains("cache deny all"), "{text}");
    }
}
