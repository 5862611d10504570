//! SYN cookies (RFC 4987 §3.6): the state of a half-open connection, encoded in the numbers of the
//! SYN-ACK.
//!
//! The initial sequence number holds the minute and the peer's segment size under a keyed hash. If
//! the peer uses timestamps, the low bits of this side's timestamp hold its window scale and SACK.
//! As with other initial sequence numbers, the cookies of a tuple grow with time.

use toehold_wire::tcp::{Options, Seq};

use super::segment::Segment;
use crate::keyed::{Key, Keys};
use crate::time::Instant;
use crate::tuple::FourTuple;

/// Length of a "minute": with 24 bits below it, the clock of the cookies runs about as fast as that
/// of RFC 6528.
const PERIOD_NS: u64 = 64_000_000_000;

/// A cookie is valid in its period and in the next one.
const PERIODS: u32 = 2;

/// After this many nanoseconds no cookie is valid any more.
pub(crate) const LIFETIME_NS: u64 = PERIOD_NS * PERIODS as u64;

/// Bits of the cookie below the period.
const MAC_BITS: u32 = 24;
const MAC_MASK: u32 = (1 << MAC_BITS) - 1;

/// Segment sizes that a cookie distinguishes, each the largest of a kind of path. They are the
/// smallest that this stack uses, the default and IPv6's minimum. Then follow tunnels, IPv6 and
/// IPv4 over Ethernet, jumbo frames, and links without a limit.
const SEGMENT_SIZES: [u16; 8] = [88, 536, 1220, 1360, 1440, 1460, 8940, 65_475];

/// Default segment sizes of IPv4 and IPv6.
//= RFC 9293 §3.7.1 (without the option: 536 or 1220)
const DEFAULT_SIZES: [u16; 2] = [536, 1220];

/// Low bits of a timestamp that hold options instead of the time.
const OPTION_BITS: u32 = 5;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
/// In the lower four of these bits, the window scale; or this, without one.
const NO_SCALE: u32 = 15;
const SACK: u32 = 1 << 4;

/// The numbers of a SYN-ACK with a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie {
    /// The initial sequence number.
    pub(super) seq: Seq,
    /// The timestamp's value, if the SYN had the option.
    pub(super) timestamp: Option<u32>,
}

impl Keys {
    /// The cookie that answers a SYN.
    pub(super) fn make_cookie(&self, syn: &Segment<'_>, now: Instant) -> Cookie {
        let default = DEFAULT_SIZES[usize::from(!syn.tuple.local.is_ipv4())];
        let size = syn.options.mss.unwrap_or(default);
        let clock = (now.millis() as u32).wrapping_add(self.timestamp_offset(&syn.tuple));
        Cookie {
            seq: encode(&self.cookies, &syn.tuple, syn.seq, size, period(now)),
            timestamp: syn
                .options
                .timestamps
                .map(|_| encode_options(clock, &syn.options)),
        }
    }

    /// The contents of the peer's SYN, if this acknowledgement returns a valid cookie.
    pub(super) fn check_cookie(&self, ack: &Segment<'_>, now: Instant) -> Option<Options> {
        let mss = decode(&self.cookies, &ack.tuple, ack.seq - 1, ack.ack - 1, period(now))?;
        let offered = ack
            .options
            .timestamps
            .map_or(NO_SCALE, |timestamps| timestamps.echo & OPTION_MASK);
        Some(Options {
            mss: Some(mss),
            window_scale: scale_of(offered),
            sack_permitted: offered & SACK != 0,
            timestamps: ack.options.timestamps,
            ..Options::default()
        })
    }
}

fn period(now: Instant) -> u32 {
    (now.0 / PERIOD_NS) as u32
}

/// The keyed hash that hides the other parts of a cookie.
fn base(key: &Key, tuple: &FourTuple, peer_isn: Seq) -> Seq {
    Seq(key.public(tuple, u64::MAX) as u32) + peer_isn.0
}

