//! Random calls at both ends against queues of bytes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Call {
    Send(usize),
    Receive(usize),
    Peek(usize),
    Shut,
    Wait,
}

fn call() -> impl Strategy<Value = (bool, Call)> {
    let len = prop_oneof![0_usize..200, 0_usize..40_000, Just(300_000)];
    let call = prop_oneof![
        6 => len.clone().prop_map(Call::Send),
        6 => len.clone().prop_map(Call::Receive),
        2 => len.prop_map(Call::Peek),
        1 => Just(Call::Wait),
        1 => Just(Call::Shut),
    ];
    (any::<bool>(), call)
}

/// The expected state of one direction.
#[derive(Default)]
struct Model {
    bytes: VecDeque<u8>,
    next: u8,
    is_shut: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn calls_at_both_ends_do_what_two_queues_do(
        calls in proptest::collection::vec(call(), 1..60),
        window in prop_oneof![Just(1_u64), Just(5000), Just(70_000), Just(4 << 20)],
        bound in prop_oneof![Just(40_u64 << 10), Just(64 << 20)],
    ) {
        let pair = Pair::within(bound, Class::M4);
        let (client, server) = pair.connect_with(window);
        let ends = [(&client, &pair.client), (&server, &pair.server)];
        let mut models = [Model::default(), Model::default()];
        for (side, call) in calls {
            let (here, there) = (usize::from(side), usize::from(!side));
            let (end, node) = ends[here];
            match call {
                Call::Send(len) => {
                    let model = &mut models[here];
                    let bytes: Vec<u8> = (0..len).map(|at| model.next.wrapping_add(at as u8)).collect();
                    match end.send(node.thread, &[IoSlice::new(&bytes)]) {
                        Ok(sent) => {
                            prop_assert!(!model.is_shut && (sent > 0 || len == 0));
                            model.bytes.extend(&bytes[..sent]);
                            model.next = model.next.wrapping_add(sent as u8);
                            prop_assert!(model.bytes.len() as u64 <= window.max(MOST_WINDOW));
                        }
                        Err(SendError::Full) => prop_assert!(!model.bytes.is_empty()),
                        Err(SendError::Shut) => prop_assert!(model.is_shut),
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Call::Receive(len) | Call::Peek(len) => {
                    let take = if matches!(call, Call::Peek(_)) { Take::Peek } else { Take::Remove };
                    let model = &mut models[there];
                    match receive(end, node.thread, len, take) {
                        Ok(bytes) => {
                            let expected = model.bytes.len().min(len);
                            prop_assert_eq!(bytes.len(), expected);
                            prop_assert!(bytes.iter().eq(model.bytes.iter().take(expected)));
                            prop_assert!(!model.bytes.is_empty() || model.is_shut);
                            if take == Take::Remove {
                                model.bytes.drain(..expected);
                            }
                        }
                        Err(ReceiveError::Empty) => {
                            prop_assert!(model.bytes.is_empty() && !model.is_shut);
                        }
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Call::Shut => {
                    end.shut_write(node.thread).unwrap();
                    models[here].is_shut = true;
                }
                Call::Wait => {
                    let wish = Wish { read: Some(1), edge: false, room: true };
                    let look = end.arm(node.thread, node.waiter, wish).unwrap();
                    prop_assert_eq!(look.readable, models[there].bytes.len() as u64);
                    let is_over = look.peer != StreamState::Open;
                    prop_assert_eq!(is_over, models[there].is_shut);
                    prop_assert_eq!(end.unread_by_peer(), models[here].bytes.len() as u64);
                }
            }
        }
    }
}
