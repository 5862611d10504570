use super::*;
use proptest::prelude::*;

fn kind_of(event: &str) -> TraceLine {
    let mut line = b"         python3-41      [001] d.s5. 1000: ".to_vec();
    line.extend_from_slice(event.as_bytes());
    parse_line(&line)
}

fn event(kind: KernelEventKind) -> TraceLine {
    TraceLine::Event(KernelEvent {
        ticks: 1000,
        cpu: 1,
        thread: 41,
        kind,
    })
}

#[test]
fn name_that_looks_like_fields_does_not_change_the_numbers() {
    let found = kind_of(
        "sched_switch: prev_comm= next_pid=666 prev_pid=1 prev_prio=120 prev_state=R ==> \
         next_comm=a next_pid=7 x next_pid=42 next_prio=120",
    );
    assert_eq!(found, event(KernelEventKind::SwitchedTo { thread: 42 }));
    let found = kind_of("sched_waking: comm=a pid=7 prio= pid=43 prio=120 target_cpu=000");
    assert_eq!(found, event(KernelEventKind::Waking { thread: 43 }));
    let hostile = b"a-9 [7] .: b-1-41      [001] d.s5. 1000: sys_sendto(fd: 4)";
    assert_eq!(parse_line(hostile), TraceLine::Malformed);
    let hostile = b"  a-9 [7] . 5: b-41      [001] d.s5. 1000: sys_sendto(fd: 4)";
    assert_eq!(parse_line(hostile), event(KernelEventKind::SendEntered));
    let bytes = b"       \xff\xfe\xc3 [1] d-41      [001] d.s5. 1000: sys_sendto(fd: 4)";
    assert_eq!(parse_line(bytes), event(KernelEventKind::SendEntered));
}

#[test]
fn events_that_are_not_needed_are_no_events() {
    for other in [
        "softirq_entry: vec=1 [action=TIMER]",
        "sk_data_ready: family=1 protocol=0 func=sock_def_readable",
        "sys_recvfrom(fd: 4, ubuf: 0x1, size: 1, flags: 0, addr: 0, addr_len: 0)",
        "sys_sendto -> 0x40",
        "kfree_skb: skbaddr=0 reason=NO_SOCKET",
    ] {
        assert_eq!(kind_of(other), TraceLine::Other, "{other}");
    }
    assert_eq!(parse_line(b""), TraceLine::Other);
    assert_eq!(parse_line(b"# tracer: nop"), TraceLine::Other);
}

#[test]
fn needed_events_without_their_numbers_are_malformed() {
    for broken in [
        "net_dev_queue: dev=lo skbaddr=zz len=9",
        "net_dev_queue: dev=lo skbaddr=12",
        "tcp_probe: family=AF_INET",
        "sched_switch: ",
        "sys_recvfrom -> none",
        "nonsense",
    ] {
        assert_eq!(kind_of(broken), TraceLine::Malformed, "{broken}");
    }
}

#[test]
fn lost_events_are_told_with_their_number() {
    assert_eq!(parse_line(b"CPU:0 [LOST 12 EVENTS]"), TraceLine::Lost(12));
    assert_eq!(parse_line(b"CPU:13 [LOST EVENTS]"), TraceLine::Lost(0));
    assert_eq!(parse_line(b"CPU:0 [LOST x EVENTS]"), TraceLine::Malformed);
}

#[test]
fn error_of_a_call_is_below_zero() {
    let found = kind_of("sys_recvfrom -> 0xfffffffffffffff5");
    assert_eq!(found, event(KernelEventKind::ReceiveExited { returned: -11 }));
}

#[test]
fn times_in_seconds_become_nanoseconds() {
    assert_eq!(parse_ticks("12.000345"), Some(12_000_345_000));
    assert_eq!(parse_ticks("12345"), Some(12345));
    for broken in ["", "1.2", "1.0000001", "x.000001", "18446744073709551615.000000"] {
        assert_eq!(parse_ticks(broken), None, "{broken}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_line_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..120)) {
        parse_line(&line);
    }

    #[test]
    fn line_with_changed_bytes_is_a_line_without_a_panic(
        at in 0_usize..110,
        byte in any::<u8>(),
        cut in 0_usize..120,
    ) {
        let line = b"         python3-31155   [000] b.... 91943646095256: net_dev_queue: dev=lo skbaddr=00000000 len=130";
        let mut line = line.to_vec();
        if let Some(place) = line.get_mut(at) {
            *place = byte;
        }
        line.truncate(cut);
        parse_line(&line);
    }
}
