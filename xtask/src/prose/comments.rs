//! The comments of a Rust file, and what they break.

use super::rules::{Found, leaning, long_ones, vague_actors};
use crate::markdown::paragraphs;

/// A run of comment lines of one kind.
#[derive(Debug, PartialEq)]
struct Comment {
    line: usize,
    is_doc: bool,
    text: String,
}

/// What the comments of a file break.
pub(super) fn breaches(source: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for comment in comments(source) {
        for paragraph in paragraphs(&comment.text) {
            let line = comment.line + paragraph.line - 1;
            found.extend(vague_actors(&paragraph.text, line));
            if comment.is_doc {
                found.extend(long_ones(&paragraph.text, line));
            }
        }
        if comment.is_doc {
            found.extend(leaning(&comment.text, comment.line));
        }
    }
    found
}

/// Comments that have their lines for themselves, but for citations of RFCs.
fn comments(source: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut open: Option<&str> = None;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let marks = ["//!", "///", "//="];
        let mark = marks.into_iter().find(|mark| line.starts_with(mark));
        let mark = mark.or_else(|| line.starts_with("//").then_some("//"));
        let Some(mark) = mark.filter(|mark| *mark != "//=") else {
            open = None;
            continue;
        };
        let text = line[mark.len()..].trim_start_matches(' ');
        if open == Some(mark) {
            let last = found.last_mut().expect("an open comment is the last");
            last.text += "\n";
            last.text += text;
        } else {
            found.push(Comment {
                line: index + 1,
                is_doc: mark != "//",
                text: text.to_owned(),
            });
        }
        open = Some(mark);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_lines_are_comments() {
        let source =
            "//! Head\n//! goes on.\n\n/// Doc.\nfn a() {\n    // Why.\n    //= RFC 1 §2\n    // More.\n}\n";
        let found = comments(source);
        let texts: Vec<_> = found.iter().map(|comment| comment.text.as_str()).collect();
        assert_eq!(texts, ["Head\ngoes on.", "Doc.", "Why.", "More."]);
        let docs: Vec<_> = found.iter().map(|comment| comment.is_doc).collect();
        assert_eq!(docs, [true, true, false, false]);
    }

    #[test]
    fn breach_has_line_of_its_paragraph() {
        let found = breaches("/// One.\n///\n/// It wakes nobody.\nstruct A;\n");
        assert_eq!((found[0].rule, found[0].line), ("actor", 3));
    }

    #[test]
    fn long_sentence_is_a_breach_of_docs_alone() {
        let long = vec!["word"; 30].join(" ");
        assert_eq!(breaches(&format!("/// {long}.\n")).len(), 1);
        assert_eq!(breaches(&format!("// {long}.\n")).len(), 0);
    }
}
