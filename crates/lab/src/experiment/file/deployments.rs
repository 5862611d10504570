//! The deployments of a plan file: each table with what it inherits from others.

use std::collections::BTreeMap;

use toml::{Spanned, Table, Value};

use super::content::{Content, PlanFileError, Reader, plain};
use crate::site::SiteCandidate;
use crate::workload::Cell;

/// Most tables that inherit from one another.
const MOST_BASES: usize = 8;

/// The built-in deployment: one proxy before one web server, as the datacenter paper's tiers.
const SMALL: &str = r#"
proxy = { program = "varnish", cache = "64M" }
web = { program = "apache" }
"#;

/// Names of deployments that are built in.
const BUILT_IN: &str = "small";

/// All deployments of a file, whole.
pub(super) fn of(
    content: &Content,
    reader: &Reader<'_>,
) -> Result<BTreeMap<String, SiteCandidate>, PlanFileError> {
    let mut deployments = BTreeMap::new();
    for (name, table) in &content.deployment {
        let named = content.candidates.get_ref().iter();
        let mut named = named.map(|candidate| candidate.get_ref());
        let is_base = |other: &Spanned<Table>| {
            other.get_ref().get("base").and_then(Value::as_str) == Some(name.as_str())
        };
        if !named.any(|candidate| candidate == name) && !content.deployment.values().any(is_base) {
            let reason = format!("no candidate names the deployment `{name}`: add it to `candidates`");
            return Err(reader.at(table, reason));
        }
        let whole = inherited(content, name, 0).map_err(|reason| reader.at(table, reason))?;
        let candidate: Result<SiteCandidate, _> = Value::Table(whole).try_into();
        let candidate = candidate.map_err(|error| reader.at(table, plain(error.message())))?;
        deployments.insert(name.clone(), candidate);
    }
    Ok(deployments)
}

/// Checks that each deployment can run each workload.
pub(super) fn check(
    content: &Content,
    deployments: &BTreeMap<String, SiteCandidate>,
    cells: &[Cell],
    reader: &Reader<'_>,
) -> Result<(), PlanFileError> {
    for (name, candidate) in deployments {
        let Some(table) = content.deployment.get(name) else {
            continue;
        };
        for cell in cells {
            let checked = candidate.check(&cell.workload);
            checked.map_err(|reason| reader.at(table, format!("deployment `{name}`: {reason}")))?;
        }
    }
    Ok(())
}

/// The table of a deployment, over that of its base.
fn inherited(content: &Content, name: &str, depth: usize) -> Result<Table, String> {
    if depth >= MOST_BASES {
        return Err(format!(
            "`base` of `{name}` does not end: at most {MOST_BASES} inherit from one another"
        ));
    }
    let mut own = match content.deployment.get(name) {
        Some(table) => table.get_ref().clone(),
        None if name == BUILT_IN => return toml::from_str(SMALL).map_err(|error| error.message().to_owned()),
        None => {
            let others: Vec<_> = content.deployment.keys().map(String::as_str).collect();
            let known = [&others[..], &[BUILT_IN]].concat().join(", ");
            return Err(format!(
                "there is no deployment `{name}` to inherit from; there are {known}"
            ));
        }
    };
    match own.remove("base") {
        None => Ok(own),
        Some(Value::String(base)) => {
            let mut whole = inherited(content, &base, depth + 1)?;
            lay_over(&mut whole, own);
            Ok(whole)
        }
        Some(_) => Err("`base` is the name of a deployment".into()),
    }
}

/// Puts the fields of `own` in place of those of `whole`; tables are joined field by field.
fn lay_over(whole: &mut Table, own: Table) {
    for (field, value) in own {
        match (whole.get_mut(&field), value) {
            (Some(Value::Table(inner)), Value::Table(own)) => lay_over(inner, own),
            (_, value) => drop(whole.insert(field, value)),
        }
    }
}
