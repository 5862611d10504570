//! A host that panics in the control thread.

use super::super::server::MAX_PANICS;
use super::*;

fn served() -> Served {
    Served::beside(Lifetime::UntilTold, Limits::default(), |host| host.panics = true)
}

#[test]
fn client_whose_request_panics_is_hung_up_on_and_others_are_served() {
    let served = served();
    let other = served.raw();
    other.attach(&served);
    let asking = served.raw();
    asking.attach(&served);
    asking.send(br#""counters""#);
    assert!(asking.answer().is_none());
    assert_eq!(served.told(), Told::BegunAnew);
    assert_eq!(served.told(), Told::Detached(2));
    other.send(br#""sockets""#);
    assert!(matches!(other.answer(), Some(Answer::Sockets(_))));
    drop(other);
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

#[test]
fn server_that_panics_again_and_again_ends() {
    let mut served = served();
    for _ in 0..=MAX_PANICS {
        let asking = served.raw();
        asking.send(br#""counters""#);
        assert!(asking.answer().is_none());
    }
    let ended = served.thread.take().unwrap().join();
    assert!(ended.is_err());
    let anew = served.told.try_iter().collect::<Vec<_>>();
    assert_eq!(anew.len(), MAX_PANICS as usize);
}
