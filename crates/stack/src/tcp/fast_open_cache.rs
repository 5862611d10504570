//! A client's knowledge of servers with Fast Open: their cookies, their segment sizes, and which
//! paths lose SYNs with data (RFC 7413 §4.1.3). The table lies in the region, so that all processes
//! of the node share it.
//!
//! The table is bounded. A keyed hash assigns each destination to a set of four. A new destination
//! replaces the least recently used one of its set.

use toehold_shm::{Carver, OutOfMemory, Table};
use toehold_wire::tcp::FastOpen;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::keyed::Keys;
use crate::time::Instant;
use crate::tuple::{Address, FourTuple};

/// Destinations of a set.
const WAYS: usize = 4;

/// Destinations in the table.
const CAPACITY: usize = 1024;

/// Time for which SYNs to a destination carry no data after a SYN with data seemed lost, in
/// seconds.
const PAUSE_S: u32 = 3600;

/// Each further pause is twice as long, this often.
const MOST_DOUBLINGS: u8 = 6;

/// One destination. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Known {
    local: [u8; 16],
    remote: [u8; 16],
    cookie: [u8; FastOpen::MAX_LEN],
    /// The second in which a connection last asked for it.
    used_at_s: u32,
    /// The second in which the present pause ends.
    paused_until_s: u32,
    /// The peer's segment size; 0: not known.
    mss: u16,
    cookie_len: u8,
    /// 1: the cookie came in the option's experimental form.
    is_experimental: u8,
    /// Pauses so far.
    pauses: u8,
    /// Progress of the search for a form of the option that the server answers, a [`Tried`].
    tried: u8,
    reserved: [u8; 2],
}

const _: () = assert!(size_of::<Known>() == 64);

/// The form in which a request for a cookie was not answered; 0: none.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Tried {
    /// The next request has the experimental form.
    Standard = 1,
    Both = 2,
}

/// The contents of a SYN to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// No option: SYNs with data were lost there.
    Nothing,
    /// A request for a cookie.
    Request(FastOpen),
    /// The cookie, and data.
    Cookie(FastOpen),
}

/// The information in the answer to a SYN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lesson {
    /// The peer's segment size.
    pub(super) mss: u16,
    /// The cookie in the answer.
    pub(super) cookie: Option<FastOpen>,
    /// The form of a request that was not answered: `false` the standard form, `true` the
    /// experimental form.
    pub(super) unanswered: Option<bool>,
    /// The server took data of the SYN.
    pub(super) taken: bool,
}

/// The destinations.
pub(super) struct FastOpenCache {
    known: Table<Known>,
}

impl FastOpenCache {
    pub(super) fn bytes_needed() -> usize {
        Table::<Known>::bytes_needed(CAPACITY)
    }

