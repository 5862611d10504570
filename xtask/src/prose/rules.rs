//! The rules that a text alone can break.

use super::Rule;
use crate::markdown::{paragraphs, plain};

const MOST_WORDS_OF_SENTENCE: usize = 25;
const MOST_WORDS_OF_PARAGRAPH: usize = 120;

/// Words that stand where an actor should be named.
const VAGUE_ACTORS: [&str; 5] = ["who", "whom", "whoever", "somebody", "nobody"];

/// Beginnings by which a doc comment leans on its neighbours.
const LEANING: [&str; 6] = [
    "The same",
    "As there",
    "One of them",
    "True:",
    "False:",
    "As above",
];

/// A breach, by its line in the text.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) rule: Rule,
    pub(super) what: String,
}

/// What a document breaks.
pub(super) fn of_document(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for paragraph in paragraphs(text) {
        found.extend(vague_actors(&paragraph.text, paragraph.line));
        found.extend(long_ones(&paragraph.text, paragraph.line));
    }
    found
}

/// Each vague actor of a text.
pub(super) fn vague_actors(text: &str, line: usize) -> Vec<Found> {
    let spoken = plain(text);
    let words = spoken.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let vague = words.filter(|word| VAGUE_ACTORS.contains(&word.to_lowercase().as_str()));
    vague
        .map(|word| Found {
            line,
            rule: "actor",
            what: format!("\"{word}\" names no actor: {}", start(text)),
        })
        .collect()
}

/// The sentences and the paragraph that are too long.
pub(super) fn long_ones(text: &str, line: usize) -> Vec<Found> {
    let spoken = plain(text);
    let mut found = Vec::new();
    for sentence in sentences(&spoken) {
        let words = count_words(sentence);
        if words > MOST_WORDS_OF_SENTENCE {
            found.push(Found {
                line,
                rule: "sentence",
                what: format!("{words} words: {}", start(sentence)),
            });
        }
    }
    let words = count_words(&spoken);
    if words > MOST_WORDS_OF_PARAGRAPH {
        found.push(Found {
            line,
            rule: "paragraph",
            what: format!("{words} words: {}", start(&spoken)),
        });
    }
    found
}

/// The breach of a doc comment that needs its neighbour to be understood.
pub(super) fn leaning(text: &str, line: usize) -> Option<Found> {
    let begins = LEANING.iter().any(|words| text.starts_with(words));
    begins.then(|| Found {
        line,
        rule: "leaning",
        what: start(text),
    })
}

/// The sentences of a plain text. A stop ends one only before a space and a capital or a digit.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    for (at, letter) in text.char_indices() {
        let is_stop = matches!(letter, '.' | '!' | '?');
        let mut after = text[at + letter.len_utf8()..]
            .trim_start_matches(['"', ')', '\''])
            .chars();
        let goes_on = |next: char| next.is_lowercase() || next == ',';
        if is_stop && after.next().is_none_or(char::is_whitespace) {
            let next = after.find(|letter| !letter.is_whitespace());
            let abbreviates = ["e.g", "i.e", "cf", "vs"]
                .iter()
                .any(|word| text[from..at].ends_with(word));
            if !(abbreviates && next.is_some_and(goes_on)) {
                found.push(text[from..=at].trim());
                from = at + 1;
            }
        }
    }
    found.push(text[from..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

fn count_words(text: &str) -> usize {
    let words = text.split_whitespace();
    words
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .count()
}

/// The first words of a text, to find it by.
fn start(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(8).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(text: &str) -> Vec<Rule> {
        of_document(text).into_iter().map(|found| found.rule).collect()
    }

    #[test]
    fn vague_actor_is_found_in_text_and_not_in_code() {
        assert_eq!(rules_of("It wakes Whoever waits.\n"), ["actor"]);
        assert_eq!(rules_of("It calls `who`, says whole, whose.\n"), [""; 0]);
    }

    #[test]
    fn sentence_of_26_words_is_too_long() {
        let words = |count: usize| format!("{}.\n", vec!["word"; count].join(" "));
        assert_eq!(rules_of(&words(26)), ["sentence"]);
        assert_eq!(rules_of(&words(25)), [""; 0]);
        assert_eq!(rules_of(&format!("{} {}", words(20).trim(), words(20))), [""; 0]);
    }

    #[test]
    fn paragraph_of_121_words_is_too_long() {
        let text = "Word word. ".repeat(60);
        assert_eq!(rules_of(&format!("{text}End.\n")), ["paragraph"]);
        assert_eq!(rules_of(&text), [""; 0]);
    }

    #[test]
    fn stops_within_numbers_and_abbreviations_end_no_sentence() {
        assert_eq!(
            sentences("It takes 0.5 s, e.g. here. Then it ends."),
            ["It takes 0.5 s, e.g. here.", "Then it ends."]
        );
    }

    #[test]
    fn doc_that_leans_on_its_neighbour_is_found() {
        assert!(leaning("The same for IPv6.", 1).is_some());
        assert!(leaning("True: it is there.", 1).is_some());
        assert!(leaning("Returns `true` if it is there.", 1).is_none());
    }
}
