//! A deployment: a site's tiers in order, their stack and their content, read from a plan file.
//!
//! The first tier answers clients. Each tier but the last asks the next one; the last one has the
//! content. All mistakes in a plan are found here, and reported with their line.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toehold_node::settings::parse_bytes;
use toml::Spanned;

use super::content::{ContentClass, ContentSource, MOST_CONTENT_SCALE};
use super::servers::ServerProgram;
use super::storage::StoragePlan;
use crate::experiment::{PlanFileError, Reader, plain};

/// Most tiers of a site.
pub(super) const MOST_TIERS: usize = 8;

/// Longest name of a site or a tier.
const LONGEST_NAME: usize = 24;

/// Names of tiers that the site itself uses.
const OWN_NAMES: [&str; 2] = ["bridge", "clients"];

/// Most clients of a load.
pub const MOST_CLIENTS: u8 = 250;

/// Least memory for files, in bytes.
const LEAST_MEMORY: u64 = 1 << 20;

/// What carries the connections of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteStack {
    /// Nodes with direct connections.
    Direct,
    /// Nodes whose TCP runs adaptively.
    Adaptive,
    /// Nodes whose TCP runs in their programs.
    Inline,
    /// Nodes whose TCP runs in their engines.
    Engine,
    /// The kernel's TCP, between network namespaces on a bridge.
    #[serde(alias = "kernel-veth")]
    Kernel,
}

impl SiteStack {
    /// Its name in plans of sites.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Adaptive => "adaptive",
            Self::Inline => "inline",
            Self::Engine => "engine",
            Self::Kernel => "kernel",
        }
    }

    /// The arguments of `toehold up` for a node; `None` without nodes.
    pub(super) fn node_arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Direct => Some(&["--direct", "yes"]),
            Self::Adaptive => Some(&["--direct", "no", "--placement", "adaptive"]),
            Self::Inline => Some(&["--direct", "no", "--placement", "inline"]),
            Self::Engine => Some(&["--direct", "no", "--placement", "engine"]),
            Self::Kernel => None,
        }
    }
}

/// One tier of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierPlan {
    /// Its name, which is also the name of its node.
    pub name: String,
    /// Its server.
    pub program: ServerProgram,
    /// Bytes of its cache, if it has one.
    pub cache: Option<u64>,
    /// Bytes of memory that are left for files, if that is bounded.
    pub memory: Option<u64>,
    /// Whether files go out by `sendfile`; as the program does by itself without this.
    pub sendfile: Option<bool>,
    /// The line of a user's own server.
    pub start: Option<String>,
}

/// A deployment that can be brought up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployment {
    /// The site's name.
    pub name: String,
    /// What carries its connections.
    pub stack: SiteStack,
    /// Most clients of a load.
    pub clients: u8,
    /// The cores of the tiers and of the clients, if they are bound to some.
    pub cores: Option<[usize; 2]>,
    /// What it serves.
    pub content: ContentSource,
    /// What the content lies on, if not on the directory of sites.
    pub storage: Option<StoragePlan>,
    /// Its tiers, the first of which answers clients.
    pub tiers: Vec<TierPlan>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SiteFile {
    name: Spanned<String>,
    stack: SiteStack,
    clients: Option<Spanned<u8>>,
    cores: Option<[usize; 2]>,
    content: Spanned<ContentTable>,
    storage: Option<Spanned<StoragePlan>>,
    #[serde(default)]
    tier: Vec<Spanned<TierTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ContentTable {
    class: Option<Spanned<u64>>,
    trace: Option<Spanned<PathBuf>>,
    scale: Option<Spanned<u32>>,
    directory: Option<Spanned<PathBuf>>,
    log: Option<Spanned<PathBuf>>,
    alpha: Option<Spanned<f64>>,
    seed: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TierTable {
    name: Spanned<String>,
    program: ServerProgram,
    cache: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    sendfile: Option<Spanned<bool>>,
    start: Option<Spanned<String>>,
}

impl Deployment {
    /// Parses the text of a plan. `origin` is its file: paths in the plan begin at its directory.
    ///
    /// # Errors
    ///
    /// The first mistake, with its line and what to do about it.
    pub fn parse(origin: &Path, text: &str) -> Result<Self, PlanFileError> {
        let name = origin.display().to_string();
        let reader = Reader { origin: &name, text };
        let file: SiteFile = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(0, |span| span.start);
            reader.error(place, plain(error.message()))
        })?;
        check_name(&file.name, &reader)?;
        let clients = match &file.clients {
            Some(clients) if !(1..=MOST_CLIENTS).contains(clients.get_ref()) => {
                return Err(reader.at(clients, format!("`clients` is 1 to {MOST_CLIENTS}")));
            }
            Some(clients) => *clients.get_ref(),
            None => 16,
        };
        // Programs in rooms have another working directory.
        let whole = std::path::absolute(origin).unwrap_or_else(|_| origin.to_owned());
        let above = whole.parent().unwrap_or(Path::new("/"));
        let content = content_of(&file.content, above, &reader)?;
        let tiers = tiers_of(&file, &reader)?;
        let storage = storage_of(&file, &content, &reader)?;
        Ok(Self {
            name: file.name.into_inner(),
            stack: file.stack,
            clients,
            cores: file.cores,
            content,
            storage,
            tiers,
        })
    }
}

