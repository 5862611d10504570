//! `cargo xtask clauses`: lists which code fulfils which clause of an RFC, and
//! which test proves it.
//!
//! Code and tests cite a clause on a line of its own, `//= RFC 9293 §3.10.7.4`. A
//! remark in brackets names a part of it: `//= RFC 9293 §3.10.7.4 (fifth, check the
//! ACK field)`. Packet scripts use `#= RFC 9293 §3.10.7.4`. These citations alone
//! make the table in docs/rfc-clauses.md.

use crate::shell::root;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/rfc-clauses.md";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if the table differs from the citations.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    /// The arguments of a check.
    pub(crate) fn checking() -> Self {
        Self { check: true }
    }
}

/// Writes the table, or checks that it is up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let table = render(&collect(root())?);
    let path = root().join(TABLE);
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    if stands == table {
        eprintln!("{TABLE} is up to date");
        return Ok(());
    }
    if arguments.check {
        bail!("{TABLE} is stale; `cargo xtask clauses` writes it anew");
    }
    std::fs::create_dir_all(path.parent().context("the table lies in a directory")?)?;
    std::fs::write(&path, table)?;
    eprintln!("{TABLE} written");
    Ok(())
}

/// A section or appendix of an RFC, ordered as in the RFC's contents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Clause {
    rfc: u32,
    /// Numbers before letters, so that §3.2 precedes §3.10 and appendices come
    /// last.
    order: Vec<(u32, String)>,
    text: String,
}

impl Clause {
    /// Parses the text behind `//= `.
    fn parse(citation: &str) -> Option<Self> {
        let citation = citation.strip_prefix("RFC ")?;
        // Old RFCs have no numbered sections.
        let (rfc, text) = citation.split_once(' ').unwrap_or((citation, ""));
        let rfc = rfc.parse().ok()?;
        if text.is_empty() {
            return Some(Self {
                rfc,
                order: Vec::new(),
                text: "(all of it)".to_owned(),
            });
        }
        let number = text
            .strip_prefix('§')
            .or_else(|| text.strip_prefix("appendix "))?;
        let well_formed = number.split('.').all(|part| {
            !part.is_empty() && part.len() <= 4 && part.chars().all(|c| c.is_ascii_alphanumeric())
        });
        let order = number.split('.').map(|part| match part.parse() {
            Ok(value) => (value, String::new()),
            Err(_) => (u32::MAX, part.to_owned()),
        });
        well_formed.then(|| Self {
            rfc,
            order: order.collect(),
            text: text.to_owned(),
        })
    }
}

/// All citations of one clause.
#[derive(Debug, Default, PartialEq)]
struct Places {
    /// Source files, each with remarks on the fulfilled parts of the clause.
    code: BTreeMap<String, BTreeSet<String>>,
    /// `(file, function)`; the function is empty for a packet script.
    tests: BTreeSet<(String, String)>,
}

type Table = BTreeMap<Clause, Places>;

fn collect(root: &Path) -> Result<Table> {
    let mut table = Table::new();
    for file in cited_files(&root.join("crates"))? {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
        read_file(&name, &text, &mut table)?;
    }
    Ok(table)
}

