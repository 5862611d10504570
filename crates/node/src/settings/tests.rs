use std::collections::HashSet;

use super::{NodeSettings, Setting, TABLE, document};

fn set(name: &str, value: &str) -> Result<String, String> {
    let setting = Setting::named(name).unwrap();
    let mut settings = NodeSettings::default();
    let done = setting.set(&mut settings, value);
    done.map(|()| setting.get(&settings))
        .map_err(|error| error.to_string())
}

#[test]
fn every_setting_has_a_name_and_a_default_of_its_own() {
    let names: HashSet<_> = TABLE.iter().map(|setting| setting.name).collect();
    let variables: HashSet<_> = TABLE.iter().map(|setting| setting.variable).collect();
    assert_eq!((names.len(), variables.len()), (TABLE.len(), TABLE.len()));
    NodeSettings::default().check().unwrap();
    for setting in TABLE {
        assert_eq!(set(setting.name, &setting.default()), Ok(setting.default()));
        assert!(set(setting.name, "non/sense").is_err(), "{}", setting.name);
    }
}

#[test]
fn values_are_read_and_written_alike() {
    for (name, value, shown) in [
        ("ipv4", "10.1.2.3/8", "10.1.2.3/8"),
        ("ipv6", "fd00::9/64", "fd00::9/64"),
        ("mac", "02:00:00:00:00:2A", "02:00:00:00:00:2a"),
        ("payload-memory", "1048577", "1048577"),
        ("payload-memory", "2048K", "2M"),
        ("payload-memory", "1T", "1T"),
        ("zero-copy", "off", "no"),
        ("placement", "engine", "engine"),
        ("demux", "sequent", "sequent:19"),
        ("demux", "hashed-move-to-front:7", "hashed-move-to-front:7"),
        ("tap", "toe0", "toe0"),
        ("netns", "web.1", "web.1"),
        ("netns", "/proc/1/ns/net", "/proc/1/ns/net"),
        ("drain", "1500ms", "1s 500ms"),
    ] {
        assert_eq!(set(name, value).as_deref(), Ok(shown));
    }
}

#[test]
fn what_is_out_of_range_is_refused_with_the_range() {
    for (name, value) in [
        ("ipv4", "10.77.0.0/16"),
        ("ipv4", "10.77.255.255/16"),
        ("ipv4", "224.0.0.1/4"),
        ("ipv4", "10.0.0.1/33"),
        ("ipv6", "ff02::1/64"),
        ("mac", "03:00:00:00:00:01"),
        ("mtu", "67"),
        ("mtu", "65522"),
        ("ring", "65537"),
        ("ring", "32M"),
        ("peers", "0"),
        ("connections", "0"),
        ("connections", "16000001"),
        ("payload-memory", "1023K"),
        ("payload-memory", "99999999999999999T"),
        ("shards", "17"),
        ("demux", "sequent:0"),
        ("drain", "2h"),
        ("tap", "a-name-too-long-by-far"),
        ("tap", "a b"),
        ("netns", ".."),
        ("netns", "a/b"),
        ("netns", "/proc/self/fd/3"),
    ] {
        assert!(set(name, value).is_err(), "{name} {value}");
    }
    let said = set("connections", "0").unwrap_err();
    assert_eq!(said, "connections cannot be \"0\"; choose 1 to 16000000");
    let settings = NodeSettings {
        peers: 1000,
        ..NodeSettings::default()
    };
    assert_eq!(settings.check().unwrap_err().name, "peers");
}

#[test]
fn only_changes_are_handed_on() {
    let settings = NodeSettings {
        connections: 7,
        ..NodeSettings::default()
    };
    let changed: Vec<_> = settings
        .changed()
        .map(|(setting, value)| (setting.name, value))
        .collect();
    assert_eq!(changed, [("connections", "7".to_owned())]);
}

/// The documentation's table is this one.
#[test]
fn the_documentation_lists_every_setting() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.contains(&document()),
        "docs/settings.md has another table; it should be:\n{}",
        document()
    );
}
