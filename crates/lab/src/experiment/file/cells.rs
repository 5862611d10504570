//! From factors and workloads to cells: every combination of the values.

use std::collections::BTreeMap;

use serde_json::json;
use toml::{Spanned, Value};

use super::content::{Content, PlanFileError, Reader, Values, plain};
use crate::experiment::PlanError;
use crate::site::SiteCandidate;
use crate::testbed;
use crate::workload::{Cell, KINDS, OPTIONAL};

/// Fields of every workload.
const COMMON: [&str; 3] = ["kind", "mtu", "quick"];

/// The written fields of a cell.
type Fields = serde_json::Map<String, serde_json::Value>;

/// Most cells of a plan: more could not be measured in a day.
const MOST: usize = 1000;

pub(super) fn of(
    content: &Content,
    candidates: &[String],
    deployments: &BTreeMap<String, SiteCandidate>,
    reader: &Reader<'_>,
    is_quick: bool,
) -> Result<Vec<Cell>, PlanFileError> {
    let mut cells = Vec::new();
    for workload in &content.workload {
        let fields = workload.get_ref();
        let kind = kind(workload, reader)?;
        let Some((_, takes)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            let all: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            let reason = format!("there is no workload `{kind}`; there are {}", all.join(", "));
            return Err(reader.at(&fields["kind"], reason));
        };
        let is_known = |name: &str| takes.contains(&name) || COMMON.contains(&name);
        if let Some((name, value)) = fields.iter().find(|(name, _)| !is_known(name)) {
            let reason = format!("workload `{kind}` has no `{name}`; it has {}", listed(takes));
            return Err(reader.at(value, reason));
        }
        let is_left_out = match fields.get("quick").map(|quick| (quick, quick.get_ref())) {
            None => false,
            Some((_, Value::Boolean(is_in_it))) => !is_in_it,
            Some((quick, _)) => return Err(reader.at(quick, "`quick` is true or false")),
        };
        if is_quick && is_left_out {
            continue;
        }
        let factors = takes.iter().chain(&["mtu"]);
        let values = factors.filter_map(|name| {
            let values = value(content, fields, name, is_quick);
            match values {
                Some(values) => Some(Ok((*name, values))),
                None if OPTIONAL.contains(name) => None,
                None => {
                    let reason = format!("workload `{kind}` needs `{name}`: say it here or in [factors]");
                    Some(Err(reader.at(workload, reason)))
                }
            }
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        for cell in combinations(&kind, &values, reader)? {
            let checked = match deployments.is_empty() {
                true => check(&cell, &cells, candidates),
                false => differs(&cell, &cells),
            };
            checked.map_err(|reason| reader.at(workload, reason))?;
            cells.push(cell);
        }
    }
    if cells.len() > MOST {
        let reason = format!("{} combinations: at most {MOST} can be measured", cells.len());
        return Err(reader.at(&content.name, reason));
    }
    unused(content, reader)?;
    Ok(cells)
}

/// Whether a cell can be measured, and differs from those before it.
fn differs(cell: &Cell, before: &[Cell]) -> Result<(), String> {
    cell.check().map_err(|error| error.to_string())?;
    if before.iter().any(|other| other.name() == cell.name()) {
        return Err(PlanError::Twice(cell.name()).to_string());
    }
    Ok(())
}

/// Whether a cell differs from those before it, and can be measured by a candidate.
fn check(cell: &Cell, before: &[Cell], candidates: &[String]) -> Result<(), String> {
    differs(cell, before)?;
    if cell.workload.is_of_deployments() {
        return Err(format!(
            "`{}` is measured on deployments: write a table [deployment.NAME] for each candidate",
            cell.workload.kind()
        ));
    }
    let able = testbed::ALL
        .iter()
        .filter(|known| (known.supports)(&cell.workload));
    let able: Vec<_> = able.map(|candidate| candidate.name).collect();
    match candidates.iter().any(|name| able.contains(&name.as_str())) {
        true => Ok(()),
        false => Err(format!(
            "none of the plan's candidates can be measured with `{}`; those that can are {}",
            cell.workload.kind(),
            able.join(", ")
        )),
    }
}

fn kind(workload: &Spanned<Values>, reader: &Reader<'_>) -> Result<String, PlanFileError> {
    match workload.get_ref().get("kind").map(Spanned::get_ref) {
        Some(Value::String(kind)) => Ok(kind.clone()),
        _ => Err(reader.at(workload, "a workload needs a `kind`, such as \"ping-pong\"")),
    }
}

/// The value of a workload's field: its own, otherwise the factor's. In the short form, that of the
/// short form.
fn value<'a>(
    content: &'a Content,
    fields: &'a Values,
    name: &str,
    is_quick: bool,
) -> Option<&'a Spanned<Value>> {
    let quick = content.quick.factors.get(name).filter(|_| is_quick);
    fields.get(name).or(quick).or_else(|| content.factors.get(name))
}

