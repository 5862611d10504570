//! What scripts read, which scripts may run, and what can be downloaded: how that is
//! written into a page so that nothing in it can be taken for anything else.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// JSON for a `<script type="application/json">`: without any character that HTML, or a
/// script of an older standard, would give a meaning.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("figures are numbers and strings");
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => safe.push(letter),
        }
    }
    safe
}

/// A content security policy under which these scripts run, nothing is loaded, and
/// nothing else runs.
pub(super) fn policy(scripts: &[&str]) -> String {
    let hashes = scripts.iter().map(|script| {
        let hash = STANDARD.encode(Sha256::digest(script));
        format!("'sha256-{hash}'")
    });
    let hashes = hashes.collect::<Vec<_>>().join(" ");
    format!(
        "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; \
         base-uri 'none'; form-action 'none'"
    )
}

/// A link to compressed `bytes` that works without a script and without a network.
pub(super) fn download(bytes: &[u8]) -> String {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    let written = compressed.write_all(bytes).and_then(|()| compressed.finish());
    let compressed = written.expect("memory takes what is written to it");
    format!("data:application/gzip;base64,{}", STANDARD.encode(compressed))
}

/// A picture that is apart from the page: nothing in it runs.
pub(super) fn image(svg: &str) -> String {
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_can_end_the_script_that_it_is_in() {
        let hostile = "</script><script>alert(1)</script><!-- & \u{2028}";
        let safe = json(&hostile);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }

    #[test]
    fn hashes_of_scripts_are_as_browsers_make_them() {
        // The example of the recommendation (CSP Level 2, §7.17.2).
        let policy = policy(&["alert('Hello, world.');"]);
        assert!(
            policy.contains("'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"),
            "{policy}"
        );
    }

    #[test]
    fn a_download_is_what_was_put_in() {
        let link = download(b"some bytes");
        let encoded = link.strip_prefix("data:application/gzip;base64,").unwrap();
        let compressed = STANDARD.decode(encoded).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&compressed[..]), &mut text).unwrap();
        assert_eq!(text, "some bytes");
    }
}
