//! A deployment as a candidate of a laboratory plan: a stack, tiers, and what their files lie on.
//!
//! A plan's workload says what clients ask. Both together are a plan of a site, as
//! `toehold site up` takes it.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toehold_node::settings::parse_bytes;

use super::deployment::{Deployment, SiteStack};
use super::servers::ServerProgram;
use super::storage::StoragePlan;
use crate::program::Program;
use crate::workload::{SiteContent, Workload};

/// The name of a site that the laboratory brings up.
const NAME: &str = "lab";

/// The table of a deployment in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SiteCandidate {
    /// What carries its connections.
    #[serde(default = "kernel")]
    pub stack: SiteStack,
    /// The tier that answers clients, if it is not the web tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<CandidateTier>,
    /// The tier with the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<CandidateTier>,
    /// What the files lie on; without it, the directory of sites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StoragePlan>,
}

fn kernel() -> SiteStack {
    SiteStack::Kernel
}

/// One tier of a deployment in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CandidateTier {
    /// Its server.
    pub program: ServerProgram,
    /// Bytes of its cache, before the workload's scale divides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Bytes of memory that are left for files, before the workload's scale divides them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Whether files go out by `sendfile`; as the program does by itself without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sendfile: Option<bool>,
    /// The line of a user's own server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

impl SiteCandidate {
    /// Its tiers by name, the first of which answers clients.
    fn tiers(&self) -> impl Iterator<Item = (&'static str, &CandidateTier)> {
        let tiers = [("proxy", &self.proxy), ("web", &self.web)];
        tiers
            .into_iter()
            .filter_map(|(name, tier)| Some((name, tier.as_ref()?)))
    }

    /// Whether it can run a workload.
    ///
    /// # Errors
    ///
    /// What it lacks, and what to write.
    pub(crate) fn check(&self, workload: &Workload) -> Result<(), String> {
        if let Some(storage) = &self.storage {
            storage.check().map_err(|reason| format!("`storage`: {reason}"))?;
        }
        if workload.is_of_files() {
            let reason =
                "a file needs `storage`, such as storage = { file-system = \"ext4\", disk = \"ide\" }";
            return self.storage.map(drop).ok_or_else(|| reason.to_owned());
        }
        if !workload.is_of_sites() {
            return Err(format!(
                "a deployment cannot be measured with `{}`; it takes `site`, `file-read` or `file-write`",
                workload.kind()
            ));
        }
        if self.web.is_none() {
            return Err("a site needs a tier `web`, such as web = { program = \"apache\" }".into());
        }
        let text = self.site_plan(workload, [0, 0], Some(Path::new("trace")))?;
        let parsed = Deployment::parse(Path::new("plan"), &text);
        parsed.map(drop).map_err(|error| error.reason)
    }

    /// The plan of a site for a workload, whose servers and clients have a core each.
    ///
    /// # Errors
    ///
    /// If a number of bytes is none, if the scale leaves nothing of it, or without a trace that the
    /// workload follows.
    pub(super) fn site_plan(
        &self,
        workload: &Workload,
        cores: [usize; 2],
        trace: Option<&Path>,
    ) -> Result<String, String> {
        let Workload::Site {
            content,
            alpha,
            clients,
            scale,
            ..
        } = workload
        else {
            return Err(format!("`{}` asks no site", workload.kind()));
        };
        let mut text = format!(
            "name = \"{NAME}\"\nstack = \"{}\"\nclients = {clients}\ncores = [{}, {}]\n\n\
             [content]\nscale = {scale}\n",
            self.stack.name(),
            cores[0],
            cores[1],
        );
        match (content, trace) {
            (SiteContent::Class(class), _) => {
                let alpha = f64::from(*alpha);
                text.push_str(&format!("class = {class}\nalpha = {alpha:?}\n"));
            }
            (SiteContent::WorldCup, Some(trace)) => {
                let trace = serde_json::Value::from(trace.display().to_string());
                text.push_str(&format!("trace = {trace}\n"));
            }
            (SiteContent::WorldCup, None) => {
                return Err("the World Cup trace is missing: name a log of it with --trace".into());
            }
        }
        if let Some(storage) = &self.storage {
            text.push_str(&storage.table());
        }
        for (name, tier) in self.tiers() {
            tier.write(name, *scale, &mut text)
                .map_err(|reason| format!("tier {name}: {reason}"))?;
        }
        Ok(text)
    }

