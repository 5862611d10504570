//! Parses a packet's text into a [`Segment`].

use toehold_wire::tcp::{FastOpen, Flags};

use super::parse::number;
use super::{Flow, OptionList, Segment};

/// Parses everything behind `<` or `>`.
pub(super) fn segment(text: &str) -> Result<Segment, String> {
    let (fixed, options) = match text.split_once('<') {
        Some((fixed, options)) => {
            let inner = options
                .trim_end()
                .strip_suffix('>')
                .ok_or("the options end without `>`")?;
            (fixed, option_list(inner)?)
        }
        None => (text, OptionList::default()),
    };
    let mut words = fixed.split_whitespace().peekable();
    let flow = match words.next_if(|word| word.starts_with('@')) {
        Some(word) => flow(&word[1..]),
        None => Flow::Default,
    };
    let ecn = words.next_if(|word| word.starts_with('[')).map(ecn).transpose()?;
    let flags = flags(words.next().ok_or("a packet needs flags")?)?;
    let (seq, len) = range(words.next().ok_or("a packet needs sequence numbers")?, flags)?;
    let mut segment = Segment {
        flow,
        ecn,
        flags,
        seq,
        len,
        ack: None,
        window: None,
        urgent: None,
        options,
    };
    while let Some(name) = words.next() {
        let value = number(words.next().ok_or_else(|| format!("`{name}` needs a number"))?)?;
        let narrow = || u16::try_from(value).map_err(|_| format!("{value} does not fit into 16 bits"));
        match name {
            "ack" => segment.ack = Some(value),
            "win" => segment.window = Some(narrow()?),
            "urg" => segment.urgent = Some(narrow()?),
            _ => return Err(format!("`{name}` is neither `ack`, `win` nor `urg`")),
        }
    }
    if flags.contains(Flags::ACK) != segment.ack.is_some() {
        return Err("`.` among the flags and `ack` go together".into());
    }
    Ok(segment)
}

fn flow(text: &str) -> Flow {
    match text.parse() {
        Ok(port) => Flow::RemotePort(port),
        Err(_) => Flow::Socket(text.to_owned()),
    }
}

fn ecn(text: &str) -> Result<u8, String> {
    match text {
        "[noecn]" => Ok(0),
        "[ect1]" => Ok(1),
        "[ect0]" => Ok(2),
        "[ce]" => Ok(3),
        _ => Err(format!("`{text}` is none of [noecn], [ect0], [ect1], [ce]")),
    }
}

fn flags(text: &str) -> Result<Flags, String> {
    if text == "-" {
        return Ok(Flags::NONE);
    }
    text.chars().try_fold(Flags::NONE, |flags, letter| {
        let flag = match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            '.' => Flags::ACK,
            'U' => Flags::URG,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            'A' => Flags::AE,
            _ => return Err(format!("`{letter}` is no flag")),
        };
        Ok(flags | flag)
    })
}

/// Parses `first:behind(payload)`.
fn range(text: &str, flags: Flags) -> Result<(u32, u32), String> {
    let malformed = || format!("`{text}` is not `first:behind(payload)`");
    let (first, rest) = text.split_once(':').ok_or_else(malformed)?;
    let (behind, len) = rest.split_once('(').ok_or_else(malformed)?;
    let len = number(len.strip_suffix(')').ok_or_else(malformed)?)?;
    let (first, behind) = (number(first)?, number(behind)?);
    if behind.wrapping_sub(first) != len {
        return Err(format!("{first}:{behind} are not {len} bytes"));
    }
    if len > 65_000 && !flags.contains(Flags::SYN) {
        return Err(format!("{len} bytes do not fit into a packet"));
    }
    Ok((first, len))
}

fn option_list(text: &str) -> Result<OptionList, String> {
    let mut list = OptionList::default();
    if text.trim() == "..." {
        list.any = true;
        return Ok(list);
    }
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        one_option(&mut list, option)?;
    }
    Ok(list)
}

fn one_option(list: &mut OptionList, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["nop" | "eol"] => {}
        ["sackOK"] => list.sack_permitted = true,
        ["mss", value] => list.mss = Some(narrow(value)?),
        ["wscale", value] => list.window_scale = Some(narrow(value)?),
        ["TS", "val", value, "ecr", echo] => list.timestamps = Some((wild(value)?, wild(echo)?)),
        ["sack", ref blocks @ ..] if !blocks.is_empty() => {
            for block in blocks {
                let (left, right) = block
                    .split_once(':')
                    .ok_or_else(|| format!("`{block}` is not `left:right`"))?;
                list.sack.push((number(left)?, number(right)?));
            }
        }
        ["raw", digits] => list.raw = Some(hexadecimal(digits)?),
        ["FO"] => list.fast_open = FastOpen::new(&[], false),
        ["FOEXP"] => list.fast_open = FastOpen::new(&[], true),
        [name @ ("FO" | "FOEXP"), cookie] => {
            let cookie = FastOpen::new(&hexadecimal(cookie)?, name == "FOEXP");
            list.fast_open = Some(cookie.ok_or("a cookie has 4 to 16 bytes, an even number")?);
        }
        ["raw"] => list.raw = Some(Vec::new()),
        _ => return Err(format!("`{text}` is no option")),
    }
    Ok(())
}

fn narrow<T: TryFrom<u32>>(text: &str) -> Result<T, String> {
    T::try_from(number(text)?).map_err(|_| format!("{text} is too large"))
}

fn wild(text: &str) -> Result<Option<u32>, String> {
    if text == "*" {
        Ok(None)
    } else {
        number(text).map(Some)
    }
}

fn hexadecimal(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) || digits.len() > 80 || !digits.is_ascii() {
        return Err("raw options are up to 40 bytes in pairs of hexadecimal digits".into());
    }
    (0..digits.len() / 2)
        .map(|i| {
            u8::from_str_radix(&digits[2 * i..2 * i + 2], 16)
                .map_err(|_| format!("`{digits}` is not hexadecimal"))
        })
        .collect()
}
