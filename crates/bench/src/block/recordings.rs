//! Tests with recorded block traces, which are skipped if the files are absent.

#![allow(clippy::print_stdout, reason = "a skipped test prints a message")]

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
        println!("skipped: the trace {name} is not available");
    }
    found
}

fn replay(file: &Path, configs: &[SetsConfig]) -> Vec<Summary> {
    let mut source = Source::trace(&[file], BlockTraceOptions::default(), 0).expect("a block trace");
    let outcomes = side_by_side(configs, DiskModel::default(), &mut source, &Stop::default(), &|_| {});
    outcomes.expect("a whole trace").into_iter().map(|outcome| outcome.summary).collect()
}

#[test]
fn midpoint_insertion_on_database_trace_hits_as_often_as_lru() {
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
fn write_bypass_on_streams_needs_no_more_disk_operations() {
    let Some(file) = recording("libcachesim/cloudPhysicsIO.vscsi.zst") else { return };
    for preset in [Preset::V2, Preset::V3] {
        let mut config = preset.config(48 << 20);
        config.tuning.write_bypass_bytes = 256 << 10;
        let summary = &replay(&file, &[config])[0];
        let ratio = summary.disk.operations() as f64 / summary.bare.operations() as f64;
        assert!(ratio <= 1.05, "{preset:?}: {ratio:.3}");
        assert!(summary.counters.uncached_sequential_writes > 0, "sequential streams are detected");
    }
}
