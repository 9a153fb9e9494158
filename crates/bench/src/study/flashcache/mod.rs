//! "Flashcache at Facebook: From 2010 to 2013 and beyond" (Mituzas, 2013): each claim measured on the core of the block cache.
//!
//! All studies use one workload, eight MySQL servers on one volume ([`InnodbConfig::default`]), a cache of 1/16 of the volume,
//! and five seeds. The workload was calibrated once so that the settings of Flashcache 2 give the article's 60 % hit rate; a
//! study changes only the parameters on its axes. The cache has full size, independent of `--scale`.

pub(super) mod dirty;
pub(super) mod fairness;
pub(super) mod linkbench;
pub(super) mod midpoint;
pub(super) mod scan;
pub(super) mod sets;
pub(super) mod v2_v3;

use block::sets::{Placement, Preset, SetsConfig};
use parking_lot::Mutex;

use super::error::StudyError;
use super::runner::Runner;
use crate::block::source::InnodbConfig;
use crate::block::{DiskModel, ReplayError, Source, Summary, side_by_side};

/// 1/16 of the volume.
const CACHE_BYTES: u64 = 768 << 20;
/// Operations of the servers; the first third is the warm-up.
const OPERATIONS: u64 = 5_000_000;
const WARM_UP: u64 = OPERATIONS / 3;
/// Number of seeds, starting at the runner's.
const SEEDS: u64 = 5;

/// The defaults of Flashcache 2.
fn v2() -> SetsConfig {
    Preset::V2.config(CACHE_BYTES)
}

/// Flashcache 3 with Facebook's settings: hashed runs of 256 KiB, and cleaning of the next victims. Our preset has neither.
fn v3() -> SetsConfig {
    let mut config = placed(ours(), Placement::Hashed { run_bytes: 256 << 10 });
    config.tuning.dirty_percent = 60;
    config.tuning.lazy_depth = 1;
    config
}

/// The preset `v3` of `block create` and `block replay`.
fn ours() -> SetsConfig {
    Preset::V3.config(CACHE_BYTES)
}

/// Settings of version 3 that match the article's busiest systems: smaller runs, and up to 80 % dirty blocks in a set instead
/// of cleaning the next victims.
fn busiest() -> SetsConfig {
    let mut config = placed(v3(), Placement::Hashed { run_bytes: 64 << 10 });
    config.tuning.dirty_percent = 80;
    config.tuning.lazy_depth = 0;
    config
}

fn placed(mut config: SetsConfig, placement: Placement) -> SetsConfig {
    config.geometry.placement = placement;
    config
}

/// Results for each of `configs` and each seed.
fn replay(runner: &Runner, configs: &[SetsConfig]) -> Result<Vec<Vec<Summary>>, StudyError> {
    replay_workload(runner, InnodbConfig::default(), configs)
}

fn replay_workload(
    runner: &Runner,
    workload: InnodbConfig,
    configs: &[SetsConfig],
) -> Result<Vec<Vec<Summary>>, StudyError> {
    let seeds: Vec<u64> = (runner.seed..runner.seed + SEEDS).collect();
    let key = |seed: u64, config: &SetsConfig| format!("{workload:?} {seed} {config:?}");
    runner.each(seeds.len(), |number, advance| {
        let seed = seeds[number];
        let is_missing = |config: &&SetsConfig| !runner.replayed.lock().contains_key(&key(seed, config));
        let missing: Vec<SetsConfig> = configs.iter().filter(is_missing).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut source = Source::innodb(workload, seed, OPERATIONS, WARM_UP);
        let report = |requests: u64| advance(requests as f64 / EXPECTED_REQUESTS);
        let outcomes = side_by_side(&missing, DiskModel::default(), &mut source, &runner.stop, &report)?;
        for (config, outcome) in missing.iter().zip(outcomes) {
            runner.replayed.lock().insert(key(seed, config), outcome.summary);
        }
        Ok(())
    })?;
    let replayed = runner.replayed.lock();
    Ok(configs
        .iter()
        .map(|config| seeds.iter().map(|&seed| replayed[&key(seed, config)].clone()).collect())
        .collect())
}

/// Results for each of `configs` and each seed, with the requests of `made`.
fn replay_source(
    runner: &Runner,
    configs: &[SetsConfig],
    made: impl Fn(u64) -> Source + Sync,
) -> Result<Vec<Vec<Summary>>, StudyError> {
    let seeds: Vec<u64> = (runner.seed..runner.seed + SEEDS).collect();
    let by_seed = Mutex::new(vec![Vec::new(); seeds.len()]);
    runner.each(seeds.len(), |number, advance| {
        let report = |requests: u64| advance(requests as f64 / EXPECTED_REQUESTS);
        let mut source = made(seeds[number]);
        let outcomes = side_by_side(configs, DiskModel::default(), &mut source, &runner.stop, &report)?;
        by_seed.lock()[number] = outcomes.into_iter().map(|outcome| outcome.summary).collect();
        Ok(())
    })?;
    let by_seed: Vec<Vec<Summary>> = by_seed.into_inner();
    let of_config = |place: usize| by_seed.iter().map(|summaries| summaries[place].clone()).collect();
    Ok((0..configs.len()).map(of_config).collect())
}

/// Approximate number of requests, only for the progress bar.
const EXPECTED_REQUESTS: f64 = 3.5e6;

impl From<ReplayError> for StudyError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Interrupted => Self::Interrupted,
            other => Self::Output(other.to_string()),
        }
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// The mean over seeds.
fn mean_of(summaries: &[Summary], value: impl Fn(&Summary) -> f64) -> f64 {
    mean(summaries.iter().map(value))
}

fn hits(summary: &Summary) -> f64 {
    summary.counters.hit_percent()
}

/// Description of the workload for the results.
fn note() -> String {
    format!(
        "eight MySQL servers on 12 GiB, {OPERATIONS} operations of which the first third warms up, 768 MiB of cache, seeds side by side; \
         settings of the workload in docs/flashcache.md"
    )
}
