//! Parses a script's text.

use std::time::Duration;

use super::parse_packet::segment;
use super::settings::Setting;
use super::{Call, Event, Line, Script, ScriptError, When};

/// Reads a whole script.
pub(super) fn script(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script {
        settings: Vec::new(),
        lines: Vec::new(),
    };
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        let result = match line.strip_prefix("config ") {
            Some(setting) => Setting::parse(setting.trim()).map(|setting| {
                script.settings.push((number, setting));
            }),
            None => event_line(number, line).map(|line| script.lines.push(line)),
        };
        result.map_err(|message| ScriptError::new(number, message))?;
    }
    Ok(script)
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or("").trim()
}

fn event_line(number: usize, line: &str) -> Result<Line, String> {
    let (time, rest) = line
        .split_once(char::is_whitespace)
        .ok_or_else(|| format!("`{line}` has no event behind its time"))?;
    let when = when(time)?;
    let event = event(rest.trim())?;
    if when == When::Any && !matches!(event, Event::Expect(_)) {
        return Err("only an expected packet may come at any time".into());
    }
    Ok(Line { number, when, event })
}

fn when(text: &str) -> Result<When, String> {
    if text == "*" {
        return Ok(When::Any);
    }
    let span = text
        .strip_prefix('+')
        .ok_or_else(|| format!("`{text}` is no time: write `+SECONDS` or `*`"))?;
    seconds(span).map(When::After)
}

/// Parses a span in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is no number of seconds"))?;
    // Rounds to the nanosecond, whatever the binary fraction is.
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{seconds} s is out of range"))
}

/// Parses a number, decimal or with `0x`. Negative ones wrap.
pub(super) fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    parsed
        .filter(|value| (-(1i64 << 31)..1i64 << 32).contains(value))
        .map(|value| value as u32)
        .ok_or_else(|| format!("`{text}` is no number"))
}

/// Parses `on` or `off`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

fn event(text: &str) -> Result<Event, String> {
    if let Some(packet) = text.strip_prefix('<') {
        return segment(packet.trim()).map(Event::Inject);
    }
    if let Some(packet) = text.strip_prefix('>') {
        return segment(packet.trim()).map(Event::Expect);
    }
    if let Some(flood) = text.strip_prefix("flood ") {
        let (count, packet) = flood
            .trim()
            .split_once(char::is_whitespace)
            .ok_or("`flood` needs a number and a segment")?;
        return Ok(Event::Flood(number(count)?, segment(packet.trim())?));
    }
    call(text).map(Event::Call)
}

fn call(text: &str) -> Result<Call, String> {
    let (text, expected) = match text.split_once("=>") {
        Some((call, expected)) => (call, words(expected)),
        None => (text, Vec::new()),
    };
    let mut words = words(text);
    let mut result_name = None;
    if words.get(1).is_some_and(|word| word == "=") {
        result_name = Some(words.remove(0));
        words.remove(0);
    }
    if words.is_empty() {
        return Err("an event is missing".into());
    }
    let verb = words.remove(0);
    if !super::calls::VERBS.contains(&verb.as_str()) {
        return Err(format!(
            "`{verb}` is no event; there are: {}",
            super::calls::VERBS.join(", ")
        ));
    }
    Ok(Call {
        result_name,
        verb,
        arguments: words,
        expected,
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