/// Sources and packet scripts under a directory, in a fixed order.
fn cited_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(cited_files(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "pkt")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(name: &str, text: &str, table: &mut Table) -> Result<()> {
    let script = name.ends_with(".pkt");
    let whole_file_tests = script || name.contains("/tests/") || name.ends_with("/tests.rs");
    let mut in_tests = whole_file_tests;
    let mut function = String::new();
    let lines: Vec<_> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim();
        // Tests beside their source are the last part of a file.
        in_tests |= line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        if let Some(found) = function_name(line) {
            function = found.to_owned();
        }
        let marker = if script { "#= " } else { "//= " };
        let Some(citation) = line.strip_prefix(marker) else {
            continue;
        };
        let (citation, remark) = citation.split_once(" (").unwrap_or((citation, ""));
        let Some(clause) = Clause::parse(citation.trim()) else {
            bail!("{name}:{}: cannot read the citation `{line}`", index + 1);
        };
        let places = table.entry(clause).or_default();
        if script {
            places.tests.insert((name.to_owned(), String::new()));
        } else if in_tests {
            // A citation above a test function belongs to the function below it.
            let below = lines[index + 1..].iter().map(|line| line.trim());
            let owner = owner_below(below).unwrap_or(&function);
            places.tests.insert((name.to_owned(), owner.to_owned()));
        } else {
            let remarks = places.code.entry(name.to_owned()).or_default();
            remarks.extend(
                Some(remark.strip_suffix(')').unwrap_or(remark).to_owned())
                    .filter(|remark| !remark.is_empty()),
            );
        }
    }
    Ok(())
}

/// Returns the function that the surrounding attributes and comments belong to.
fn owner_below<'a>(lines: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    for line in lines {
        if let Some(name) = function_name(line) {
            return Some(name);
        }
        if !line.starts_with("//") && !line.starts_with("#[") {
            return None;
        }
    }
    None
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub(")
    });
    (words.next() == Some("fn"))
        .then(|| words.next()?.split(['(', '<']).next())
        .flatten()
}

fn render(table: &Table) -> String {
    let mut out = String::from(
        "# RFC clauses\n\n\
         <!-- Made by `cargo xtask clauses` from the citations in code and tests. Do not edit. -->\n\n\
         Which clause is fulfilled where, and which test shows it. A dash says that there is none.\n",
    );
    let tested = table.values().filter(|places| !places.tests.is_empty()).count();
    let _ = writeln!(
        out,
        "\n{} clauses are cited, {tested} of them by tests.",
        table.len()
    );
    let mut rfc = 0;
    for (clause, places) in table {
        if clause.rfc != rfc {
            rfc = clause.rfc;
            let _ = write!(
                out,
                "\n## RFC {rfc}{}\n\n",
                title(rfc).map_or(String::new(), |t| format!(": {t}"))
            );
            out.push_str("| clause | implemented in | tested by |\n| --- | --- | --- |\n");
        }
        let code = places
            .code
            .iter()
            .map(|(file, remarks)| with_remarks(link(file, ""), remarks));
        let tests = places.tests.iter().map(|(file, function)| link(file, function));
        let _ = writeln!(out, "| {} | {} | {} |", clause.text, cell(code), cell(tests));
    }
    out
}

fn cell(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        "—".to_owned()
    } else {
        items.join("<br>")
    }
}

fn with_remarks(link: String, remarks: &BTreeSet<String>) -> String {
    let escaped = |remark: &String| {
        remark
            .replace('|', "\\|")
            .replace('<', "&lt;")
            .replace('*', "\\*")
    };
    let remarks: Vec<_> = remarks.iter().map(escaped).collect();
    if remarks.is_empty() {
        link
    } else {
        format!("{link}: {}", remarks.join("; "))
    }
}

fn link(file: &str, function: &str) -> String {
    let short = file.trim_start_matches("crates/");
    if function.is_empty() {
        format!("[{short}](../{file})")
    } else {
        format!("[{short}](../{file})::`{function}`")
    }
}

