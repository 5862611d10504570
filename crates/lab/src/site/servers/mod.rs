//! The servers of tiers, a program a file: what each needs, its configuration and its command.
//!
//! A server runs in the foreground. Its files other than the content are in a directory of its own.

mod apache;
mod command;
mod haproxy;
mod nginx;
mod squid;
mod varnish;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::deployment::TierPlan;
use crate::testbed::Program;

/// The program of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerProgram {
    /// nginx: files, or another tier's answers with or without a cache.
    Nginx,
    /// Varnish: a bounded cache before another tier.
    Varnish,
    /// Apache: files, or another tier's answers.
    Apache,
    /// HAProxy: another tier's answers with or without a cache.
    Haproxy,
    /// Squid: another tier's answers with or without a cache in memory.
    Squid,
    /// A server of the user's.
    Command,
}

/// The place of a server: what it listens at, and where its files are.
#[derive(Debug)]
pub(super) struct ServerPlace<'a> {
    /// Its address.
    pub(super) address: &'a str,
    /// Its port.
    pub(super) port: u16,
    /// The address and port of the next tier; `None` in the last one.
    pub(super) next: Option<(&'a str, u16)>,
    /// The directory of the content.
    pub(super) content: &'a Path,
    /// The directory of its own files, which exists.
    pub(super) own: &'a Path,
    /// Most clients at the same time.
    pub(super) clients: u8,
}

/// A configured server.
#[derive(Debug, PartialEq)]
pub(super) struct ServerLine {
    /// Program and arguments.
    pub(super) words: Vec<String>,
    /// Variables of its environment.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Its configuration, if it is in a file.
    pub(super) configuration: Option<PathBuf>,
}

impl ServerProgram {
    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Varnish => "varnish",
            Self::Apache => "apache",
            Self::Haproxy => "haproxy",
            Self::Squid => "squid",
            Self::Command => "command",
        }
    }

    /// The installed program that it is, with its package; `None` for a user's own.
    pub(crate) fn installed(self) -> Option<Program> {
        match self {
            Self::Nginx => Some(("nginx", "nginx-light")),
            Self::Varnish => Some(("varnishd", "varnish")),
            Self::Apache => Some(("apache2", "apache2")),
            Self::Haproxy => Some(("haproxy", "haproxy")),
            Self::Squid => Some(("squid", "squid")),
            Self::Command => None,
        }
    }

    /// Whether a tier can choose between `sendfile` and `read`.
    pub(super) fn has_sendfile(self, is_last: bool) -> bool {
        is_last && matches!(self, Self::Nginx | Self::Apache)
    }

    /// Checks the fields of a tier against its program and its place.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub(super) fn check(self, is_last: bool, has_cache: bool, has_start: bool) -> Result<(), String> {
        let name = self.name();
        let has_files = !matches!(self, Self::Varnish | Self::Haproxy | Self::Squid);
        if is_last && !has_files {
            return Err(format!(
                "{name} serves no files, and the last tier has the content: add a tier with nginx, apache or command"
            ));
        }
        if is_last && has_cache {
            return Err("the last tier has the content and no `cache`: bound its `memory` instead".into());
        }
        if has_cache && matches!(self, Self::Apache | Self::Command) {
            return Err(format!(
                "{name} has no bounded `cache`: leave it out, or choose varnish, nginx, haproxy or squid"
            ));
        }
        if self == Self::Varnish && !has_cache {
            return Err("varnish needs a `cache`, such as cache = \"64M\"".into());
        }
        if has_start && self != Self::Command {
            return Err("`start` is for `program = \"command\"`: leave it out".into());
        }
        if self == Self::Command && !has_start {
            return Err("a tier with `program = \"command\"` needs `start`, the line that starts it".into());
        }
        Ok(())
    }

    /// Writes a tier's configuration, and returns its command.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub(super) fn configure(self, tier: &TierPlan, place: &ServerPlace<'_>) -> io::Result<ServerLine> {
        match self {
            Self::Nginx => nginx::line(tier, place),
            Self::Varnish => varnish::line(tier, place),
            Self::Apache => apache::line(tier, place),
            Self::Haproxy => haproxy::line(tier, place),
            Self::Squid => squid::line(tier, place),
            Self::Command => Ok(command::line(tier, place)),
        }
    }
}

impl ServerPlace<'_> {
    /// Writes a configuration.
    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.own.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl ServerLine {
    fn new(words: &[&str], configuration: &Path) -> Self {
        Self {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            variables: Vec::new(),
            configuration: Some(configuration.to_owned()),
        }
    }
}

/// A tier and a place for tests of configurations.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Configures a program in a directory, and returns its line with the text of its configuration.
    pub(super) fn configured(
        program: ServerProgram,
        own: &Path,
        next: Option<(&str, u16)>,
        cache: Option<u64>,
    ) -> (ServerLine, String) {
        let tier = TierPlan {
            name: "t".into(),
            program,
            cache,
            memory: None,
            sendfile: None,
            start: Some("exec server".into()),
        };
        let place = ServerPlace {
            address: "10.0.0.1",
            port: 8080,
            next,
            content: Path::new("/content"),
            own,
            clients: 16,
        };
        let line = program.configure(&tier, &place).unwrap();
        let text = line
            .configuration
            .as_ref()
            .map(|path| fs::read_to_string(path).unwrap());
        (line, text.unwrap_or_default())
    }

    #[test]
    fn every_program_listens_and_asks_the_next_tier() {
        use ServerProgram::{Apache, Command, Haproxy, Nginx, Squid, Varnish};
        for program in [Nginx, Varnish, Apache, Haproxy, Squid, Command] {
            let own = tempfile::tempdir().unwrap();
            let (line, text) = configured(program, own.path(), Some(("10.0.0.2", 8081)), Some(64 << 20));
            let all = format!("{text} {:?} {:?}", line.words, line.variables);
            for part in ["10.0.0.1", "8080", "10.0.0.2", "8081"] {
                assert!(all.contains(part), "{program:?} without {part}: {all}");
            }
            assert_eq!(program.installed().is_some(), program != Command);
        }
    }

    #[test]
    fn servers_of_files_know_the_content() {
        for program in [
            ServerProgram::Nginx,
            ServerProgram::Apache,
            ServerProgram::Command,
        ] {
            let own = tempfile::tempdir().unwrap();
            let (line, text) = configured(program, own.path(), None, None);
            let all = format!("{text} {:?}", line.variables);
            assert!(all.contains("/content"), "{program:?}: {all}");
        }
    }
}
