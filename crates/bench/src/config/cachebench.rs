//! Reads a CacheBench config: one object, or a list of objects for several instances.

use std::fmt;
use std::path::{Path, PathBuf};

use device::names;
use serde_json::{Map, Value};

use super::check;
use super::distribution_files;
use super::findings::{Diagnostic, Findings, join};
use super::grouped::grouped;
use super::instance::InstanceConfig;
use super::keys::{self, CacheConfig, Distribution, PopularityFile, SizesFile, TestConfig};
use super::normalize::normalize_names;
use super::overrides::{self, Override};
use super::schema::{Section, check_names};
use super::text;

/// A config that was read and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Path of the file as the user gave it.
    pub file: PathBuf,
    /// Text of the file, printed under `===JSON Config===`.
    pub text: String,
    /// One entry for each cache to run.
    pub instances: Vec<InstanceConfig>,
    /// Warnings. Those with the same text are merged into one that lists the keys.
    pub warnings: Vec<Diagnostic>,
    /// Name of the model drive that replaces the config's flash paths.
    pub card: Option<String>,
    /// Features that a run of this config needs and that are not supported yet.
    pub later: Vec<Diagnostic>,
}

/// Content of a file that was loaded.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// A config.
    Config(Box<Config>),
    /// A popularity or value size file. It is checked, but there is nothing to run. Holds the name of its kind and the warnings.
    Part(&'static str, Vec<Diagnostic>),
}

/// The errors of a config that cannot be used.
#[derive(Debug, Clone)]
pub struct ConfigError {
    /// Path of the file.
    pub file: PathBuf,
    /// All errors found in the file.
    pub problems: Vec<Diagnostic>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}: {problem}", self.file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Reads and checks `file` after applying `overrides`.
pub fn load(file: &Path, overrides: &[Override]) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|error| ConfigError {
        file: file.to_owned(),
        problems: vec![Diagnostic { at: String::new(), message: format!("cannot be read: {error}") }],
    })?;
    load_text(file, &text, overrides)
}

/// Like [`load`], for a config in memory; `file` is its name in messages and determines its directory.
pub fn load_text(file: &Path, text: &str, overrides: &[Override]) -> Result<Loaded, ConfigError> {
    let mut findings = Findings::new(keys::elsewhere);
    let loaded =
        text::parse(text, &mut findings).and_then(|value| read(file, text, value, overrides, &mut findings));
    match loaded {
        Some(loaded) if findings.problems.is_empty() => Ok(loaded),
        _ => Err(ConfigError { file: file.to_owned(), problems: findings.problems }),
    }
}

fn read(
    file: &Path,
    text: &str,
    mut value: Value,
    overrides: &[Override],
    findings: &mut Findings,
) -> Option<Loaded> {
    if let Some(kind) = distribution_file_kind(&value) {
        distribution_files::check_alone(&value, kind, findings);
        return Some(Loaded::Part(kind, findings.warnings.clone()));
    }
    findings.ignore_unknown = overrides.contains(&Override::IgnoreUnknown);
    overrides::apply(overrides, &mut value, findings);
    let instances = read_instances(file, &value, findings)?;
    let misread = findings.problems.len();
    for instance in &instances {
        check::instance(instance, findings);
    }
    check::together(&instances, findings);
    findings.drop_consequences(misread);
    findings.summarise();
    Some(Loaded::Config(Box::new(Config {
        file: file.to_owned(),
        text: text.to_owned(),
        instances,
        warnings: grouped(&findings.warnings),
        card: overrides.iter().rev().find_map(Override::card),
        later: distinct(&findings.later),
    })))
}

/// Recognises a popularity or value size file by its keys.
fn distribution_file_kind(value: &Value) -> Option<&'static str> {
    let object = value.as_object()?;
    if object.contains_key("test_config") || object.contains_key("cache_config") {
        return None;
    }
    let has = |key: &str| object.contains_key(key);
    if has("popularityBuckets") {
        return Some(PopularityFile::NAME);
    }
    has("valSizeRange").then_some(SizesFile::NAME)
}

