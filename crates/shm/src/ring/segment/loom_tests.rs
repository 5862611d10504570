//! Checks every interleaving of sessions, within loom's bounds.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::super::incoming::Incoming;
use super::super::layout::RecordHeader;
use super::super::outgoing::Outgoing;
use super::super::protocol::{AtomicU64, Fences, Ring, Words};
use super::super::state::{ConsumerState, ProducerState};
use super::session::Session;

const SENDER: u64 = 17;
const RECEIVER: u64 = 18;

/// A ring of four lines whose records carry the number of a session.
struct Memory {
    headers: [AtomicU64; 4],
    bodies: [UnsafeCell<u64>; 4],
    consumed: AtomicU64,
    unused: AtomicU64,
    session: AtomicU64,
    offer: AtomicU64,
    by: AtomicU64,
    to: AtomicU64,
}

#[derive(Clone)]
struct Model(Arc<Memory>);

impl Words for Model {
    fn header(&self, position: u64) -> &AtomicU64 {
        &self.0.headers[(position % 256 / 64) as usize]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.0.consumed
    }

    fn sleeping(&self) -> &AtomicU64 {
        &self.0.unused
    }

    fn starving(&self) -> &AtomicU64 {
        &self.0.unused
    }
}

impl Model {
    /// The leftovers of an earlier life of both ends: a record at the beginning, and a position
    /// behind it.
    fn used() -> Model {
        let old = RecordHeader::new(0, 1, 8).to_word();
        Model(Arc::new(Memory {
            headers: std::array::from_fn(|_| AtomicU64::new(old)),
            bodies: std::array::from_fn(|_| UnsafeCell::new(99)),
            consumed: AtomicU64::new(64),
            unused: AtomicU64::new(0),
            session: AtomicU64::new(98),
            offer: AtomicU64::new(98),
            by: AtomicU64::new(1),
            to: AtomicU64::new(2),
        }))
    }

    fn ring(&self) -> Ring<Model> {
        Ring {
            words: self.clone(),
            capacity: 256,
            fences: Fences {
                own: false,
                other: false,
            },
        }
    }

    fn session(&self) -> Session<'_> {
        Session {
            session: &self.0.session,
            first: self.header(0),
            consumed: &self.0.consumed,
            offer: &self.0.offer,
            by: &self.0.by,
            to: &self.0.to,
        }
    }

    fn body(&self, position: u64) -> &UnsafeCell<u64> {
        &self.0.bodies[(position % 256 / 64) as usize]
    }
}

fn send(mut outgoing: Outgoing<'_, Model>, number: u64) {
    let Ok(position) = outgoing.reserve(8) else { return };
    // SAFETY: loom checks that no other thread has access at the same time.
    outgoing
        .ring
        .words
        .body(position)
        .with_mut(|body| unsafe { *body = number });
    outgoing.commit(RecordHeader::new(position, 1, 8));
    outgoing.publish();
}

fn take(mut incoming: Incoming<'_, Model>) -> Option<u64> {
    let header = incoming.next().expect("the sender keeps the rules")?;
    // SAFETY: loom checks that no other thread has access at the same time.
    let number = incoming
        .ring
        .words
        .body(incoming.position())
        .with(|body| unsafe { *body });
    incoming.advance(header);
    incoming.release();
    Some(number)
}

/// Accepts each offer, `rounds` times, and sends the session's number in it.
fn sender(model: &Model, rounds: usize) {
    let (ring, mut state, mut present) = (model.ring(), ProducerState::default(), 0);
    for _ in 0..rounds {
        if let Some(number) = model.session().offered(present, RECEIVER, SENDER) {
            model.session().begin(number);
            (state, present) = (ProducerState::default(), number);
        }
        if present != 0 {
            send(ring.outgoing(&mut state), present);
        }
        thread::yield_now();
    }
}

/// Receives for a while once a session is accepted.
fn receive(model: &Model, number: u64) -> Option<u64> {
    let (ring, mut state) = (model.ring(), ConsumerState::default());
    for _ in 0..2 {
        if model.session().is_taken_up(number)
            && let Some(sent) = take(ring.incoming(&mut state))
        {
            return Some(sent);
        }
        thread::yield_now();
    }
    None
}

fn check(threads: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(threads);
}

#[test]
fn leftovers_of_earlier_life_are_never_received() {
    check(|| {
        let model = Model::used();
        let sending = model.clone();
        let thread = thread::spawn(move || sender(&sending, 2));
        model.session().offer(5, RECEIVER, SENDER);
        assert!(receive(&model, 5).is_none_or(|sent| sent == 5));
        thread.join().unwrap();
    });
}

/// Nonsense may end a session; the receiver gets nothing that the sender was sending.
#[test]
fn session_offered_during_another_begins_empty() {
    check(|| {
        let model = Model::used();
        model.session().offer(5, RECEIVER, SENDER);
        model.session().begin(5);
        let (ring, mut state) = (model.ring(), ProducerState::default());
        send(ring.outgoing(&mut state), 5);
        let sending = model.clone();
        let thread = thread::spawn(move || {
            // The sender continues in the first session for a moment.
            send(sending.ring().outgoing(&mut state), 5);
            sender(&sending, 2);
        });
        model.session().offer(6, RECEIVER, SENDER);
        assert!(receive(&model, 6).is_none_or(|sent| sent == 6));
        thread.join().unwrap();
    });
}
