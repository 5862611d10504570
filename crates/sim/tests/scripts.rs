//! Plays every packet script of `tests/scripts`. `TOEHOLD_SCRIPT=word` plays only
//! the scripts with the word in their names.

use std::path::{Path, PathBuf};

use toehold_sim::script::Script;

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the scripts are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pkt"))
        .collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[test]
fn stack_follows_every_script() {
    let word = std::env::var("TOEHOLD_SCRIPT").unwrap_or_default();
    let chosen: Vec<PathBuf> = scripts()
        .into_iter()
        .filter(|path| name(path).contains(&word))
        .collect();
    assert!(!chosen.is_empty(), "no script has `{word}` in its name");
    let mut failures = 0;
    for path in &chosen {
        if let Err(error) = Script::read(path).and_then(|script| script.play()) {
            failures += 1;
            eprintln!("{}.pkt, {error}\n", name(path));
        }
    }
    assert_eq!(failures, 0, "of {} scripts", chosen.len());
}

#[test]
fn every_script_cites_its_clause() {
    for path in scripts() {
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.contains("#= RFC "), "{} cites nothing", name(&path));
    }
}
