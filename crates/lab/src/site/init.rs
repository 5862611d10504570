//! A plan for a site of the user's, from its directory and its access log.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::content::{extent_of, summary_of};
use super::deployment::is_name;
use crate::programs::find;

/// Share of the content that the proposed cache and memory have.
const SHARE: u64 = 4;

/// The text of a plan, with comments that say what was found.
///
/// # Errors
///
/// If the directory has no files, or the log no requests for them.
pub fn plan(directory: &Path, log: Option<&Path>) -> io::Result<String> {
    let directory = directory.canonicalize().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot use {}: {error}", directory.display()),
        )
    })?;
    let (files, bytes) = extent_of(&directory)?;
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20).max(1);
    let mut text = String::new();
    let mut line = |line: String| {
        // Text has room for all of it.
        let _ = writeln!(text, "{line}");
    };
    line("# A site's plan: `toehold site up` brings it up.".into());
    line(format!("name = \"{}\"", name_of(&directory)));
    line("stack = \"direct\"       # or adaptive, inline, engine, kernel".into());
    line("clients = 16            # most clients of `toehold site load`".into());
    line("\n[content]".into());
    line(format!("# {files} files, {} MB", megabytes(bytes)));
    line(format!("directory = {}", quoted(&directory)));
    match log {
        Some(log) => {
            let log = log.canonicalize()?;
            let found = summary_of(&directory, &log)?;
            line(format!(
                "# {} requests for {} of the files, {:.0} KB on average; {} other lines.",
                found.matched,
                found.files,
                found.mean / 1024.0,
                found.others
            ));
            line(format!(
                "# Popularity is near Zipf's law with α = {:.2}.",
                found.alpha
            ));
            line(format!("log = {}", quoted(&log)));
        }
        None => line("alpha = 0.9             # popularity by Zipf's law; or `log`, an access log".into()),
    }
    let memory = megabytes(bytes / SHARE);
    if find("varnishd").is_some() {
        line("\n[[tier]]\nname = \"proxy\"\nprogram = \"varnish\"     # or nginx, haproxy".into());
    } else {
        line(
            "\n[[tier]]\nname = \"proxy\"\nprogram = \"nginx\"       # varnish is not installed here".into(),
        );
    }
    line(format!(
        "cache = \"{memory}M\"             # a quarter of the content"
    ));
    let web = if find("nginx").is_some() || find("apache2").is_none() {
        "nginx"
    } else {
        "apache"
    };
    line(format!(
        "\n[[tier]]\nname = \"web\"\nprogram = \"{web}\"       # nginx, apache, or command with start = \"…\""
    ));
    line(format!(
        "memory = \"{memory}M\"            # what is left for files in the page cache"
    ));
    Ok(text)
}

/// A site's name from that of its directory.
fn name_of(directory: &Path) -> String {
    let name = directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let name: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    if is_name(&name) { name } else { "site".to_owned() }
}

/// A path as a basic string of TOML, which takes all that a string of JSON is.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::content::ContentSource;
    use crate::site::deployment::Deployment;

    #[test]
    fn plan_of_directory_and_log_is_valid() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("My \"Shop\"");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("index.html"), "Hello").unwrap();
        let log = place.path().join("access.log");
        std::fs::write(&log, "1.1.1.1 - - [t] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n").unwrap();
        for log in [None, Some(log.as_path())] {
            let text = plan(&root, log).unwrap();
            let deployment = Deployment::parse(Path::new("/plan.toml"), &text).unwrap();
            assert_eq!(deployment.name, "my--shop-");
            let ContentSource::Directory { path, log: found, .. } = deployment.content else {
                panic!("{text}");
            };
            assert_eq!(path, root.canonicalize().unwrap());
            assert_eq!(found.is_some(), log.is_some());
        }
        assert!(
            plan(&place.path().join("missing"), None)
                .unwrap_err()
                .to_string()
                .contains("missing")
        );
    }

    #[test]
    fn odd_directory_names_give_valid_names() {
        assert_eq!(name_of(Path::new("/srv/www")), "www");
        assert_eq!(name_of(Path::new("/srv/1")), "site");
        assert_eq!(name_of(Path::new("/")), "site");
    }
}