/// Names become those of nodes, directories and control groups.
fn check_name(name: &Spanned<String>, reader: &Reader<'_>) -> Result<(), PlanFileError> {
    if is_name(name.get_ref()) {
        return Ok(());
    }
    let reason = format!(
        "`{}` cannot be a name: write 1 to {LONGEST_NAME} letters a to z, digits and -, a letter first",
        name.get_ref()
    );
    Err(reader.at(name, reason))
}

/// Whether a text can be the name of a site or of a tier.
pub(super) fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LONGEST_NAME
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(is_allowed)
}

fn content_of(
    table: &Spanned<ContentTable>,
    above: &Path,
    reader: &Reader<'_>,
) -> Result<ContentSource, PlanFileError> {
    let content = table.get_ref();
    if let Some(alpha) = content
        .alpha
        .as_ref()
        .filter(|alpha| !(0.0..=5.0).contains(alpha.get_ref()))
    {
        return Err(reader.at(alpha, "`alpha` is 0 to 5"));
    }
    if let Some(trace) = &content.trace {
        if content.class.is_some() || content.directory.is_some() || content.log.is_some() {
            return Err(reader.at(
                trace,
                "a `trace` has files and requests: leave `class`, `directory` and `log` out",
            ));
        }
        if let Some(alpha) = &content.alpha {
            return Err(reader.at(alpha, "a `trace` says what is popular: leave `alpha` out"));
        }
        return Ok(ContentSource::Trace {
            log: above.join(trace.get_ref()),
            scale: scale_of(content, reader)?,
            seed: content.seed.unwrap_or(1),
        });
    }
    let alpha = content.alpha.as_ref().map_or(0.9, |alpha| *alpha.get_ref());
    let seed = content.seed.unwrap_or(1);
    match (&content.class, &content.directory) {
        (Some(class), None) => {
            if let Some(log) = &content.log {
                return Err(reader.at(log, "a `log` is for a `directory`: a class has no paths"));
            }
            let number = *class.get_ref();
            let known = ContentClass::numbered(number);
            let unknown = || reader.at(class, format!("there is no class {number}: write 0 to 4"));
            Ok(ContentSource::Class {
                class: known.ok_or_else(unknown)?,
                scale: scale_of(content, reader)?,
                alpha,
                seed,
            })
        }
        (None, Some(directory)) => {
            if let Some(scale) = &content.scale {
                return Err(reader.at(
                    scale,
                    "`scale` is for a `class`: files of a directory stay as they are",
                ));
            }
            if let (Some(alpha), Some(_)) = (&content.alpha, &content.log) {
                return Err(reader.at(alpha, "`alpha` and `log` both say what is popular: leave one out"));
            }
            Ok(ContentSource::Directory {
                path: above.join(directory.get_ref()),
                log: content.log.as_ref().map(|log| above.join(log.get_ref())),
                alpha,
                seed,
            })
        }
        _ => Err(reader.at(table, "content is a `class`, 0 to 4, a `directory`, or a `trace`")),
    }
}