fn mac(key: &Key, tuple: &FourTuple, peer_isn: Seq, period: u32) -> u32 {
    key.public(tuple, u64::from(period) << 32 | u64::from(peer_isn.0)) as u32 & MAC_MASK
}

fn encode(key: &Key, tuple: &FourTuple, peer_isn: Seq, size: u16, period: u32) -> Seq {
    let index = SEGMENT_SIZES
        .iter()
        .rposition(|&entry| entry <= size)
        .unwrap_or(0) as u32;
    let low = mac(key, tuple, peer_isn, period).wrapping_add(index) & MAC_MASK;
    base(key, tuple, peer_isn) + (period << MAC_BITS | low)
}

/// The segment size in a cookie, if it is valid and not too old.
fn decode(key: &Key, tuple: &FourTuple, peer_isn: Seq, cookie: Seq, period: u32) -> Option<u16> {
    let bits = cookie.distance(base(key, tuple, peer_isn));
    let age = period.wrapping_sub(bits >> MAC_BITS) & 0xff;
    if age >= PERIODS {
        return None;
    }
    let made = period.checked_sub(age)?;
    let index = bits.wrapping_sub(mac(key, tuple, peer_isn, made)) & MAC_MASK;
    SEGMENT_SIZES.get(index as usize).copied()
}

/// A timestamp that is not ahead of the clock and ends in the options.
fn encode_options(clock: u32, options: &Options) -> u32 {
    let scale = options
        .window_scale
        .map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let bits = scale | if options.sack_permitted { SACK } else { 0 };
    let value = (clock & !OPTION_MASK) | bits;
    if bits > clock & OPTION_MASK {
        value.wrapping_sub(1 << OPTION_BITS)
    } else {
        value
    }
}

