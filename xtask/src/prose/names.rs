//! Names of types that two crates give to different things.

use super::Breach;
use super::allowances::Allowances;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The types of all crates, each with the crates that declare it.
#[derive(Default)]
pub(super) struct Types(BTreeMap<String, BTreeSet<String>>);

impl Types {
    /// Adds the types that a file declares. Those of tests stay within their file.
    pub(super) fn add(&mut self, file: &Path, area: &str, source: &str) {
        let is_test = file.components().any(|part| {
            ["tests", "tests.rs", "examples", "fuzz_targets"]
                .iter()
                .any(|name| part.as_os_str() == *name)
        });
        if !is_test {
            for name in declared(source) {
                self.0.entry(name).or_default().insert(area.to_owned());
            }
        }
    }

    /// The names that several crates declare without a written reason. They count for the last.
    pub(super) fn breaches(&self, allowances: &Allowances) -> Vec<Breach> {
        let several = self.0.iter().filter(|(_, areas)| areas.len() > 1);
        let several = several.filter(|(name, _)| !allowances.permits_name(name));
        let breaches = several.map(|(name, areas)| Breach {
            area: "crates".to_owned(),
            rule: "name",
            what: format!("{name} is a type in {areas:?}"),
        });
        breaches.collect()
    }
}

/// The types that a file declares before its tests.
fn declared(source: &str) -> impl Iterator<Item = String> {
    let before = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    before.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest.trim_start_matches(|letter| letter != ' ').trim_start(),
            None => line,
        };
        let kinds = ["struct ", "enum ", "trait ", "union "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        let name: String = rest
            .chars()
            .take_while(|letter| letter.is_alphanumeric())
            .collect();
        name.starts_with(char::is_uppercase).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_tests_are_not_declared() {
        let source = "pub(crate) struct A<T> {\npub enum B {\ntrait C: D {}\n// struct X\n#[cfg(test)]\nmod tests {\nstruct E;\n}\n";
        assert_eq!(declared(source).collect::<Vec<_>>(), ["A", "B", "C"]);
    }

    #[test]
    fn name_of_two_crates_is_a_breach() {
        let mut types = Types::default();
        types.add(
            Path::new("crates/a/src/x.rs"),
            "crates/a",
            "struct Place;\nstruct Own;\n",
        );
        types.add(Path::new("crates/b/src/x.rs"), "crates/b", "enum Place {}\n");
        types.add(Path::new("crates/b/tests/x.rs"), "crates/b", "struct Own;\n");
        let found = types.breaches(&Allowances::default());
        assert_eq!(found.len(), 1);
        assert!(found[0].what.starts_with("Place "));
    }
}