    pub(super) fn create(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            known: carver.table(CAPACITY)?,
        })
    }

    /// The contents of a SYN between these ends.
    pub(super) fn advice(&self, keys: &Keys, now: Instant, tuple: &FourTuple) -> Advice {
        let request =
            |experimental| FastOpen::new(&[], experimental).map_or(Advice::Nothing, Advice::Request);
        match self.find(keys, tuple) {
            Some(known) if known.is_paused(now) => Advice::Nothing,
            Some(known) => match known.cookie() {
                Some(cookie) => Advice::Cookie(cookie),
                None => request(known.tried == Tried::Standard as u8),
            },
            None => request(false),
        }
    }

    /// The segment size that the peer last announced.
    pub(super) fn segment_size(&self, keys: &Keys, tuple: &FourTuple) -> Option<u16> {
        let known = self.find(keys, tuple)?;
        (known.mss > 0).then_some(known.mss)
    }

    /// Stores the information in the answer to a SYN.
    //= RFC 7413 §4.1.3 (the client caches the cookie and the MSS)
    pub(super) fn learn(&mut self, keys: &Keys, now: Instant, tuple: &FourTuple, lesson: &Lesson) {
        let known = self.entry(keys, now, tuple);
        known.mss = lesson.mss;
        if lesson.taken {
            known.pauses = 0;
        }
        if let Some(cookie) = lesson.cookie.filter(|cookie| !cookie.cookie().is_empty()) {
            let bytes = cookie.cookie();
            known.cookie[..bytes.len()].copy_from_slice(bytes);
            known.cookie_len = bytes.len() as u8;
            known.is_experimental = cookie.is_experimental().into();
        } else if let Some(experimental) = lesson.unanswered
            && known.cookie_len == 0
        {
            known.tried = known.tried.max(match experimental {
                false => Tried::Standard as u8,
                true => Tried::Both as u8,
            });
        }
    }

    /// Begins a pause for a destination: data in a SYN, or the segments after them, seem lost.
    //= RFC 7413 §4.1.3.1 (the client caches negative responses)
    pub(super) fn pause(&mut self, keys: &Keys, now: Instant, tuple: &FourTuple) {
        let known = self.entry(keys, now, tuple);
        let span_s = PAUSE_S << known.pauses.min(MOST_DOUBLINGS);
        known.pauses = known.pauses.saturating_add(1);
        known.paused_until_s = seconds(now).saturating_add(span_s);
    }

    /// The slots in which a destination may be.
    fn set(keys: &Keys, tuple: &FourTuple) -> core::ops::Range<usize> {
        let mut ends = [0; 32];
        ends[..16].copy_from_slice(&tuple.local.0);
        ends[16..].copy_from_slice(&tuple.remote.0);
        let first = (keys.fast_open_cache.bytes(&ends) as usize % (CAPACITY / WAYS)) * WAYS;
        first..first + WAYS
    }

    fn find(&self, keys: &Keys, tuple: &FourTuple) -> Option<&Known> {
        self.known[Self::set(keys, tuple)]
            .iter()
            .find(|known| known.is_of(tuple))
    }

    fn entry(&mut self, keys: &Keys, now: Instant, tuple: &FourTuple) -> &mut Known {
        let set = Self::set(keys, tuple);
        let place = |known: &Known| (!known.is_of(tuple), known.used_at_s);
        let first = set.start;
        let index = set
            .min_by_key(|&index| place(&self.known[index]))
            .unwrap_or(first);
        let known = &mut self.known[index];
        if !known.is_of(tuple) {
            *known = Known {
                local: tuple.local.0,
                remote: tuple.remote.0,
                ..Known::default()
            };
        }
        known.used_at_s = seconds(now);
        known
    }
}

impl Known {
    fn is_of(&self, tuple: &FourTuple) -> bool {
        self.remote == tuple.remote.0 && self.local == tuple.local.0 && tuple.remote != Address([0; 16])
    }

    fn is_paused(&self, now: Instant) -> bool {
        seconds(now) < self.paused_until_s
    }

    fn cookie(&self) -> Option<FastOpen> {
        let bytes = self.cookie.get(..usize::from(self.cookie_len))?;
        FastOpen::new(bytes, self.is_experimental != 0).filter(|cookie| !cookie.cookie().is_empty())
    }
}

