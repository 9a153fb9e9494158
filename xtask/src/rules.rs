//! The house rules that no compiler lint covers: the direction of dependencies, the files that may contain `unsafe`, the longest
//! file, meaningless names, circles of files ([`circles`](crate::circles)), the language of comments and test names
//! ([`prose`](crate::prose)), and links of the documents ([`links`](crate::links)).

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The workspace crates that each crate may depend on. Development dependencies are not restricted.
const ARROWS: &[(&str, &[&str])] = &[
    ("device", &[]),
    ("policy", &[]),
    ("workload", &[]),
    ("block", &["device", "policy"]),
    ("cache", &["device", "policy"]),
    ("ssd", &["device"]),
    ("server", &["cache", "device"]),
    ("bench", &["block", "cache", "device", "policy", "ssd", "workload"]),
    ("daemon", &["block", "device", "ssd"]),
    ("cli", &["bench", "block", "cache", "daemon", "device", "server", "ssd"]),
];

/// The only files that may contain `unsafe`. Each states its reason beside its `allow`.
const UNSAFE: &[&str] = &[
    "crates/block/src/ublk/descriptors.rs",
    "crates/block/src/ublk/ring.rs",
    "crates/cache/src/dram/slab.rs",
    "crates/cache/src/flash/region/buffer.rs",
    "crates/device/src/buffer.rs",
    "crates/device/src/io_paths/ring.rs",
    "crates/device/src/io_paths/thread_ring.rs",
    "crates/device/src/file/discard.rs",
    "crates/device/src/file/loops.rs",
    "crates/device/src/nvme/ioctl.rs",
    "crates/policy/src/prefetch.rs",
    "crates/workload/src/payload/lines.rs",
];

const LONGEST_FILE_LINES: usize = 600;

/// Names of files and folders that do not describe their content.
const EMPTY_NAMES: &[&str] = &["common", "util", "utils", "types", "core", "helpers", "misc"];

/// Checks all rules. The error lists every breach.
pub fn check() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let mut breaches = arrows(root)?;
    let mut files = Vec::new();
    collect(&root.join("crates"), &mut files)?;
    let mut with_unsafe = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        breaches.extend(shape(&name, &text));
        if allows_unsafe(&text) {
            with_unsafe.push(name);
        }
    }
    breaches.extend(unsafe_files(&with_unsafe));
    breaches.extend(crate::circles::check(root, &files)?);
    for folder in ["benches", "fuzz", "python/rust", "xtask"] {
        collect(&root.join(folder), &mut files)?;
    }
    breaches.extend(crate::prose::check(root, &files)?);
    breaches.extend(crate::links::check(root)?);
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n  ")) }
}

/// Dependencies between our crates that [`ARROWS`] does not allow, and crates that it omits.
fn arrows(root: &Path) -> Result<Vec<String>, String> {
    let mut command = MetadataCommand::new();
    let metadata = command.manifest_path(root.join("Cargo.toml")).no_deps().exec();
    let packages = metadata.map_err(|error| format!("cargo metadata: {error}"))?.packages;
    let rooms =
        packages.iter().filter_map(|package| Some((room_of(package.manifest_path.as_std_path())?, package)));
    let mut breaches = Vec::new();
    for (room, package) in rooms {
        let Some((_, may_see)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            breaches.push(format!("crates/{room} is not in ARROWS of xtask/src/rules.rs"));
            continue;
        };
        let normal = package.dependencies.iter().filter(|it| it.kind == DependencyKind::Normal);
        let ours =
            normal.filter_map(|it| it.path.as_ref()?.file_name()).filter(|name| !may_see.contains(name));
        breaches.extend(ours.map(|name| format!("{room} may not depend on {name}")));
    }
    Ok(breaches)
}

/// The folder of a crate under `crates/`.
fn room_of(manifest: &Path) -> Option<&str> {
    let folder = manifest.parent()?;
    (folder.parent()?.file_name()? == "crates").then(|| folder.file_name()?.to_str()).flatten()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() && !path.ends_with("target") {
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
        breaches.push(format!("{name} has {lines} lines, more than {LONGEST_FILE_LINES}: divide the file"));
    }
    let parts = Path::new(name).iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
    for part in parts.filter(|part| EMPTY_NAMES.contains(&part.as_str())) {
        breaches.push(format!("{name}: \"{part}\" does not describe the contents"));
    }
    breaches
}

/// Whether an attribute allows or expects unsafe code, on one line or on several.
fn allows_unsafe(text: &str) -> bool {
    let letters: String = text.split_whitespace().collect();
    ["allow(", "expect("].iter().any(|verb| {
        letters.split(&format!("[{verb}")).skip(1).any(|rest| {
            let lints = rest.split("reason=").next().and_then(|lints| lints.split(")]").next());
            lints.is_some_and(|lints| lints.split(',').any(|lint| lint == "unsafe_code"))
        })
    })
}

fn unsafe_files(found: &[String]) -> Vec<String> {
    let unlisted = found.iter().filter(|name| !UNSAFE.contains(&name.as_str()));
    let gone = UNSAFE.iter().filter(|name| !found.iter().any(|found| found == *name));
    unlisted
        .map(|name| format!("{name} allows unsafe code and is not on the list in xtask/src/rules.rs"))
        .chain(gone.map(|name| format!("{name} is on the list of unsafe files but allows none")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_found_in_attributes_of_any_layout() {
        let reason = "reason = \"why\"";
        assert!(allows_unsafe(&format!("#![allow(unsafe_code, {reason})]")));
        assert!(allows_unsafe(&format!("#![allow(\n    unsafe_code,\n    {reason}\n)]")));
        assert!(allows_unsafe(&format!("#[expect(dead_code, unsafe_code, {reason})] fn f() {{}}")));
        assert!(!allows_unsafe("#[allow(dead_code, reason = \"not unsafe_code\")] fn f() {}"));
        assert!(!allows_unsafe("//! Nothing here is allowed: unsafe_code = \"deny\""));
    }

    #[test]
    fn unlisted_unsafe_file_and_stale_list_entry_are_breaches() {
        let mut found: Vec<String> = UNSAFE.iter().map(|name| (*name).to_owned()).collect();
        assert!(unsafe_files(&found).is_empty());
        found.push("crates/new.rs".to_owned());
        assert!(unsafe_files(&found)[0].starts_with("crates/new.rs allows"));
        found.truncate(1);
        assert_eq!(unsafe_files(&found).len(), UNSAFE.len() - 1);
    }
}