/// Returns the subject of an RFC that concerns a TCP/IP stack.
fn title(rfc: u32) -> Option<&'static str> {
    Some(match rfc {
        768 => "User Datagram Protocol",
        791 => "Internet Protocol",
        792 => "Internet Control Message Protocol",
        815 => "IP datagram reassembly algorithms",
        826 => "Ethernet address resolution (ARP)",
        894 => "IP over Ethernet",
        1071 | 1624 => "Computation of the Internet checksum",
        1112 => "IP multicasting",
        1122 => "Requirements for Internet hosts",
        1191 => "Path MTU discovery",
        1337 => "TIME-WAIT assassination",
        1812 => "Requirements for IPv4 routers",
        1858 | 3128 => "Tiny-fragment attacks",
        2018 => "TCP selective acknowledgement",
        2464 => "IPv6 over Ethernet",
        2883 => "Duplicate SACK",
        3042 => "Limited transmit",
        3168 => "Explicit congestion notification",
        3465 => "Appropriate byte counting",
        3522 => "Eifel detection",
        4015 => "Eifel response",
        4291 => "IPv6 addressing",
        4443 => "ICMPv6",
        4861 => "Neighbour discovery",
        4862 => "IPv6 stateless address autoconfiguration",
        4987 => "SYN flooding",
        5227 => "IPv4 address conflict detection",
        5461 | 5927 => "ICMP attacks and soft errors",
        5482 => "TCP user timeout option",
        5681 => "TCP congestion control",
        5722 => "Overlapping IPv6 fragments",
        5961 => "Blind in-window attacks",
        6056 => "Ephemeral ports",
        6093 => "TCP urgent data",
        6191 => "TIME-WAIT and timestamps",
        6298 => "Retransmission timer",
        6528 => "Initial sequence numbers",
        6582 => "NewReno",
        6633 => "Deprecation of source quench",
        6675 => "SACK-based loss recovery",
        6691 => "TCP options and MSS",
        6864 => "IPv4 ID field",
        6928 => "Initial window",
        6937 => "Proportional rate reduction",
        6980 => "Fragmented neighbour discovery",
        7323 => "TCP extensions for high performance",
        7661 => "Congestion window validation",
        8200 => "IPv6",
        8201 => "Path MTU discovery for IPv6",
        8504 => "IPv6 node requirements",
        8985 => "RACK-TLP loss detection",
        9293 => "Transmission Control Protocol",
        9406 => "HyStart++",
        9438 => "CUBIC",
        9937 => "Proportional rate reduction",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_sort_in_order_of_rfc() {
        let parse = |text| Clause::parse(text).expect("well-formed");
        assert!(parse("RFC 9293 §3.2") < parse("RFC 9293 §3.10"));
        assert!(parse("RFC 9293 §3.10") < parse("RFC 9293 §3.10.7.4"));
        assert!(parse("RFC 4291 §2.5") < parse("RFC 4291 appendix A"));
        assert_eq!(Clause::parse("RFC9293 §3"), None);
        assert_eq!(Clause::parse("RFC 9293 3.2"), None);
        assert_eq!(Clause::parse("RFC 9293 §3.2, first"), None);
        assert_eq!(Clause::parse("RFC 9293 §"), None);
        assert_eq!(parse("RFC 826").text, "(all of it)");
    }

    #[test]
    fn citations_in_code_and_tests_are_told_apart() {
        let text = "fn code() {\n    //= RFC 1 §2 (first (of two))\n}\n#[cfg(test)]\nmod tests {\n    //= RFC 1 §2\n    #[test]\n\
                    \x20   fn above() {}\n    fn inside() {\n        //= RFC 1 §2\n        let x = 1;\n    }\n}\n";
        let mut table = Table::new();
        read_file("crates/a/src/b.rs", text, &mut table).expect("readable");
        let places = &table[&Clause::parse("RFC 1 §2").expect("well-formed")];
        assert!(places.code["crates/a/src/b.rs"].contains("first (of two)"));
        let functions: Vec<_> = places
            .tests
            .iter()
            .map(|(_, function)| function.as_str())
            .collect();
        assert_eq!(functions, ["above", "inside"]);
        assert!(read_file("crates/a/src/b.rs", "//= RFC nonsense\n", &mut table).is_err());
    }

    #[test]
    fn citations_in_scripts_count_as_tests() {
        let mut table = Table::new();
        read_file("crates/sim/tests/close.pkt", "#= RFC 9293 §3.6\n", &mut table).expect("readable");
        assert!(
            render(&table).contains("| §3.6 | — | [sim/tests/close.pkt](../crates/sim/tests/close.pkt) |")
        );
    }
}
