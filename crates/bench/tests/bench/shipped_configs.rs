//! Checks the configs that CacheBench ships, which must all be valid.
//!
//! They are searched in `$FLASHWRIGHT_SHARED/cachelib_test_configs`, or in a directory `shared` of a parent of this crate.
//! Without them the tests are skipped with a message.
use std::path::{Path, PathBuf};

use flashwright_bench::config::cachebench::load;
use flashwright_bench::config::{Config, Loaded};

fn shipped() -> Option<PathBuf> {
    let root = match std::env::var_os("FLASHWRIGHT_SHARED") {
        Some(shared) => Some(PathBuf::from(shared)),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|parent| parent.join("shared"))
            .find(|shared| shared.join("cachelib_test_configs").is_dir()),
    };
    let configs = root.map(|root| root.join("cachelib_test_configs"));
    if configs.is_none() {
        println!("skipped: CacheBench's shipped configs are not available");
    }
    configs
}

fn json_files(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            into.push(path);
        }
    }
}

fn load_config(path: &Path) -> Config {
    match load(path, &[]) {
        Ok(Loaded::Config(config)) => *config,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn shipped_118_files_are_valid() {
    let Some(root) = shipped() else { return };
    let mut files = Vec::new();
    json_files(&root, &mut files);
    assert_eq!(files.len(), 118);
    let (mut configs, mut instances, mut refused) = (0, 0, Vec::new());
    for file in &files {
        match load(file, &[]) {
            Ok(Loaded::Config(config)) => {
                configs += 1;
                instances += config.instances.len();
            }
            Ok(Loaded::Part(..)) => {}
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert_eq!((configs, instances), (96, 119));
}

#[test]
fn duplicate_key_in_kvcache_l2_wc_is_warned_about() {
    let Some(root) = shipped() else { return };
    let config = load_config(&root.join("ssd_perf/kvcache_l2_wc/config.json"));
    assert!(config.warnings.iter().any(|warning| warning.at.ends_with("setRatio")), "{:?}", config.warnings);
}

#[test]
fn distribution_files_are_read_into_pools() {
    let Some(root) = shipped() else { return };
    let config = load_config(&root.join("ssd_perf/graph_cache_leader/config.json"));
    let pools = &config.instances[0].pools;
    assert_eq!(pools.len(), 2);
    assert!(pools.iter().all(|pool| pool.value_sizes.len() > 100 && pool.popularity_buckets.len() > 100));
}
