//! Runs each target on its seeds, without a fuzzer, as a regression test.

use std::path::{Path, PathBuf};

use flashwright_fuzz::TARGETS;

/// The seeds of a target, and the shipped files of the same kind.
fn seeds(target: &str) -> Vec<PathBuf> {
    let room = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = match target {
        "cachebench_config" => Some(room.join("../examples")),
        "drive_card" => Some(room.join("../crates/ssd/cards")),
        _ => None,
    };
    let folders = [Some(room.join("seeds").join(target)), shipped];
    let folders = folders.into_iter().flatten().filter(|folder| folder.is_dir());
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).expect("the folder can be read"));
    let paths = entries.map(|entry| entry.expect("the entry can be read").path());
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn every_target_passes_on_its_seeds() {
    for (target, check) in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{target} has no seeds");
        check(&[]);
        for seed in seeds {
            println!("{target}: {}", seed.display());
            check(&std::fs::read(&seed).expect("the seed can be read"));
        }
    }
}

#[test]
fn every_target_has_a_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let files = std::fs::read_dir(folder).expect("the folder exists").count();
    assert_eq!(files, TARGETS.len());
}