fn storage_of(
    file: &SiteFile,
    content: &ContentSource,
    reader: &Reader<'_>,
) -> Result<Option<StoragePlan>, PlanFileError> {
    let Some(storage) = &file.storage else {
        return Ok(None);
    };
    if let ContentSource::Directory { .. } = content {
        let reason = "a `storage` is for a `class` or a `trace`: files of a directory stay where they are";
        return Err(reader.at(storage, reason));
    }
    let checked = storage.get_ref().check();
    checked.map_err(|reason| reader.at(storage, reason))?;
    Ok(Some(*storage.get_ref()))
}

fn scale_of(content: &ContentTable, reader: &Reader<'_>) -> Result<u32, PlanFileError> {
    match &content.scale {
        Some(scale) if !(1..=MOST_CONTENT_SCALE).contains(scale.get_ref()) => {
            let reason = format!(
                "`scale` is 1 to {MOST_CONTENT_SCALE}: the smallest file, of 1 KB, would be empty above"
            );
            Err(reader.at(scale, reason))
        }
        Some(scale) => Ok(*scale.get_ref()),
        None => Ok(1),
    }
}

fn tiers_of(file: &SiteFile, reader: &Reader<'_>) -> Result<Vec<TierPlan>, PlanFileError> {
    if file.tier.is_empty() || file.tier.len() > MOST_TIERS {
        let reason = format!("a site has 1 to {MOST_TIERS} tiers: write a table [[tier]] for each");
        return Err(reader.at(&file.name, reason));
    }
    let mut tiers: Vec<TierPlan> = Vec::new();
    for (number, table) in file.tier.iter().enumerate() {
        let name = &table.get_ref().name;
        check_name(name, reader)?;
        let is_taken = tiers.iter().any(|tier| tier.name == *name.get_ref());
        if is_taken || OWN_NAMES.contains(&name.get_ref().as_str()) {
            return Err(reader.at(
                name,
                format!("the name `{}` is taken: choose another", name.get_ref()),
            ));
        }
        let is_last = number + 1 == file.tier.len();
        tiers.push(tier_of(table, is_last, reader)?);
    }
    Ok(tiers)
}

