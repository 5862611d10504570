//! What a disk is made of: its heads' speeds, its chunks and its bus.

use serde::{Deserialize, Serialize};

use crate::head::Transfer;

/// The largest scale: a page of a file shrinks to less than that part of a sector.
pub const MOST_SCALE: u32 = 1024;

/// Heads of an array at most.
const MOST_HEADS: u32 = 64;

/// The speeds of one head. Rates are in millions of bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HeadSpeeds {
    /// Average seek in milliseconds, over all pairs of places on the disk.
    pub seek_ms: f64,
    /// Turns of the platter in a minute.
    pub turns_per_minute: f64,
    /// Rate of reads.
    pub read_mb_s: f64,
    /// Rate of writes.
    pub write_mb_s: f64,
    /// Milliseconds that each request costs, sequential ones too.
    #[serde(default = "usual_overhead")]
    pub overhead_ms: f64,
}

fn usual_overhead() -> f64 {
    0.1
}

/// The rates of the bus before all heads of an array, in millions of bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BusSpeeds {
    /// Rate of reads.
    pub read_mb_s: f64,
    /// Rate of writes.
    pub write_mb_s: f64,
}

/// Several heads, with chunks of the disk on each in turn (RAID-0).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ArrayShape {
    /// Heads, 1 to 64.
    pub heads: u32,
    /// Bytes that follow one another on a head, a multiple of 512.
    pub chunk_bytes: u32,
    /// The bus that carries the bytes of all heads, if it can be a limit.
    pub bus: Option<BusSpeeds>,
}

/// A kind of disk: what its times depend on.
///
/// ```
/// let kind = toehold_disk::DiskKind::from_toml(
///     "[head]\nseek-ms = 4\nturns-per-minute = 10000\nread-mb-s = 90\nwrite-mb-s = 85",
/// );
/// assert_eq!(kind.unwrap().head.overhead_ms, 0.1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskKind {
    /// The speeds of each head.
    pub head: HeadSpeeds,
    /// How several heads are arranged; without it there is one head.
    pub array: Option<ArrayShape>,
}

/// Why a description is no kind of disk.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KindError {
    /// The text is no TOML, or has not these fields.
    #[error("{0}")]
    Text(String),
    /// A field is out of its range.
    #[error("`{field}` is {value}; choose {least} to {most}")]
    Range {
        /// The field, as it is written.
        field: &'static str,
        /// The field's value.
        value: f64,
        /// The least value that makes sense.
        least: f64,
        /// The largest value that makes sense.
        most: f64,
    },
    /// Chunks do not consist of sectors.
    #[error("`chunk-bytes` is {0}; choose a multiple of 512, up to 16777216")]
    Chunk(u32),
}

impl DiskKind {
    /// The names of the built-in kinds.
    pub const NAMES: [&'static str; 3] = ["ide", "scsi", "raid"];

    /// Returns a built-in kind. The speeds are those of table 3 of the datacenter paper.
    pub fn named(name: &str) -> Option<Self> {
        let head = |seek_ms, turns_per_minute, read_mb_s, write_mb_s| HeadSpeeds {
            seek_ms,
            turns_per_minute,
            read_mb_s,
            write_mb_s,
            overhead_ms: usual_overhead(),
        };
        let ide = head(8.5, 7200.0, 38.0, 40.0);
        let scsi = head(3.5, 15_000.0, 60.0, 60.0);
        let raid = ArrayShape {
            heads: 3,
            chunk_bytes: 4096,
            bus: Some(BusSpeeds {
                read_mb_s: 125.0,
                write_mb_s: 150.0,
            }),
        };
        let (head, array) = match name {
            "ide" => (ide, None),
            "scsi" => (scsi, None),
            "raid" => (scsi, Some(raid)),
            _ => return None,
        };
        Some(Self { head, array })
    }

    /// Reads a kind from TOML: a table `head`, and a table `array` if there are several heads.
    ///
    /// # Errors
    ///
    /// [`KindError`] names the line or the field, and the values that it may have.
    pub fn from_toml(text: &str) -> Result<Self, KindError> {
        let kind: Self = toml::from_str(text).map_err(|error| KindError::Text(error.to_string()))?;
        kind.checked()
    }

    /// Returns the kind if all of its fields are in their ranges.
    ///
    /// # Errors
    ///
    /// [`KindError`] names the field, and the values that it may have.
    pub fn checked(self) -> Result<Self, KindError> {
        let head = self.head;
        within("seek-ms", head.seek_ms, 0.0, 10_000.0)?;
        within("turns-per-minute", head.turns_per_minute, 1.0, 1e9)?;
        within("overhead-ms", head.overhead_ms, 0.0, 10_000.0)?;
        rates(head.read_mb_s, head.write_mb_s)?;
        let Some(array) = self.array else {
            return Ok(self);
        };
        within("heads", f64::from(array.heads), 1.0, f64::from(MOST_HEADS))?;
        if array.chunk_bytes == 0 || array.chunk_bytes % 512 != 0 || array.chunk_bytes > 16 << 20 {
            return Err(KindError::Chunk(array.chunk_bytes));
        }
        if let Some(bus) = array.bus {
            rates(bus.read_mb_s, bus.write_mb_s)?;
        }
        Ok(self)
    }

    /// Returns the number of heads.
    pub fn heads(&self) -> u32 {
        self.array.map_or(1, |array| array.heads)
    }
}

fn within(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), KindError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(KindError::Range {
        field,
        value,
        least,
        most,
    })
}

