//! A server of the user's: a line for `sh`, which finds in variables what it has to serve and where.

use super::{ServerLine, ServerPlace, TierPlan};

pub(super) fn line(tier: &TierPlan, place: &ServerPlace<'_>) -> ServerLine {
    let start = tier.start.as_deref().unwrap_or_default();
    let next = place.next.map(|(address, port)| format!("{address}:{port}"));
    let variables = vec![
        ("ADDRESS", place.address.to_owned()),
        ("PORT", place.port.to_string()),
        ("CONTENT", place.content.display().to_string()),
        ("NEXT", next.unwrap_or_default()),
        ("DIR", place.own.display().to_string()),
    ];
    ServerLine {
        words: ["sh", "-c", start].map(str::to_owned).to_vec(),
        variables,
        configuration: None,
    }
}