fn tier_of(
    table: &Spanned<TierTable>,
    is_last: bool,
    reader: &Reader<'_>,
) -> Result<TierPlan, PlanFileError> {
    let tier = table.get_ref();
    let bytes = |field: &Option<Spanned<String>>| {
        let read = |text: &Spanned<String>| {
            let said = parse_bytes(text.get_ref()).filter(|&bytes| bytes >= LEAST_MEMORY);
            said.ok_or_else(|| reader.at(text, "write at least 1M: a number with K, M, G or T behind it"))
        };
        field.as_ref().map(read).transpose()
    };
    let program = tier.program;
    if let Err(reason) = program.check(is_last, tier.cache.is_some(), tier.start.is_some()) {
        let place = match (&tier.cache, &tier.start) {
            (Some(cache), _) if reason.contains("`cache`") => cache.span().start,
            (_, Some(start)) if reason.contains("`start`") => start.span().start,
            _ => tier.name.span().start,
        };
        return Err(reader.error(place, reason));
    }
    if let Some(memory) = tier.memory.as_ref().filter(|_| !is_last) {
        let reason = "`memory` is for files, and only the last tier has files: bound `cache` instead";
        return Err(reader.at(memory, reason));
    }
    if let Some(sendfile) = tier.sendfile.as_ref().filter(|_| !program.has_sendfile(is_last)) {
        let reason = "`sendfile` is for a last tier with nginx or apache: leave it out";
        return Err(reader.at(sendfile, reason));
    }
    Ok(TierPlan {
        name: tier.name.get_ref().clone(),
        program,
        cache: bytes(&tier.cache)?,
        memory: bytes(&tier.memory)?,
        sendfile: tier.sendfile.as_ref().map(|sendfile| *sendfile.get_ref()),
        start: tier.start.as_ref().map(|start| start.get_ref().clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"name = "shop"
stack = "direct"

[content]
class = 1
scale = 8

[[tier]]
name = "proxy"
program = "varnish"
cache = "16M"

[[tier]]
name = "web"
program = "nginx"
memory = "50M"
"#;

    fn parse(text: &str) -> Result<Deployment, String> {
        Deployment::parse(Path::new("/plans/shop.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn plan_gives_tiers_in_order_with_defaults() {
        let plan = parse(PLAN).unwrap();
        assert_eq!(
            (plan.name.as_str(), plan.stack, plan.clients),
            ("shop", SiteStack::Direct, 16)
        );
        let names: Vec<_> = plan.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["proxy", "web"]);
        assert_eq!(plan.tiers[0].cache, Some(16 << 20));
        assert_eq!(plan.tiers[1].memory, Some(50 << 20));
        let class = ContentClass::numbered(1).unwrap();
        let expected = ContentSource::Class {
            class,
            scale: 8,
            alpha: 0.9,
            seed: 1,
        };
        assert_eq!(plan.content, expected);
    }

    #[test]
    fn paths_begin_at_the_directory_of_the_plan() {
        let text = PLAN.replace(
            "class = 1\nscale = 8",
            "directory = \"www\"\nlog = \"/var/log/access.log\"",
        );
        let plan = parse(&text).unwrap();
        let ContentSource::Directory { path, log, .. } = plan.content else {
            panic!("{:?}", plan.content);
        };
        assert_eq!(path, Path::new("/plans/www"));
        assert_eq!(log.unwrap(), Path::new("/var/log/access.log"));
    }

    #[test]
    fn mistakes_are_named_with_line_and_remedy() {
        for (from, to, said) in [
            (
                "scale = 8",
                "scales = 8",
                ":6: unknown field `scales`, expected one of `class`",
            ),
            (
                "\"direct\"",
                "\"fast\"",
                ":2: unknown variant `fast`, expected one of `direct`",
            ),
            (
                "\"shop\"",
                "\"My Shop\"",
                ":1: `My Shop` cannot be a name: write 1 to 24 letters",
            ),
            ("class = 1", "class = 5", ":5: there is no class 5: write 0 to 4"),
            (
                "scale = 8",
                "scale = 2000",
                ":6: `scale` is 1 to 1024: the smallest file",
            ),
            ("scale = 8", "alpha = 9.0", ":6: `alpha` is 0 to 5"),
            ("scale = 8", "log = \"a\"", ":6: a `log` is for a `directory`"),
            (
                "class = 1\n",
                "",
                ":4: content is a `class`, 0 to 4, a `directory`, or a `trace`",
            ),
            ("class = 1", "directory = \"a\"", ":6: `scale` is for a `class`"),
            ("\"web\"", "\"proxy\"", ":14: the name `proxy` is taken"),
            ("\"web\"", "\"clients\"", ":14: the name `clients` is taken"),
            ("\"16M\"", "\"much\"", ":11: write at least 1M"),
            ("cache = \"16M\"", "", ":9: varnish needs a `cache`"),
            (
                "cache = ",
                "memory = \"1M\"\ncache = ",
                ":11: `memory` is for files",
            ),
            (
                "memory = ",
                "cache = \"1M\"\nmemory = ",
                ":16: the last tier has the content",
            ),
            ("\"nginx\"", "\"haproxy\"", ":14: haproxy serves no files"),
            (
                "\"nginx\"",
                "\"command\"",
                ":14: a tier with `program = \"command\"` needs `start`",
            ),
            (
                "memory = ",
                "start = \"x\"\nmemory = ",
                ":16: `start` is for `program = \"command\"`",
            ),
        ] {
            let error = parse(&PLAN.replace(from, to)).unwrap_err();
            assert!(
                error.starts_with("/plans/shop.toml") && error.contains(said),
                "{said}: {error}"
            );
        }
        let (head, _) = PLAN.split_once("[[tier]]").unwrap();
        assert!(parse(head).unwrap_err().contains(":1: a site has 1 to 8 tiers"));
        assert!(
            parse(&format!("clients = 251\n{PLAN}"))
                .unwrap_err()
                .contains(":1: `clients` is 1 to 250")
        );
    }

    #[test]
    fn stacks_have_arguments_that_differ() {
        use SiteStack::{Adaptive, Direct, Engine, Inline, Kernel};
        assert_eq!(Kernel.node_arguments(), None);
        let mut all = [Direct, Adaptive, Inline, Engine].map(|stack| stack.node_arguments().unwrap());
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
