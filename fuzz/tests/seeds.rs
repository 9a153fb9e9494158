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
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).expect("it is a folder"));
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

#[test]
fn every_target_runs_through_its_seeds() {
    for (target, check) in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{target} has no seeds");
        check(&[]);
        for seed in seeds {
            println!("{target}: {}", seed.display());
            check(&std::fs::read(&seed).expect("it can be read"));
        }
    }
}

#[test]
fn every_target_has_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let files = std::fs::read_dir(folder).expect("it is there").count();
    assert_eq!(files, TARGETS.len());
}
