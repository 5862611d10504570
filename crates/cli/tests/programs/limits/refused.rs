//! Programs without the library, and programs that also preload another one.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use super::{PROCESSES, compile};
use crate::support::text;
use crate::{LIBRARY, Place, alike};

/// Runs a program that stays with the kernel, and checks the reason that the launcher prints.
fn runs_with_a_word(place: &Place, program: &str, why: &str) -> String {
    let Some(fabrics) = &place.nodes else {
        return place.says(&[program]);
    };
    let mut command = fabrics.command("run --node client --");
    let output = command
        .arg(program)
        .env("TOEHOLD_LIBRARY", &*LIBRARY)
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert!(
        output.status.success() && error.contains(why),
        "{}: {error}",
        output.status
    );
    text(&output.stdout)
}

#[test]
#[ignore = "needs cc"]
fn static_programs_stay_with_the_kernel() {
    alike(0, |place| {
        let program = compile(place, "cc -static", PROCESSES);
        runs_with_a_word(place, &program, "is statically linked")
    });
}

#[test]
#[ignore = "needs root, cc"]
fn setuid_programs_stay_with_kernel() {
    alike(0, |place| {
        let program = compile(place, "cc", PROCESSES);
        let nobody = Some(65534);
        chown(&program, nobody, nobody).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        runs_with_a_word(place, &program, "(set-id)")
    });
}

const HELLO: &str = r#"
static void call(int number, int first, const char *second, int third)
{
    __asm__ volatile("int $0x80" : : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
}
void _start(void)
{
    call(4, 1, "hello\n", 6);
    call(1, 0, 0, 0);
    for (;;) {}
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "needs cc"]
fn programs_of_32_bits_stay_with_kernel() {
    alike(0, |place| {
        let program = place.compile(
            "cc -m32 -static -nostdlib -ffreestanding -fno-pie -no-pie",
            "hello",
            HELLO,
        );
        runs_with_a_word(place, &program, "is a 32-bit program")
    });
}

/// Another `malloc`, loaded and initialised before this library.
const ALLOCATOR: &str = "libjemalloc.so.2";

#[test]
#[ignore = "needs cc, redis-server"] // whose package brings it
fn programs_with_own_allocator_run() {
    alike(0, |place| {
        let program = compile(place, "cc", PROCESSES);
        let mut command = place.command("client", &[&program]);
        let output = command.env("LD_PRELOAD", ALLOCATOR).output().unwrap();
        place.connections_of_client(1);
        (text(&output.stdout), text(&output.stderr), output.status)
    });
}
