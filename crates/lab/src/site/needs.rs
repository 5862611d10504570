//! What sites need of the machine, and what of that is missing.

use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use serde::Serialize;

use super::content::ContentSource;
use super::deployment::{Deployment, SiteStack};
use super::servers::ServerProgram;
use super::storage::StoragePlan;
use crate::cgroup::ControlGroup;
use crate::programs::find;

/// Programs that every site needs, with their packages.
const FOR_ALL: [(&str, &str); 5] = [
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("mount", "mount"),
    ("find", "findutils"),
];

/// Programs of servers, in the order in which they are listed.
const SERVERS: [ServerProgram; 5] = [
    ServerProgram::Nginx,
    ServerProgram::Varnish,
    ServerProgram::Apache,
    ServerProgram::Haproxy,
    ServerProgram::Squid,
];

/// Something that sites need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SiteNeed {
    /// What it is.
    pub what: String,
    /// What it is for.
    pub purpose: String,
    /// Whether it is here.
    pub is_here: bool,
    /// Whether nothing can be brought up without it. A server that no plan names is not required.
    pub is_required: bool,
    /// What to do if it is missing.
    pub remedy: String,
}

/// What a deployment needs, or without one what sites in general do. `sites` is their directory.
pub fn needs(deployment: Option<&Deployment>, sites: &Path) -> Vec<SiteNeed> {
    let mut needs = vec![
        SiteNeed {
            what: "root".into(),
            purpose: "makes rooms: namespaces and control groups".into(),
            is_here: geteuid().is_root(),
            is_required: true,
            remedy: "run the command with sudo".into(),
        },
        SiteNeed {
            what: "control groups".into(),
            purpose: "bound and count memory and processor time".into(),
            is_here: ControlGroup::named("toehold").is_ok(),
            is_required: true,
            remedy: "mount the hierarchies `memory` and `cpuacct`, or version 2".into(),
        },
    ];
    needs.extend(FOR_ALL.map(|program| program_need(program, "makes rooms", true)));
    let has_bridge = deployment.is_none_or(|deployment| deployment.stack == SiteStack::Kernel);
    if has_bridge {
        let is_required = deployment.is_some();
        needs.push(program_need(
            ("ip", "iproute2"),
            "joins rooms with the stack `kernel`",
            is_required,
        ));
    }
    for server in SERVERS {
        let tiers =
            deployment.map(|deployment| deployment.tiers.iter().filter(|tier| tier.program == server));
        let names = tiers.map(|tiers| tiers.map(|tier| tier.name.clone()).collect::<Vec<_>>());
        let purpose = match &names {
            Some(names) if names.is_empty() => continue,
            Some(names) => format!("serves {}", names.join(" and ")),
            None => format!("serves tiers with program = \"{}\"", server.name()),
        };
        if let Some(program) = server.installed() {
            needs.push(program_need(program, &purpose, names.is_some()));
        }
    }
    let storage = deployment.and_then(|deployment| deployment.storage);
    for program in storage.iter().flat_map(StoragePlan::programs) {
        needs.push(program_need(
            *program,
            "makes the file system of the content",
            true,
        ));
    }
    if let Some(deployment) = deployment {
        needs.push(content_need(&deployment.content, sites));
    }
    needs
}

fn program_need((program, package): (&str, &str), purpose: &str, is_required: bool) -> SiteNeed {
    SiteNeed {
        what: program.to_owned(),
        purpose: purpose.to_owned(),
        is_here: find(program).is_some(),
        is_required,
        remedy: format!("apt-get install {package}"),
    }
}

/// The files of a directory, or room on the disk for those of a class.
fn content_need(content: &ContentSource, sites: &Path) -> SiteNeed {
    let asked = match content {
        ContentSource::Class { .. } => None,
        ContentSource::Directory { .. } | ContentSource::Trace { .. } => Some(content.asked()),
    };
    if let Some(read) = asked {
        return SiteNeed {
            what: "content".into(),
            purpose: "is what the last tier serves".into(),
            is_here: read.is_ok(),
            is_required: true,
            remedy: read.err().map_or_else(String::new, |error| error.to_string()),
        };
    }
    let wanted: u64 = match content {
        ContentSource::Class { class, scale, .. } => class.sizes(*scale).iter().sum(),
        _ => 0,
    };
    // The directory may not be there yet.
    let there = sites
        .ancestors()
        .find(|place| place.is_dir())
        .unwrap_or(Path::new("/"));
    let free = statvfs(there).map_or(0, |about| about.blocks_available() * about.fragment_size());
    SiteNeed {
        what: format!("{} MB of disk", wanted.div_ceil(1_000_000)),
        purpose: format!("keeps the content in {}", sites.display()),
        is_here: free > wanted,
        is_required: true,
        remedy: "free some, choose another directory with --sites, or write a larger `scale`".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(stack: &str) -> Deployment {
        let text = format!(
            "name = \"a\"\nstack = \"{stack}\"\n[content]\nclass = 0\n[[tier]]\nname = \"proxy\"\nprogram = \"haproxy\"\n\
             [[tier]]\nname = \"web\"\nprogram = \"apache\"\n"
        );
        Deployment::parse(Path::new("a.toml"), &text).unwrap()
    }

    #[test]
    fn deployment_needs_its_programs_only() {
        let needed = |stack: &str| {
            let needs = needs(Some(&deployment(stack)), Path::new("/tmp"));
            assert!(
                needs
                    .iter()
                    .all(|need| need.is_required && !need.remedy.is_empty())
            );
            needs.into_iter().map(|need| need.what).collect::<Vec<_>>()
        };
        let direct = needed("direct");
        assert!(
            direct.contains(&"haproxy".to_owned()) && direct.contains(&"apache2".to_owned()),
            "{direct:?}"
        );
        assert!(
            !direct.contains(&"varnishd".to_owned()) && !direct.contains(&"ip".to_owned()),
            "{direct:?}"
        );
        assert!(direct.contains(&"25 MB of disk".to_owned()), "{direct:?}");
        assert!(needed("kernel").contains(&"ip".to_owned()));
    }

    #[test]
    fn servers_are_optional_without_a_deployment() {
        let needs = needs(None, Path::new("/tmp"));
        let varnish = needs.iter().find(|need| need.what == "varnishd").unwrap();
        assert!(!varnish.is_required);
        assert_eq!(varnish.remedy, "apt-get install varnish");
    }
}
