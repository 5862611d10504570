//! What the checks of documents read of Markdown: paragraphs, headings, links and code spans.
//!
//! This is no renderer. It knows the shapes that the project's documents use, and reads a line
//! that it does not know as text.

/// A run of text that a reader takes in at once: a paragraph, a list item, or a table cell.
#[derive(Debug, PartialEq)]
pub(crate) struct Paragraph {
    /// The line of its first word, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A heading with the anchor that renderers give it.
#[derive(Debug, PartialEq)]
pub(crate) struct Heading {
    text: String,
    pub(crate) anchor: String,
}

/// An inline link, `[text](target)`.
#[derive(Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) target: String,
}

/// Lines outside of fenced code and comments, with their numbers.
pub(crate) fn lines_of_text(document: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut is_fenced = false;
    let mut is_comment = false;
    for (index, line) in document.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_fenced = !is_fenced;
            kept.push((index + 1, ""));
        } else if !is_fenced {
            is_comment |= start.starts_with("<!--");
            kept.push((index + 1, if is_comment { "" } else { line }));
            is_comment &= !line.trim_end().ends_with("-->");
        }
    }
    kept
}

/// The paragraphs, list items and table cells of a document. Headings are none of these.
pub(crate) fn paragraphs(document: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (number, line) in lines_of_text(document) {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            is_open = false;
        } else if text.starts_with('|') {
            is_open = false;
            let cells = text.trim_matches('|').split(" | ").map(str::trim);
            let cells = cells.filter(|cell| cell.chars().any(char::is_alphanumeric));
            found.extend(cells.map(|cell| Paragraph {
                line: number,
                text: cell.to_owned(),
            }));
        } else {
            let item = item(text);
            if item.is_none() && is_open {
                let last = found.last_mut().expect("an open paragraph is the last");
                last.text.push(' ');
                last.text += text;
            } else {
                found.push(Paragraph {
                    line: number,
                    text: item.unwrap_or(text).to_owned(),
                });
            }
            is_open = true;
        }
    }
    found
}

/// The text of a list item, if the line begins one.
fn item(text: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark));
    bullet.or_else(|| {
        let (number, rest) = text.split_once(". ")?;
        let is_number = number.len() <= 2 && number.chars().all(|digit| digit.is_ascii_digit());
        (is_number && !number.is_empty()).then_some(rest)
    })
}

/// The headings of a document, each with the anchor that is unique in it.
pub(crate) fn headings(document: &str) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    for (_, text) in lines_of_text(document) {
        let words = text.trim_start_matches('#');
        if words.len() == text.len() || !words.starts_with(' ') {
            continue;
        }
        let text = plain(&words.trim().replace('`', ""));
        let slug = slug(&text);
        let anchor = match found
            .iter()
            .filter(|other| self::slug(&other.text) == slug)
            .count()
        {
            0 => slug,
            count => format!("{slug}-{count}"),
        };
        found.push(Heading { text, anchor });
    }
    found
}

/// The anchor of a heading's words, as GitHub and mdBook make it.
fn slug(words: &str) -> String {
    let kept = words.chars().filter_map(|letter| match letter {
        ' ' | '-' => Some('-'),
        '_' => Some('_'),
        letter if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// The inline links of a document. Links within code are none.
pub(crate) fn links(document: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (number, line) in lines_of_text(document) {
        links_of_line(&without_code(line), line, number, &mut found);
    }
    found
}

fn links_of_line(masked: &str, line: &str, number: usize, found: &mut Vec<Link>) {
    let mut from = 0;
    while let Some(middle) = masked[from..].find("](").map(|at| from + at) {
        let after = middle + 2;
        from = after;
        let Some(end) = masked[after..].find(')').map(|at| after + at) else {
            return;
        };
        let Some(begin) = masked[..middle].rfind('[') else {
            continue;
        };
        found.push(Link {
            line: number,
            text: line[begin + 1..middle].to_owned(),
            target: line[after..end].to_owned(),
        });
        from = end;
    }
}

/// A line with the letters of code spans blanked, byte for byte.
fn without_code(line: &str) -> String {
    let mut is_code = false;
    let blank = |letter: char| " ".repeat(letter.len_utf8());
    let letters = line.chars().map(|letter| {
        if letter == '`' {
            is_code = !is_code;
            return "`".to_owned();
        }
        if is_code {
            blank(letter)
        } else {
            letter.to_string()
        }
    });
    letters.collect()
}

/// The code spans of a text.
pub(crate) fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A text as a reader hears it. Links are their words, a code span is one word, and a break of a
/// line ends a sentence.
pub(crate) fn plain(text: &str) -> String {
    let mut spoken = String::new();
    let text = text.replace("<br>", ". ");
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            spoken += "code";
        } else {
            spoken += part;
        }
    }
    while let Some(middle) = spoken.find("](") {
        let Some(end) = spoken[middle..].find(')').map(|at| middle + at) else {
            break;
        };
        spoken.replace_range(middle..=end, "");
    }
    spoken.retain(|letter| !matches!(letter, '[' | ']' | '*'));
    spoken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_split_at_items_cells_and_code() {
        let document = "# Head\n\nOne\ntwo.\n- item\n  goes on\n1. step\n\n| a | b c |\n| --- | --- |\n```\ncode\n```\nend\n";
        let texts: Vec<_> = paragraphs(document).into_iter().map(|found| found.text).collect();
        assert_eq!(texts, ["One two.", "item goes on", "step", "a", "b c", "end"]);
        assert_eq!(paragraphs(document)[1].line, 5);
    }

    #[test]
    fn headings_get_unique_anchors() {
        let document = "# What `it` is, today\n## Again\n## Again\n```\n# no\n```\n";
        let anchors: Vec<_> = headings(document).into_iter().map(|found| found.anchor).collect();
        assert_eq!(anchors, ["what-it-is-today", "again", "again-1"]);
    }

    #[test]
    fn links_in_code_are_none() {
        let document = "See [a](b.md#c) and `[x](y)`, [d `e`](f).\n";
        let targets: Vec<_> = links(document).into_iter().map(|found| found.target).collect();
        assert_eq!(targets, ["b.md#c", "f"]);
        assert_eq!(links(document)[1].text, "d `e`");
    }

    #[test]
    fn comments_are_no_text() {
        assert_eq!(paragraphs("<!-- a\nb -->\nc\n").len(), 1);
    }

    #[test]
    fn plain_text_has_words_of_links() {
        assert_eq!(
            plain("**See** [the page](a.md) of `x y`."),
            "See the page of code."
        );
    }
}
