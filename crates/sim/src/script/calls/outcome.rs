//! The outcome of a call, beside the one that the script expects.

use toehold_stack::SocketError;

use crate::script::compare::pattern;
use crate::script::parse::number;

/// A call's outcome, in the words that follow `=>`.
pub(super) type Outcome = Result<Vec<String>, SocketError>;

pub(super) fn compare(outcome: &Outcome, expected: &[String]) -> Result<(), String> {
    match (outcome, expected) {
        (Ok(found), [first, ..]) if first != "error" => {
            let wanted = translate(expected)?;
            if *found == wanted {
                Ok(())
            } else {
                Err(format!("the call gave `{}`", found.join(" ")))
            }
        }
        (Ok(found), []) if found.is_empty() => Ok(()),
        (Ok(found), _) => Err(format!("the call succeeded: `{}`", found.join(" "))),
        (Err(error), [first, name]) if first == "error" && format!("{error:?}") == *name => Ok(()),
        (Err(error), _) => Err(format!("the call failed: {error:?} ({error})")),
    }
}

/// Translates `byte SEQUENCE`, which names a byte by its sequence number.
fn translate(expected: &[String]) -> Result<Vec<String>, String> {
    match expected {
        [first, sequence] if first == "byte" => Ok(vec![
            "byte".into(),
            format!("{:#04x}", pattern(number(sequence)?)),
        ]),
        _ => Ok(expected.to_vec()),
    }
}
