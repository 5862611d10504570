//! The built-in plans: the files under `experiments/`.

use super::{PlanFile, PlanFileError};

/// Maps names, which are the files' paths, to texts.
macro_rules! plans {
    ($($name:literal)+) => {
        const FILES: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../experiments/", $name, ".toml")),
        )),+];
    };
}

plans! {
    "toe/fig3" "toe/fig4" "toe/fig5a" "toe/fig5b" "toe/fig6a" "toe/fig6b" "toe/fig7" "toe/fig8a"
    "toe/fig8b"
    "ethom/fig5" "ethom/fig6" "ethom/fig7" "ethom/fig8"
    "scale/nginx" "scale/php-fpm" "scale/varnish" "scale/postgresql" "scale/mariadb" "scale/redis"
    "scale/memcached" "scale/concurrency"
    "datacenter/table1" "datacenter/fig3" "datacenter/table3" "datacenter/fig10" "datacenter/fig15"
    "datacenter/site"
    "demux/section3" "demux/section4" "demux/fig4" "demux/fig9"
    "trace/kernel"
}

/// All built-in plans, by the first part of their names. Those of a paper are in the order of its
/// figures.
pub fn all() -> Result<Vec<PlanFile>, PlanFileError> {
    let parse = |(name, text): &(&str, &str)| PlanFile::parse(&format!("experiments/{name}.toml"), text);
    FILES.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_built_in_file_is_valid() {
        let plans = all().unwrap_or_else(|error| panic!("{error}"));
        for (plan, (name, _)) in plans.iter().zip(FILES) {
            assert_eq!(plan.name(), *name);
            assert!(!plan.about.is_empty(), "{name} says what it shows");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let entries = root.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let papers = entries.filter(|path| path.is_dir());
        let files = papers.flat_map(|paper| paper.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        let name = |path: std::path::PathBuf| {
            let name = path.strip_prefix(&root).unwrap().with_extension("");
            name.to_str().unwrap().to_owned()
        };
        let there: BTreeSet<_> = files.map(name).collect();
        let brought: BTreeSet<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(brought, there);
    }

    #[test]
    fn built_in_plans_without_paper_are_valid() {
        for (name, text) in [
            ("example", include_str!("../../../../experiments/example.toml")),
            (
                "generators",
                include_str!("../../../../experiments/generators.toml"),
            ),
        ] {
            let plan = PlanFile::parse(&format!("experiments/{name}.toml"), text);
            assert_eq!(plan.unwrap_or_else(|error| panic!("{error}")).name(), name);
        }
    }
}
