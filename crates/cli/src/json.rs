//! JSON for other programs: one document per command, with the name and number of its schema.
//!
//! The field `schema` is `toehold/NAME/NUMBER`. A later version may add fields; it raises the number if it changes or
//! removes one. `docs/json.md` lists the documents.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

/// A document of a command, under the name of its schema.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    /// Names the schema of `body`, which has to serialize as an object.
    pub(crate) fn new(schema: &'static str, body: &'a T) -> Self {
        Self { schema, body }
    }

    /// Returns the document as text that ends with a line break.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Prints a document on standard output.
pub(crate) fn print<T: Serialize>(schema: &'static str, body: &T) -> Result<()> {
    let text = Document::new(schema, body).text()?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// A value that documents have as a word, as that word.
pub(crate) fn word(value: &impl Serialize) -> Result<String> {
    let value = serde_json::to_value(value)?;
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_begins_with_its_schema() {
        #[derive(Serialize)]
        struct Body {
            nodes: Vec<u8>,
        }
        let text = Document::new("toehold/ps/1", &Body { nodes: vec![1] })
            .text()
            .unwrap();
        assert!(
            text.starts_with("{\n  \"schema\": \"toehold/ps/1\",\n  \"nodes\""),
            "{text}"
        );
    }
}