    /// Programs that it needs, with the Debian packages that have them.
    pub fn programs(&self) -> Vec<Program> {
        let of_tiers = self.tiers().filter_map(|(_, tier)| tier.program.installed());
        let of_storage = self.storage.iter().flat_map(StoragePlan::programs).copied();
        of_tiers.chain(of_storage).collect()
    }
}

impl CandidateTier {
    /// Appends the table of the tier to a site's plan.
    fn write(&self, name: &str, scale: u32, text: &mut String) -> Result<(), String> {
        let mut line = |field: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{field} = {value}");
        };
        line("\n[[tier]]\nname", &format!("\"{name}\""));
        line("program", &format!("\"{}\"", self.program.name()));
        for (field, bytes) in [("cache", &self.cache), ("memory", &self.memory)] {
            let Some(bytes) = bytes else { continue };
            let whole = parse_bytes(bytes).ok_or_else(|| {
                format!("`{field}` is `{bytes}`: write a number with K, M, G or T behind it")
            })?;
            line(field, &format!("\"{}\"", whole / u64::from(scale.max(1))));
        }
        if let Some(sendfile) = self.sendfile {
            line("sendfile", &sendfile.to_string());
        }
        if let Some(start) = &self.start {
            // Strings of JSON are strings of TOML.
            line("start", &serde_json::Value::from(start.as_str()).to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Cell;

    fn workload(scale: u32) -> Workload {
        let text = format!(
            r#"{{"kind": "site", "content": "class1", "alpha": 1.0, "clients": 4, "scale": {scale}}}"#
        );
        serde_json::from_str::<Cell>(&text).unwrap().workload
    }

    fn candidate(text: &str) -> SiteCandidate {
        toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    const TWO: &str = "stack = \"kernel-veth\"
        proxy = { program = \"varnish\", cache = \"64M\" }
        web = { program = \"apache\", memory = \"400M\", sendfile = false }";

    #[test]
    fn plan_of_a_site_has_scaled_caches() {
        let text = candidate(TWO).site_plan(&workload(8), [0, 1], None).unwrap();
        let site = Deployment::parse(Path::new("t"), &text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(
            (site.stack, site.clients, site.cores),
            (SiteStack::Kernel, 4, Some([0, 1]))
        );
        assert_eq!(site.tiers[0].cache, Some(8 << 20));
        assert_eq!(site.tiers[1].memory, Some(50 << 20));
        assert_eq!(site.tiers[1].sendfile, Some(false));
        assert_eq!(candidate(TWO).check(&workload(8)), Ok(()));
    }

    #[test]
    fn line_of_a_server_is_kept_as_it_is() {
        let own = candidate("web = { program = \"command\", start = 'exec x --say \"a\\b\"' }");
        let text = own.site_plan(&workload(1), [0, 0], None).unwrap();
        let site = Deployment::parse(Path::new("t"), &text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(site.tiers[0].start.as_deref(), Some("exec x --say \"a\\b\""));
    }

    #[test]
    fn deployment_that_cannot_be_is_explained() {
        let said = |text: &str, scale| candidate(text).check(&workload(scale)).unwrap_err();
        assert!(said("storage = { file-system = \"ext4\" }", 1).contains("needs a disk"));
        assert!(said("stack = \"direct\"", 1).contains("needs a tier `web`"));
        assert!(said("web = { program = \"varnish\", cache = \"64M\" }", 1).contains("serves no files"));
        assert!(
            said(TWO, 100).contains("at least 1M"),
            "nothing is left of the cache"
        );
        let text = TWO.replace("64M", "many");
        assert!(said(&text, 1).contains("write a number"));
    }
}