fn combinations(
    kind: &str,
    values: &[(&str, &Spanned<Value>)],
    reader: &Reader<'_>,
) -> Result<Vec<Cell>, PlanFileError> {
    let mut all = vec![Fields::from_iter([("kind".to_owned(), json!(kind))])];
    for (name, written) in values {
        let list = match written.get_ref() {
            Value::Array(list) if list.is_empty() => {
                return Err(reader.at(written, format!("`{name}` has no values")));
            }
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut longer = Vec::with_capacity(all.len() * list.len());
        for fields in &all {
            for value in list {
                let mut fields = fields.clone();
                let value = json(name, value);
                let value = value.ok_or_else(|| reader.at(written, format!("`{name}` is no such value")))?;
                fields.insert(name.replace('-', "_"), value);
                longer.push(fields);
            }
        }
        all = longer;
    }
    let cell = |fields: Fields| {
        cell(&fields).map_err(|error| {
            let place = at_fault(&fields, values, &error).map_or(0, |written| written.span().start);
            reader.error(place, format!("workload `{kind}`: {}", plain(&error)))
        })
    };
    all.into_iter().map(cell).collect()
}

fn cell(fields: &Fields) -> Result<Cell, String> {
    serde_json::from_value(fields.clone().into()).map_err(|error| error.to_string())
}

/// The field that an error is about: with this field alone, the error is the same.
fn at_fault<'a>(
    fields: &Fields,
    values: &[(&str, &'a Spanned<Value>)],
    error: &str,
) -> Option<&'a Spanned<Value>> {
    let is_at_fault = |name: &str| {
        let name = name.replace('-', "_");
        let alone = fields
            .iter()
            .filter(|(field, _)| **field == name || *field == "kind");
        let alone = alone.map(|(field, value)| (field.clone(), value.clone()));
        cell(&alone.collect()).is_err_and(|other| other == error)
    };
    let found = values.iter().find(|(name, _)| is_at_fault(name));
    found.or(values.last()).map(|(_, written)| *written)
}

/// Sizes are texts, and may be written as numbers of bytes.
fn json(name: &str, value: &Value) -> Option<serde_json::Value> {
    match value {
        Value::Integer(bytes) if name == "size" => Some(json!(bytes.to_string())),
        Value::Integer(count) => Some(json!(count)),
        Value::Float(number) => Some(json!(number)),
        Value::String(text) => Some(json!(text)),
        Value::Boolean(truth) => Some(json!(truth)),
        _ => None,
    }
}

/// A factor that no workload takes is a mistake.
fn unused(content: &Content, reader: &Reader<'_>) -> Result<(), PlanFileError> {
    let kinds = content
        .workload
        .iter()
        .filter_map(|workload| kind(workload, reader).ok());
    let taken: Vec<_> = kinds
        .filter_map(|kind| KINDS.iter().find(|(name, _)| *name == kind))
        .flat_map(|(_, takes)| takes.iter())
        .collect();
    let mut factors = content.factors.iter().chain(&content.quick.factors);
    let unused =
        factors.find(|(name, _)| *name != "mtu" && !taken.iter().any(|taken| **taken == name.as_str()));
    unused.map_or(Ok(()), |(name, value)| {
        Err(reader.at(
            value,
            format!("no workload of this plan takes the factor `{name}`"),
        ))
    })
}

fn listed(takes: &[&str]) -> String {
    let all: Vec<_> = takes.iter().chain(&["mtu"]).copied().collect();
    all.join(", ")
}
