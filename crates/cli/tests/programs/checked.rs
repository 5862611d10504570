//! Programs under checkers such as valgrind.

use std::process::Command;

use crate::alike;

/// Regression: they ended at once, or reported memory that the library had leaked.
#[test]
#[ignore = "needs cc, valgrind"]
fn programs_run_under_checker() {
    const HOW: [(&str, &[&str]); 4] = [
        ("-fsanitize=address", &[]),
        ("-fsanitize=leak", &[]),
        ("-fsanitize=thread", &[]),
        ("-pthread", &["valgrind", "--quiet"]),
    ];
    alike(1, |place| {
        let source = place.file("checked.c", include_str!("checked.c"));
        HOW.map(|(option, under)| {
            let program = place.path("checked");
            let mut compiler = Command::new("cc");
            let options = ["-g", "-O1", "-pthread", option, "-o", &program, &source];
            assert!(compiler.args(options).status().unwrap().success());
            let port = place.port.to_string();
            let server = place.serve(&[under, &[&*program, &port]].concat());
            let said = place.says(&[under, &[&*program, &port, place.address()]].concat());
            (option, said, server.wait())
        })
    });
}
