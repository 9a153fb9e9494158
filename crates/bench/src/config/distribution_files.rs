//! Reads popularity and value size files into the distributions that name them.

use std::path::Path;

use serde_json::Value;

use super::check;
use super::findings::{Findings, join};
use super::keys::{self, Distribution, PopularityFile, SizesFile, TestConfig};
use super::schema::{Section, read_section};
use super::text;

/// Returns the distributions in use: `poolDistributions`, or the one in `test_config` itself, with their files read.
pub fn resolve(
    test: &TestConfig,
    own: &Distribution,
    directory: &Path,
    at: &str,
    findings: &mut Findings,
) -> Vec<Distribution> {
    if test.pool_distributions.is_empty() {
        return vec![resolve_one(own, directory, at, findings)];
    }
    let path = |i: usize| format!("{}[{i}]", join(at, "poolDistributions"));
    let pools = test.pool_distributions.iter().enumerate();
    pools.map(|(i, pool)| resolve_one(pool, directory, &path(i), findings)).collect()
}

fn resolve_one(typed: &Distribution, directory: &Path, at: &str, findings: &mut Findings) -> Distribution {
    let mut resolved = typed.clone();
    if let Some(file) =
        read_file::<SizesFile>(directory, &typed.value_sizes_file, &join(at, "valSizeDistFile"), findings)
    {
        resolved.value_sizes = file.sizes;
        resolved.value_size_weights = file.weights;
    }
    if let Some(file) =
        read_file::<PopularityFile>(directory, &typed.popularity_file, &join(at, "popDistFile"), findings)
    {
        resolved.popularity_buckets = file.buckets;
        resolved.popularity_weights = file.weights;
    }
    resolved
}

fn read_file<S: Section>(directory: &Path, name: &str, at: &str, findings: &mut Findings) -> Option<S> {
    if name.is_empty() {
        return None;
    }
    let path = directory.join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            findings.problem(at, format!("{} cannot be read: {error}", path.display()));
            return None;
        }
    };
    let mut inside = Findings::new(keys::elsewhere);
    let section = text::parse(&text, &mut inside).and_then(|value| read_section(&value, "", &mut inside));
    // Warnings about legacy keys of the file are dropped: the user reads the config, not the file. Errors are passed on.
    for problem in inside.problems {
        findings.problem(at, format!("{}: {problem}", path.display()));
    }
    section
}

/// Checks a popularity or size file that was given in place of a config.
pub fn check_alone(value: &Value, kind: &str, findings: &mut Findings) {
    if kind == PopularityFile::NAME {
        if let Some(file) = read_section::<PopularityFile>(value, "", findings) {
            check::popularity(&file.buckets, &file.weights, "", findings);
        }
    } else if let Some(file) = read_section::<SizesFile>(value, "", findings) {
        check::sizes(&file.sizes, &file.weights, ("valSizeRange", "valSizeRangeProbability"), "", findings);
    }
}