fn read_instances(file: &Path, value: &Value, findings: &mut Findings) -> Option<Vec<InstanceConfig>> {
    match value {
        Value::Object(object) => Some(vec![read_instance(file, object, "", findings)]),
        Value::Array(list) if !list.is_empty() => {
            let mut instances = Vec::new();
            for (i, element) in list.iter().enumerate() {
                let at = format!("[{i}]");
                match element.as_object() {
                    Some(object) => instances.push(read_instance(file, object, &at, findings)),
                    None => findings.problem(&at, "expected an object with cache_config and test_config"),
                }
            }
            Some(instances)
        }
        _ => {
            findings.problem(
                "",
                "expected an object with cache_config and test_config, or a list of such objects",
            );
            None
        }
    }
}

fn read_instance(
    file: &Path,
    object: &Map<String, Value>,
    at: &str,
    findings: &mut Findings,
) -> InstanceConfig {
    check_top_level(object, at, findings);
    let cache_at = join(at, "cache_config");
    let test_at = join(at, "test_config");
    let empty = Map::new();
    let cache_object = part(object, "cache_config", &cache_at, findings).unwrap_or(&empty);
    let test_object = part(object, "test_config", &test_at, findings).unwrap_or(&empty);
    check_names(cache_object, &[CacheConfig::KEYS], &cache_at, findings);
    check_names(test_object, &[TestConfig::KEYS, Distribution::KEYS], &test_at, findings);
    let mut test = TestConfig::read(test_object, &test_at, findings);
    let distribution = Distribution::read(test_object, &test_at, findings);
    let directory = base_directory(file, &test);
    let pools = distribution_files::resolve(&test, &distribution, &directory, &test_at, findings);
    let mut cache = CacheConfig::read(cache_object, &cache_at, findings);
    normalize_names(&mut cache, &mut test);
    clamp(&mut cache, &cache_at, findings);
    let names_time_units = test_object.contains_key("timestampFactor");
    InstanceConfig { at: at.to_owned(), cache, test, distribution, pools, names_time_units, directory }
}

/// CacheLib stores these limits in 32 bits. A larger value has the same effect as the 32-bit maximum.
fn clamp(cache: &mut CacheConfig, at: &str, findings: &mut Findings) {
    const MAX: u64 = u32::MAX as u64;
    for (key, value) in [
        ("lruRefreshSec", &mut cache.lru_refresh_seconds),
        ("memoryOnlyTTL", &mut cache.memory_only_ttl_seconds),
        ("nvmAdmissionRetentionTimeThreshold", &mut cache.retention_seconds),
        ("deviceMaxWriteSize", &mut cache.device_max_write_bytes),
        ("eventTrackerQueueSize", &mut cache.event_queue),
    ] {
        if *value > MAX {
            findings.warning(&join(at, key), format!("{value} is above the maximum, {MAX}, which is used"));
            *value = MAX;
        }
    }
}

fn check_top_level(object: &Map<String, Value>, at: &str, findings: &mut Findings) {
    const PARTS: [&str; 2] = ["cache_config", "test_config"];
    for name in object.keys().filter(|name| !PARTS.contains(&name.as_str())) {
        match keys::home_of(name) {
            Some(home) => findings.misplaced_key(&join(at, name), home),
            None => findings.unknown_key(&join(at, name), names::nearest(name, PARTS.into_iter())),
        }
    }
    if !object.contains_key("test_config") {
        findings.problem(at, "test_config is missing");
    }
}

fn part<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    at: &str,
    findings: &mut Findings,
) -> Option<&'a Map<String, Value>> {
    let value = object.get(name)?;
    if !value.is_object() {
        findings.problem(at, "expected an object");
    }
    value.as_object()
}

fn base_directory(file: &Path, test: &TestConfig) -> PathBuf {
    if test.config_path.is_empty() {
        file.parent().map_or_else(PathBuf::new, Path::to_owned)
    } else {
        PathBuf::from(&test.config_path)
    }
}

/// Keeps one line for each feature, at the first key that needs it.
fn distinct(later: &[Diagnostic]) -> Vec<Diagnostic> {
    let mut kept: Vec<Diagnostic> = Vec::new();
    for remark in later {
        if !kept.iter().any(|seen| seen.message == remark.message) {
            kept.push(remark.clone());
        }
    }
    kept
}

impl Config {
    /// The config with overrides and defaults; a list if there are several instances.
    #[must_use]
    pub fn as_run(&self) -> Value {
        let mut instances: Vec<Value> = self.instances.iter().map(InstanceConfig::as_run).collect();
        if instances.len() == 1 { instances.remove(0) } else { Value::Array(instances) }
    }
}