fn scale_of(bits: u32) -> Option<u8> {
    let scale = bits & NO_SCALE;
    (scale != NO_SCALE).then_some(scale as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Purpose;
    use proptest::prelude::*;
    use toehold_wire::tcp::{Flags, Timestamps};

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new("10.0.0.1:80".parse().unwrap(), ([10, 0, 0, 2], port).into())
    }

    fn key() -> Key {
        Key::derive(&[5; 16], Purpose::Cookies)
    }

    fn segment(seq: Seq, ack: Seq, options: Options) -> Segment<'static> {
        Segment {
            tuple: tuple(1),
            seq,
            ack,
            flags: Flags::SYN,
            window: 1000,
            urgent: 0,
            options,
            payload: super::super::segment::Data::none(),
            congestion_experienced: false,
            hops: 64,
        }
    }

    #[test]
    fn segment_sizes_are_sorted_and_never_rounded_up() {
        assert!(SEGMENT_SIZES.is_sorted());
        for size in [88, 100, 535, 536, 1459, 1460, 1461, 9000, 65_475, u16::MAX] {
            let cookie = encode(&key(), &tuple(1), Seq(3), size, 9);
            let decoded = decode(&key(), &tuple(1), Seq(3), cookie, 9).unwrap();
            assert!(decoded <= size);
            assert!(SEGMENT_SIZES.contains(&decoded));
            assert!(
                !SEGMENT_SIZES
                    .iter()
                    .any(|&entry| entry > decoded && entry <= size)
            );
        }
    }

    #[test]
    fn returned_cookie_restores_offer_of_syn() {
        //= RFC 4987 §3.6
        let keys = Keys::new(&[5; 16]);
        let now = Instant(123 * PERIOD_NS + 1);
        let timestamps = Some(Timestamps { value: 77, echo: 0 });
        for (window_scale, sack_permitted) in
            [(None, false), (None, true), (Some(0), false), (Some(14), true)]
        {
            let offer = Options {
                mss: Some(1460),
                window_scale,
                sack_permitted,
                timestamps,
                ..Options::default()
            };
            let cookie = keys.make_cookie(&segment(Seq(100), Seq(0), offer), now);
            let echo = Some(Timestamps {
                value: 78,
                echo: cookie.timestamp.unwrap(),
            });
            let ack = segment(
                Seq(101),
                cookie.seq + 1,
                Options {
                    timestamps: echo,
                    ..Options::default()
                },
            );
            let agreed = keys.check_cookie(&ack, now).unwrap();
            assert_eq!(
                agreed,
                Options {
                    timestamps: echo,
                    ..offer
                }
            );
        }
    }

    #[test]
    fn cookie_without_timestamps_restores_segment_size_only() {
        let keys = Keys::new(&[5; 16]);
        let offer = Options {
            window_scale: Some(7),
            sack_permitted: true,
            ..Options::default()
        };
        let cookie = keys.make_cookie(&segment(Seq(100), Seq(0), offer), Instant(1));
        assert_eq!(cookie.timestamp, None);
        let ack = segment(Seq(101), cookie.seq + 1, Options::default());
        let agreed = keys.check_cookie(&ack, Instant(2)).unwrap();
        assert_eq!(
            agreed,
            Options {
                mss: Some(536),
                ..Options::default()
            }
        );
    }

    #[test]
    fn cookie_is_valid_for_two_periods_and_one_connection() {
        let cookie = encode(&key(), &tuple(1), Seq(3), 1460, 1000);
        let check = |tuple: &FourTuple, isn, cookie, period| decode(&key(), tuple, isn, cookie, period);
        assert_eq!(check(&tuple(1), Seq(3), cookie, 1000), Some(1460));
        assert_eq!(check(&tuple(1), Seq(3), cookie, 1001), Some(1460));
        for period in [999, 1002, 1255, 1256, 1257] {
            assert_eq!(check(&tuple(1), Seq(3), cookie, period), None, "{period}");
        }
        assert_eq!(check(&tuple(2), Seq(3), cookie, 1000), None);
        assert_eq!(check(&tuple(1), Seq(4), cookie + 1, 1000), None);
        assert_eq!(
            decode(
                &Key::derive(&[6; 16], Purpose::Cookies),
                &tuple(1),
                Seq(3),
                cookie,
                1000
            ),
            None
        );
    }

    #[test]
    fn guessed_cookies_are_refused() {
        // 16 of 2^32 numbers are valid at a time; neighbours of a cookie beyond the table's eight
        // are not.
        let cookie = encode(&key(), &tuple(1), Seq(3), 88, 1000);
        let valid = |guess: Seq| decode(&key(), &tuple(1), Seq(3), guess, 1000).is_some();
        let accepted = (0..1 << 20).filter(|&step| valid(cookie + step)).count();
        assert_eq!(accepted, SEGMENT_SIZES.len());
        let hits = (0..1_u32 << 20)
            .filter(|n| valid(Seq(n.wrapping_mul(0x9e37_79b1))))
            .count();
        assert!(hits <= 1, "{hits} of a million guesses");
    }

    #[test]
    fn cookie_of_tuple_grows_with_time() {
        //= RFC 6528 §3 (the clock of initial sequence numbers)
        let at = |period| encode(&key(), &tuple(1), Seq(3), 1460, period);
        for period in 0..600 {
            assert!(at(period + 2).gt(at(period)));
        }
    }

    proptest! {
        #[test]
        fn timestamp_with_options_is_never_ahead_of_clock(clock: u32, scale in proptest::option::of(0..=14_u8), sack: bool) {
            let options = Options { window_scale: scale, sack_permitted: sack, ..Options::default() };
            let value = encode_options(clock, &options);
            //= RFC 7323 §4.1 (values come from a clock that does not go back)
            prop_assert!(clock.wrapping_sub(value) < 2 << OPTION_BITS);
            prop_assert_eq!(scale_of(value & OPTION_MASK), scale);
            prop_assert_eq!(value & SACK != 0, sack);
        }
    }
}
