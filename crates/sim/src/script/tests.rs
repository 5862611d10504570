use super::*;

fn parse_error(text: &str) -> (usize, String) {
    let error = Script::parse(text).expect_err("malformed");
    (error.line, error.message)
}

fn play(text: &str) -> Result<(), ScriptError> {
    Script::parse(text).expect("well-formed").play()
}

const HANDSHAKE: &str = "
+0 L = listen 80
+0 < S 0:0(0) win 1000 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0.01 < . 1:1(0) ack 1 win 1000
+0 C = accept L
";

#[test]
fn invalid_line_is_named_in_error() {
    for (text, line, part) in [
        ("\n\n+0 lisen 80", 3, "`lisen` is no event"),
        ("config mtu on", 1, "no number"),
        ("config color red", 1, "no setting"),
        ("0 wait", 1, "no time"),
        ("* close C", 1, "only an expected packet"),
        ("+0 < S 0:1(0)", 1, "not 0 bytes"),
        ("+0 < X 0:0(0)", 1, "`X` is no flag"),
        ("+0 < . 0:0(0)", 1, "go together"),
        ("+0 < S 0:0(0) <mss 70000>", 1, "too large"),
        ("+0 < S 0:0(0) <mss 1460", 1, "without `>`"),
        ("+0 < S 0:0(0) <raw 123>", 1, "pairs"),
        ("+0 < S 0:0(0) win 65536", 1, "16 bits"),
        ("+0", 1, "no event"),
    ] {
        let (found, message) = parse_error(text);
        assert_eq!(found, line, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn handshake_plays() {
    play(HANDSHAKE).expect("the handshake plays");
}

#[test]
fn deviation_of_stack_returns_error() {
    for (more, part) in [
        ("+0 > . 1:1(0) ack 1", "nothing was sent"),
        ("+0 close C\n+0 > F. 1:1(0) ack 2", "acknowledgement is 1, not 2"),
        ("+0 close C\n+0 > R. 1:1(0) ack 1", "flags are F."),
        (
            "+0 close C\n+0.1 > F. 1:1(0) ack 1",
            "was sent at 0.010000, not at 0.110000",
        ),
        ("+0 close C", "was not expected"),
        ("+0 send C 10\n+0 > . 1:6(5) ack 1", "payload length is 10, not 5"),
        ("+0 state C FinWait1", "state is Established"),
        ("+0 receive C 5", "the call failed: WouldBlock"),
        ("+0 accept L => error NotFound", "the call failed: WouldBlock"),
        ("+0 counter tcp_passive_opens == 2", "tcp_passive_opens is 1"),
        ("+0 state D Established", "nothing has the name `D`"),
        (
            "+0 < P. 1:6(5) ack 1\n+0 > . 1:1(0) ack 6\n+0 receive C 9 => 1:5",
            "the call gave `1:6`",
        ),
    ] {
        let error = play(&format!("{HANDSHAKE}{more}")).expect_err(more);
        assert!(error.message.contains(part), "{more}: {error}");
        assert!(error.line > 5, "{more}: {error}");
    }
}

#[test]
fn chosen_initial_sequence_number_is_used() {
    for isn in [0, 77, 0x8000_0000, u32::MAX] {
        // After `forget`, absolute numbers show.
        let next = isn.wrapping_add(1);
        let script = format!(
            "config local_isn {isn}\nconfig remote_isn 0xffffffff\n{HANDSHAKE}
            +0 forget\n+0 close C\n+0 > F. {next}:{next}(0) ack 1"
        );
        play(&script).expect("the script plays");
    }
}
