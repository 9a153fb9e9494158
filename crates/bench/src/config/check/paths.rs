//! Where flash is: each drive once, and by one name.

use std::path::Path;

use super::super::cachebench::InstanceConfig;
use super::super::knob::Findings;
use super::super::text::join;
use crate::file_id::is_same;

/// A cache is not striped over one drive twice.
pub(super) fn once(paths: &[String], at: &str, findings: &mut Findings) {
    for (number, path) in paths.iter().enumerate() {
        let same = |other: &String| other == path || is_same(Path::new(other), Path::new(path));
        if let Some(first) = paths[..number].iter().position(same) {
            let words = format!(
                "{path} is [{first}], {}, again: a cache is not striped over one twice",
                paths[first]
            );
            findings.problem(&format!("{at}[{number}]"), words);
        }
    }
}

/// Instances share a file or drive only under one name, by which it is divided among them.
pub(super) fn among(one: &InstanceConfig, others: &[InstanceConfig], findings: &mut Findings) {
    let at = join(&join(&one.at, "cache_config"), "nvmCachePaths");
    let of_others = || others.iter().flat_map(|other| &other.cache.nvm_paths);
    for path in &one.cache.nvm_paths {
        if of_others().any(|other| other == path) {
            findings.warning(&at, format!("{path} is shared by several instances: each gets its own part"));
            continue;
        }
        let is_it =
            |other: &&String| !Path::new(other).is_dir() && is_same(Path::new(other), Path::new(path));
        if let Some(other) = of_others().find(is_it) {
            findings
                .problem(&at, format!("{path} is another instance's {other}: give it one name to share it"));
        }
    }
}
