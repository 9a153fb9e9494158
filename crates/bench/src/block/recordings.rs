//! Recorded requests, where they are at hand: what must hold beside generated ones.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::path::{Path, PathBuf};

use block::sets::{Preset, SetPolicy, SetsConfig};

use super::source::{BlockTraceOptions, Source};
use super::{DiskModel, Summary, side_by_side};
use crate::run::stop::Stop;

fn recording(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(|folder| PathBuf::from(folder).join("traces"));
    let beside = || {
        let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        parents.map(|parent| parent.join("shared/traces")).find(|folder| folder.is_dir())
    };
    let found = named.or_else(beside).map(|folder| folder.join(name)).filter(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {name} is not here");
    }
    found
}

fn replay(file: &Path, configs: &[SetsConfig]) -> Vec<Summary> {
    let mut source = Source::trace(&[file], BlockTraceOptions::default(), 0).expect("a block trace");
    let outcomes = side_by_side(configs, DiskModel::default(), &mut source, &Stop::default(), &|_| {});
    outcomes.expect("a whole trace").into_iter().map(|outcome| outcome.summary).collect()
}

#[test]
fn on_a_database_the_mid_point_is_never_below_lru() {
    let Some(file) = recording("block/local-mariadb-sysbench-Q.csv.gz") else { return };
    for cache_mib in [16, 48, 128] {
        let two_queues = Preset::V3.config(cache_mib << 20);
        let mut lru = two_queues;
        lru.tuning.policy = SetPolicy::Lru;
        let summaries = replay(&file, &[two_queues, lru]);
        let [ours, lru] = [0, 1].map(|at| summaries[at].counters.hit_percent());
        assert!(ours > lru - 1.0, "{cache_mib} MiB: {ours:.2} % against {lru:.2} % of LRU");
    }
}

#[test]
fn on_streams_the_disk_is_asked_no_oftener_than_without_a_cache() {
    let Some(file) = recording("libcachesim/cloudPhysicsIO.vscsi.zst") else { return };
    for preset in [Preset::V2, Preset::V3] {
        let mut config = preset.config(48 << 20);
        config.tuning.write_bypass_bytes = 256 << 10;
        let summary = &replay(&file, &[config])[0];
        let ratio = summary.disk.operations() as f64 / summary.bare.operations() as f64;
        assert!(ratio <= 1.05, "{preset:?}: {ratio:.3}");
        assert!(summary.counters.uncached_sequential_writes > 0, "streams are told");
    }
}
