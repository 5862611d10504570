//! Stamps of received bytes (SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING; socket(7)).

use core::ffi::c_int;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::SOL_SOCKET;
use toehold_posix::message::Control;
use toehold_posix::options::Stamps as Wanted;

/// The bit for SO_TIMESTAMP or SO_TIMESTAMPNS.
const ONE: u32 = 1 << 0;
const NANOS: u32 = 1 << 1;
/// The bit for SO_TIMESTAMPING.
const THREE: u32 = 1 << 2;
/// The bit for an option of that kind that was set by the number that has times of 64 bits
/// everywhere.
const IN_NEW: u32 = 1 << 3;

/// SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW and SO_TIMESTAMPING_NEW.
const NEW: [c_int; 3] = [63, 64, 65];

/// The stamps that a program wants with the bytes of a connection.
#[derive(Clone, Copy)]
pub(super) struct Stamps(pub(super) u32);

impl Stamps {
    pub(super) fn with_one(self, wanted: Option<Wanted>) -> Stamps {
        match wanted {
            Some(Wanted { nanos, new }) => self.with(IN_NEW, new).with(NANOS, nanos).with(ONE, true),
            None => self.with(ONE | NANOS, false),
        }
    }

    pub(super) fn with_three(self, are_wanted: bool, new: bool) -> Stamps {
        self.with(THREE, are_wanted).with(IN_NEW, new)
    }

    fn with(self, bits: u32, on: bool) -> Stamps {
        match on {
            true => Stamps(self.0 | bits),
            false => Stamps(self.0 & !bits),
        }
    }

    pub(super) fn are_wanted(self) -> bool {
        self.0 & (ONE | THREE) != 0
    }

    /// Adds the control messages for bytes that have come so long ago.
    pub(super) fn controls(self, age: Duration, controls: &mut Vec<Control>) {
        let bits = self.0;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = at.saturating_sub(age);
        let (seconds, nanos) = (at.as_secs() as i64, i64::from(at.subsec_nanos()));
        let control = |kind, words: &[i64]| Control {
            level: SOL_SOCKET,
            kind,
            data: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        };
        let [micros_new, nanos_new, three_new] = NEW;
        let kind = |old, new| if bits & IN_NEW != 0 { new } else { old };
        if bits & ONE != 0 && bits & NANOS != 0 {
            let kind = kind(libc::SO_TIMESTAMPNS, nanos_new);
            controls.push(control(kind, &[seconds, nanos]));
        } else if bits & ONE != 0 {
            let kind = kind(libc::SO_TIMESTAMP, micros_new);
            controls.push(control(kind, &[seconds, nanos / 1000]));
        }
        if bits & THREE != 0 {
            let kind = kind(libc::SO_TIMESTAMPING, three_new);
            // By software, not used any more, by hardware.
            controls.push(control(kind, &[seconds, nanos, 0, 0, 0, 0]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_those_that_were_asked_for() {
        let told = |stamps: Stamps| {
            let mut controls = Vec::new();
            stamps.controls(Duration::from_secs(1), &mut controls);
            controls
                .iter()
                .map(|control| (control.kind, control.data.len()))
                .collect::<Vec<_>>()
        };
        let none = Stamps(0);
        assert!(!none.are_wanted() && told(none).is_empty());
        let one = none.with_one(Some(Wanted {
            nanos: false,
            new: false,
        }));
        assert_eq!(told(one), [(29, 16)]);
        let both = one
            .with_one(Some(Wanted {
                nanos: true,
                new: true,
            }))
            .with_three(true, false);
        assert_eq!(told(both), [(35, 16), (37, 48)], "the last one says how");
        let three = both.with_one(None).with_three(true, true);
        assert_eq!(told(three), [(65, 48)]);
        assert!(!three.with_three(false, false).are_wanted());
    }
}
