//! Checks flash paths: each drive is used once, and under one name.

use std::path::Path;

use super::super::findings::{Findings, join};
use super::super::instance::InstanceConfig;
use crate::file_id::is_same;

/// Reports a drive that occurs twice in a stripe.
pub(super) fn check_duplicates(paths: &[String], at: &str, findings: &mut Findings) {
    for (number, path) in paths.iter().enumerate() {
        let same = |other: &String| other == path || is_same(Path::new(other), Path::new(path));
        if let Some(first) = paths[..number].iter().position(same) {
            let message =
                format!("{path} is the same file or drive as [{first}], {}: list each once", paths[first]);
            findings.problem(&format!("{at}[{number}]"), message);
        }
    }
}

/// Checks that instances which share a file or drive name it alike: it is divided among the instances with that name.
pub(super) fn check_shared(one: &InstanceConfig, others: &[InstanceConfig], findings: &mut Findings) {
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
                .problem(&at, format!("{path} is the same file or drive as {other} of another instance: use one name for it to share it"));
        }
    }
}
