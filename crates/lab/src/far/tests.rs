use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A program in place of `ssh` that runs `script`. The last of its words is the command for the far
/// machine.
struct Pretends {
    place: tempfile::TempDir,
}

impl Pretends {
    fn to(script: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let pretends = Self { place };
        fs::write(pretends.ssh(), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(pretends.ssh(), fs::Permissions::from_mode(0o755)).unwrap();
        pretends
    }

    fn ssh(&self) -> PathBuf {
        self.place.path().join("ssh")
    }

    fn far(&self) -> Far {
        Far {
            host: "there".into(),
            ssh: format!("{} -p 22", self.ssh().display()),
            toehold: "toehold".into(),
            address: None,
        }
    }

    fn refusal(script: &str) -> String {
        let pretends = Self::to(script);
        pretends.far().meet().unwrap_err()
    }
}

fn json(of: &impl Serialize) -> String {
    serde_json::to_string_pretty(of).unwrap()
}

/// Prints both answers.
fn answers(build: &Build, reached: Option<&str>) -> String {
    let about = About {
        host: Host::read(),
        reached: reached.map(|address| address.parse().unwrap()),
    };
    format!("cat <<'END'\n{}\n{}\nEND", json(build), json(&about))
}

#[test]
fn machine_with_same_build_is_accepted() {
    let script = answers(&Build::this(), Some("127.0.0.1"));
    let pretends = Pretends::to(&format!("echo \"$*\" > \"$(dirname \"$0\")/asked\"\n{script}"));
    let met = pretends.far().meet().unwrap();
    let local = Ipv4Addr::LOCALHOST;
    assert_eq!(
        met.path,
        Path {
            server: local,
            client: local
        }
    );
    let asked = fs::read_to_string(pretends.place.path().join("asked")).unwrap();
    assert!(asked.starts_with("-p 22 -T -o BatchMode=yes"), "{asked}");
    let line = " -- there 'toehold' version --json && 'toehold' lab-far --about\n";
    assert!(asked.ends_with(line), "{asked}");
}

#[test]
fn given_address_takes_precedence_over_reached_one() {
    let pretends = Pretends::to(&answers(&Build::this(), Some("::1")));
    let refusal = pretends.far().meet().unwrap_err();
    assert!(refusal.contains("--far-address"), "{refusal}");
    let mut far = pretends.far();
    far.address = Some(Ipv4Addr::LOCALHOST);
    assert_eq!(far.meet().unwrap().path.server, Ipv4Addr::LOCALHOST);
}

#[test]
fn other_build_is_refused_with_both_versions() {
    let mut other = Build::this();
    other.commit = "0123456789abcdef0123456789abcdef01234567".into();
    let refusal = Pretends::refusal(&answers(&other, Some("127.0.0.1")));
    assert!(refusal.contains("there has another build"), "{refusal}");
    assert!(refusal.contains("commit 0123456789ab"), "{refusal}");
    // A build that is older than measurements between machines.
    let script = format!(
        "cat <<'END'\n{}\nEND\necho usage >&2; exit 2",
        json(&Build::this())
    );
    let refusal = Pretends::refusal(&script);
    assert!(
        refusal.contains("exit status: 2") && refusal.contains("usage"),
        "{refusal}"
    );
}

#[test]
fn unreachable_machine_is_reported_with_message_of_ssh() {
    let refusal = Pretends::refusal("echo 'banner' >&2; echo 'ssh: no route' >&2; exit 255");
    assert_eq!(refusal, "cannot reach there: ssh: no route");
    let refusal = Pretends::refusal("echo 'sh: toehold: not found' >&2; exit 127");
    assert!(refusal.contains("there is no `toehold` on there"), "{refusal}");
    assert!(refusal.contains("--far-toehold"), "{refusal}");
    let refusal = Pretends::refusal("echo welcome");
    assert!(refusal.contains("does not say what it is"), "{refusal}");
    let refusal = Pretends::refusal("echo '{}'");
    assert!(refusal.contains("says something else"), "{refusal}");
    let mut nowhere = Pretends::to("true").far();
    nowhere.ssh = "/nowhere/ssh".into();
    let refusal = nowhere.meet().unwrap_err();
    assert!(refusal.contains("openssh-client"), "{refusal}");
}

#[test]
fn far_command_is_one_word_to_its_shell() {
    for (path, expected) in [
        ("toehold", "'toehold'"),
        ("/opt/a b/toehold", "'/opt/a b/toehold'"),
        ("~/bin/toehold", "~/'bin/toehold'"),
        ("~user/bin/toehold", "~user/'bin/toehold'"),
        ("~$(id)/toehold", "'~$(id)/toehold'"),
        ("x; rm -rf /; 'y", r"'x; rm -rf /; '\''y'"),
    ] {
        assert_eq!(super::quoted(path), expected);
    }
}