fn seconds(now: Instant) -> u32 {
    u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toehold_shm::Region;

    const MINUTE: u64 = 60_000_000_000;

    fn cache() -> (FastOpenCache, Keys) {
        let region = Region::private(FastOpenCache::bytes_needed() + 4096).expect("memory");
        let mut carver = Carver::new(region).expect("a fresh region");
        (
            FastOpenCache::create(&mut carver).expect("room"),
            Keys::new(&[7; 16]),
        )
    }

    fn to(host: u32) -> FourTuple {
        let remote = core::net::SocketAddr::from((core::net::Ipv4Addr::from_bits(0x0a00_0000 + host), 80));
        FourTuple::new("10.255.0.1:40000".parse().expect("an address"), remote)
    }

    fn lesson(cookie: &[u8]) -> Lesson {
        Lesson {
            mss: 1400,
            cookie: FastOpen::new(cookie, false),
            unanswered: None,
            taken: false,
        }
    }

    #[test]
    fn destination_with_cookie_is_told_apart_from_others() {
        //= RFC 7413 §4.1.3
        let (mut cache, keys) = cache();
        cache.learn(&keys, Instant(MINUTE), &to(1), &lesson(&[1, 2, 3, 4]));
        let known = cache.advice(&keys, Instant(MINUTE), &to(1));
        assert_eq!(
            known,
            Advice::Cookie(FastOpen::new(&[1, 2, 3, 4], false).unwrap())
        );
        assert_eq!(cache.segment_size(&keys, &to(1)), Some(1400));
        let unknown = cache.advice(&keys, Instant(MINUTE), &to(2));
        assert_eq!(unknown, Advice::Request(FastOpen::new(&[], false).unwrap()));
        assert_eq!(cache.segment_size(&keys, &to(2)), None);
    }

    #[test]
    fn cookie_outlives_answer_without_one_and_yields_to_next() {
        let (mut cache, keys) = cache();
        for cookie in [&[1, 2, 3, 4][..], &[], &[9; 16]] {
            cache.learn(&keys, Instant(MINUTE), &to(1), &lesson(cookie));
            let Advice::Cookie(known) = cache.advice(&keys, Instant(MINUTE), &to(1)) else {
                panic!("the cookie is gone");
            };
            if !cookie.is_empty() {
                assert_eq!(known.cookie(), cookie);
            }
        }
    }

    #[test]
    fn table_beyond_capacity_forgets_oldest_of_set() {
        let (mut cache, keys) = cache();
        let hosts = 4 * CAPACITY as u32;
        for host in 0..hosts {
            let now = Instant(u64::from(host) * MINUTE);
            cache.learn(&keys, now, &to(host), &lesson(&[1, 2, 3, 4]));
        }
        let is_known = |host: &u32| cache.segment_size(&keys, &to(*host)).is_some();
        assert!((0..hosts).filter(is_known).count() <= CAPACITY);
        assert!(is_known(&(hosts - 1)));
        assert!((0..hosts / 4).filter(is_known).count() < CAPACITY / 8);
    }

    #[test]
    fn request_without_answer_is_made_in_experimental_form_once() {
        let (mut cache, keys) = cache();
        let mut forms = Vec::new();
        for _ in 0..4 {
            let Advice::Request(option) = cache.advice(&keys, Instant(MINUTE), &to(1)) else {
                panic!("there is no cookie");
            };
            forms.push(option.is_experimental());
            let unanswered = Some(option.is_experimental());
            cache.learn(
                &keys,
                Instant(MINUTE),
                &to(1),
                &Lesson {
                    unanswered,
                    ..lesson(&[])
                },
            );
        }
        assert_eq!(forms, [false, true, false, false]);
    }

    #[test]
    fn pauses_double_and_end_with_data_that_arrive() {
        //= RFC 7413 §4.1.3.1
        let (mut cache, keys) = cache();
        let mut now = Instant(MINUTE);
        cache.learn(&keys, now, &to(1), &lesson(&[1, 2, 3, 4]));
        for hours in [1, 2, 4, 8, 16, 32, 64, 64] {
            cache.pause(&keys, now, &to(1));
            let end = now.plus_nanos(hours * 60 * MINUTE);
            let before = Instant(end.0 - MINUTE);
            assert_eq!(
                cache.advice(&keys, before, &to(1)),
                Advice::Nothing,
                "after {hours} hours"
            );
            assert_ne!(
                cache.advice(&keys, end, &to(1)),
                Advice::Nothing,
                "after {hours} hours"
            );
            now = end;
        }
        cache.learn(
            &keys,
            now,
            &to(1),
            &Lesson {
                taken: true,
                ..lesson(&[])
            },
        );
        cache.pause(&keys, now, &to(1));
        let end = now.plus_nanos(60 * MINUTE);
        assert_ne!(cache.advice(&keys, end, &to(1)), Advice::Nothing);
    }
}
