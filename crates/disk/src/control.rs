//! The file `control`: the state of a disk as JSON, and what may be written to it.

use serde::{Deserialize, Serialize};

use crate::counters::{BlockLayer, DiskCounters};
use crate::speeds::{DiskKind, KindError};

/// Bytes that a change may have at most.
pub(crate) const MOST_CHANGE: usize = 4096;

/// What the file `control` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskState {
    /// The form of this text.
    pub schema: &'static str,
    /// Speeds and arrangement of the heads, before they are scaled.
    pub kind: DiskKind,
    /// Seek, turn and overhead are divided by it.
    pub scale: u32,
    /// Bytes of the disk.
    pub bytes: u64,
    /// Bytes of memory that blocks take which are not zero.
    pub kept_bytes: u64,
    /// Returns `true` if replies wait for the time that the law says.
    pub clock: bool,
    /// Returns `true` if the disk's threads are under SCHED_FIFO. Otherwise replies may be late.
    pub realtime: bool,
    /// The loop device, once it is attached.
    pub device: Option<String>,
    /// Nanoseconds since the begin, or since counters were reset.
    pub span_ns: u64,
    /// What was counted in that span.
    pub counters: DiskCounters,
    /// What the block layer counted in that span.
    pub block: Option<BlockLayer>,
    /// Lateness by the block layer's count, as a share of the mean service.
    pub late_share: Option<f64>,
    /// Why the last change was refused, if it was.
    pub refused: Option<String>,
}

impl DiskState {
    /// The name and number of this form.
    pub const SCHEMA: &'static str = "toehold/disk-control/1";
}

/// A kind of disk in a change: by name, or field by field as in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum NewSpeeds {
    /// A built-in kind.
    Named(String),
    /// Fields of a kind.
    Fields(DiskKind),
}

/// A change of a disk while it runs: JSON, such as `{"clock": false}`. What it does not name stays.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskChange {
    /// Whether replies wait for the time that the law says.
    #[serde(default)]
    pub clock: Option<bool>,
    /// Other speeds. Requests that were served before keep their times.
    #[serde(default)]
    pub kind: Option<NewSpeeds>,
    /// Whether all counters begin again at 0.
    #[serde(default)]
    pub reset: bool,
}

/// Why a change is refused.
#[derive(Debug, thiserror::Error)]
pub enum DiskChangeError {
    /// The text is no JSON, or has not these fields.
    #[error("{0}; write such as {{\"clock\": false}}, {{\"kind\": \"scsi\"}} or {{\"reset\": true}}")]
    Text(#[from] serde_json::Error),
    /// The text is longer than a change can be.
    #[error("a change has at most {MOST_CHANGE} bytes, in one write")]
    Long,
    /// No built-in kind has this name.
    #[error("there is no kind `{0}`; choose ide, scsi or raid, or write its fields")]
    Name(String),
    /// A field of the kind makes no sense.
    #[error(transparent)]
    Kind(#[from] KindError),
}

impl DiskChange {
    /// Reads a change.
    ///
    /// # Errors
    ///
    /// [`DiskChangeError`] says what is wrong, and what can be written.
    pub fn parse(text: &[u8]) -> Result<Self, DiskChangeError> {
        if text.len() > MOST_CHANGE {
            return Err(DiskChangeError::Long);
        }
        let change: Self = serde_json::from_slice(text)?;
        change.new_kind()?;
        Ok(change)
    }

    /// Returns the kind that the disk becomes, if it changes.
    ///
    /// # Errors
    ///
    /// [`DiskChangeError`] names the kind or the field that does not exist or makes no sense.
    pub fn new_kind(&self) -> Result<Option<DiskKind>, DiskChangeError> {
        match &self.kind {
            None => Ok(None),
            Some(NewSpeeds::Fields(kind)) => Ok(Some(kind.checked()?)),
            Some(NewSpeeds::Named(name)) => {
                let kind = DiskKind::named(name);
                kind.map(Some).ok_or_else(|| DiskChangeError::Name(name.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn change_by_name_and_by_fields_is_read() {
        let change = DiskChange::parse(b"{\"clock\": false, \"kind\": \"scsi\"}\n").unwrap();
        assert_eq!(change.clock, Some(false));
        assert_eq!(change.new_kind().unwrap(), DiskKind::named("scsi"));
        let raid = DiskKind::named("raid").unwrap();
        let fields = serde_json::json!({ "kind": raid, "reset": true }).to_string();
        let change = DiskChange::parse(fields.as_bytes()).unwrap();
        assert!(change.reset);
        assert_eq!(change.new_kind().unwrap(), Some(raid));
    }

    #[test]
    fn change_without_sense_is_refused() {
        let long = vec![b' '; MOST_CHANGE + 1];
        for text in [
            b"".as_slice(),
            b"off",
            b"{\"clock\": 1}",
            b"{\"speed\": 1}",
            b"{\"kind\": \"tape\"}",
            b"{\"kind\": {\"head\": {}}}",
            &long,
        ] {
            assert!(
                DiskChange::parse(text).is_err(),
                "{:?}",
                String::from_utf8_lossy(text)
            );
        }
        let mut kind = DiskKind::named("ide").unwrap();
        kind.head.read_mb_s = 0.0;
        let text = serde_json::json!({ "kind": kind }).to_string();
        assert!(DiskChange::parse(text.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = DiskChange::parse(&text);
        }
    }
}
