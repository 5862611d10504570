//! Safe embedding in a page: data for scripts, the policy for scripts, and downloads. No embedded
//! content can be interpreted as anything else.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// JSON for a `<script type="application/json">`. It has no character with a meaning in HTML, or in
/// scripts of an older standard.
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

/// A content security policy that allows these scripts only, and forbids all loading.
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

/// An isolated picture, in which no script runs.
pub(super) fn image(svg: &str) -> String {
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_cannot_end_its_script() {
        let hostile = "</script><script>alert(1)</script><!-- & \u{2028}";
        let safe = json(&hostile);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }

    #[test]
    fn script_hashes_match_browsers() {
        // The example of the recommendation (CSP Level 2, §7.17.2).
        let policy = policy(&["alert('Hello, world.');"]);
        assert!(
            policy.contains("'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"),
            "{policy}"
        );
    }

    #[test]
    fn download_round_trips() {
        let link = download(b"some bytes");
        let encoded = link.strip_prefix("data:application/gzip;base64,").unwrap();
        let compressed = STANDARD.decode(encoded).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&compressed[..]), &mut text).unwrap();
        assert_eq!(text, "some bytes");
    }
}