fn rates(read: f64, write: f64) -> Result<(), KindError> {
    within("read-mb-s", read, 0.001, 1e6)?;
    within("write-mb-s", write, 0.001, 1e6)
}

/// Nanoseconds that `bytes` take at the rate of a direction, in millions of bytes a second.
fn carry_ns(bytes: u64, transfer: Transfer, read_mb_s: f64, write_mb_s: f64) -> f64 {
    let rate = match transfer {
        Transfer::Read => read_mb_s,
        Transfer::Write => write_mb_s,
    };
    bytes as f64 * 1e3 / rate
}

impl BusSpeeds {
    /// Nanoseconds that the bus takes for `bytes`.
    pub fn transfer_ns(&self, bytes: u64, transfer: Transfer) -> f64 {
        carry_ns(bytes, transfer, self.read_mb_s, self.write_mb_s)
    }
}

impl HeadSpeeds {
    /// Returns the speeds of a disk whose seek, turn and overhead are `scale` times shorter. Rates
    /// stay.
    pub fn scaled(self, scale: u32) -> Self {
        let scale = f64::from(scale.clamp(1, MOST_SCALE));
        Self {
            seek_ms: self.seek_ms / scale,
            turns_per_minute: self.turns_per_minute * scale,
            overhead_ms: self.overhead_ms / scale,
            ..self
        }
    }

    /// Nanoseconds that each request costs.
    pub fn overhead_ns(&self) -> f64 {
        self.overhead_ms * 1e6
    }

    /// Nanoseconds of a seek over `share` of the disk, 0 to 1.
    ///
    /// The time is m + (a − m)·√d·15/8, with average a, m = a/10 and distance d. The mean of √d over
    /// two uniform places is 8/15, so the mean of the law is a.
    pub fn seek_ns(&self, share: f64) -> f64 {
        let average = self.seek_ms * 1e6;
        let least = average / 10.0;
        least + (average - least) * share.clamp(0.0, 1.0).sqrt() * 15.0 / 8.0
    }

    /// Nanoseconds of a whole turn.
    pub fn turn_ns(&self) -> f64 {
        60e9 / self.turns_per_minute
    }

    /// Nanoseconds that the head takes to transfer `bytes`.
    pub fn transfer_ns(&self, bytes: u64, transfer: Transfer) -> f64 {
        carry_ns(bytes, transfer, self.read_mb_s, self.write_mb_s)
    }

    /// Mean nanoseconds of a request at a random place, `sequential` of which begin where the
    /// request before ended.
    pub fn mean_service_ns(&self, bytes: u64, transfer: Transfer, sequential: f64) -> f64 {
        let positioning = self.seek_ms * 1e6 + self.turn_ns() / 2.0;
        self.overhead_ns() + (1.0 - sequential) * positioning + self.transfer_ns(bytes, transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_from_file_has_every_field() {
        let text = "[head]\nseek-ms = 3.5\nturns-per-minute = 15000\nread-mb-s = 60\nwrite-mb-s = 60\n\
                    [array]\nheads = 3\nchunk-bytes = 4096\nbus = { read-mb-s = 125, write-mb-s = 150 }";
        assert_eq!(DiskKind::from_toml(text), Ok(DiskKind::named("raid").unwrap()));
    }

    #[test]
    fn kind_out_of_range_is_refused_by_field() {
        for (change, said) in [
            ("seek-ms = -1", "`seek-ms` is -1"),
            ("seek-ms = nan", "`seek-ms` is NaN"),
            ("read-mb-s = 0", "`read-mb-s` is 0"),
            ("turns-per-minute = 0", "`turns-per-minute` is 0"),
            ("speed = 1", "unknown field `speed`"),
        ] {
            let (name, _) = change.split_once(" = ").unwrap();
            let lines = [
                "seek-ms = 3.5",
                "turns-per-minute = 15000",
                "read-mb-s = 60",
                "write-mb-s = 60",
            ];
            let others = lines.iter().filter(|line| !line.starts_with(name));
            let text = others.fold(format!("[head]\n{change}\n"), |text, line| text + line + "\n");
            let error = DiskKind::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn array_out_of_range_is_refused() {
        let mut kind = DiskKind::named("raid").unwrap();
        for (heads, chunk_bytes) in [(0, 4096), (65, 4096), (3, 0), (3, 1000), (3, 32 << 20)] {
            let bus = None;
            kind.array = Some(ArrayShape {
                heads,
                chunk_bytes,
                bus,
            });
            assert!(kind.checked().is_err(), "{heads} {chunk_bytes}");
        }
    }

    #[test]
    fn scale_shortens_moves_and_keeps_rates() {
        let whole = DiskKind::named("ide").unwrap().head;
        let scaled = whole.scaled(8);
        assert_eq!(scaled.seek_ns(0.3) * 8.0, whole.seek_ns(0.3));
        assert_eq!(scaled.turn_ns() * 8.0, whole.turn_ns());
        assert_eq!(scaled.overhead_ns() * 8.0, whole.overhead_ns());
        let bytes = |speeds: HeadSpeeds| speeds.transfer_ns(1 << 20, Transfer::Write);
        assert_eq!(bytes(scaled), bytes(whole));
    }
}
