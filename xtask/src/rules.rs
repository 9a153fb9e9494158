//! The rules of the house that no compiler lint covers: which way the arrows point, where `unsafe` may stand, how long a
//! file may grow, and which names are no names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may see of ours. Development dependencies are free.
const ARROWS: &[(&str, &[&str])] = &[
    ("device", &[]),
    ("policy", &[]),
    ("workload", &[]),
    ("cache", &["device", "policy"]),
    ("ssd", &["device"]),
    ("bench", &["cache", "device", "policy", "ssd", "workload"]),
    ("cli", &["bench", "ssd"]),
];

/// The only files that may hold `unsafe`, and why.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/device/src/buffer.rs", "aligned allocation"),
    ("crates/device/src/file/discard.rs", "an ioctl"),
    ("crates/device/src/nvme/ioctl.rs", "an ioctl"),
    ("crates/device/src/carry/ring.rs", "io_uring takes and returns raw pointers"),
];

const LONGEST_FILE_LINES: usize = 600;

/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["common", "util", "utils", "types", "core", "helpers", "misc"];

/// Checks all rules; the error lists every breach.
pub fn check() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let mut breaches = Vec::new();
    for (room, may_see) in ARROWS {
        breaches.extend(arrows(root, room, may_see)?);
    }
    let mut files = Vec::new();
    collect(&root.join("crates"), &mut files)?;
    let mut with_unsafe = BTreeMap::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        breaches.extend(shape(&name, &text));
        if text.contains("allow(unsafe_code") {
            with_unsafe.insert(name, ());
        }
    }
    breaches.extend(unsafe_files(&with_unsafe));
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n  ")) }
}

fn arrows(root: &Path, room: &str, may_see: &[&str]) -> Result<Vec<String>, String> {
    let manifest = root.join("crates").join(room).join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
    let dependencies = text.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
    let ours: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    Ok(dependencies
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| ours.contains(name) && !may_see.contains(name))
        .map(|name| format!("{room} may not see {name}"))
        .collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn shape(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST_FILE_LINES {
        breaches.push(format!("{name} has {lines} lines, more than {LONGEST_FILE_LINES}: divide the room"));
    }
    let parts = Path::new(name).iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
    for part in parts.filter(|part| EMPTY_NAMES.contains(&part.as_str())) {
        breaches.push(format!("{name}: \"{part}\" says nothing of what is inside"));
    }
    breaches
}

fn unsafe_files(found: &BTreeMap<String, ()>) -> Vec<String> {
    let listed: Vec<&str> = UNSAFE.iter().map(|(name, _)| *name).collect();
    let unlisted = found.keys().filter(|name| !listed.contains(&name.as_str()));
    let gone = listed.iter().filter(|name| !found.contains_key(**name));
    unlisted
        .map(|name| format!("{name} allows unsafe code and is not on the list in xtask/src/rules.rs"))
        .chain(gone.map(|name| format!("{name} is on the list of unsafe files but allows none")))
        .collect()
}
