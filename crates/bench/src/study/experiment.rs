//! One run of a study: the cache engine on the model drive, until the drive is steady.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use ssd::Stats;

use super::error::StudyError;
use super::runner::{Measure, Runner};
use crate::config::Loaded;
use crate::config::cachebench::load_text;
use crate::config::{DeviceSpec, Override};
use crate::jobs::mixed::Mixed;
use crate::moment::Moment;
use crate::run::latency::Histogram;
use crate::run::model_drive::ModelDrive;
use crate::run::stop::{Stop, StopReason};
use crate::run::{Observable, Watcher};
use crate::session::{Session, SessionError, SessionOptions};

/// Usable bytes of the paper's drive, in the unit of `nvmCacheSizeMB`.
const DRIVE_MIB: f64 = 1.88e12 / 1048576.0;
/// The card of that drive.
pub(super) const CARD: &str = "pm9d3";
/// Mean size of a key with its value.
const SMALL_MEAN_BYTES: f64 = 450.0;
const LARGE_MEAN_BYTES: f64 = 6030.0;
/// Bytes that the flash write of a small object takes: its bucket.
const BUCKET_BYTES: f64 = 4096.0;
/// Offered load of all caches together: low enough for the drive in both modes, so that latencies are comparable.
const OPS_PER_SECOND: u64 = 150_000;
/// Total size of all objects of a kind, relative to flash.
const WORKING_SET: f64 = 2.0;
/// Host writes of the warm-up, in drive capacities: at least this many, until the ring of regions has gone round twice, and until
/// each bucket has been rewritten twelve times on average. Before the first turn of the ring, write amplification without placement
/// is low. Buckets that were never written are spare space. Their keys are unequally popular: with 90 % of flash in buckets, 3 % are
/// unwritten after six rewrites on average, and write amplification without placement is then 2.9 for 3.4.
const WARM_CAPACITIES: f64 = 5.0;
const WARM_TURNS: f64 = 2.0;
const WARM_REWRITES: f64 = 12.0;
/// Host writes that are counted, in drive capacities.
const COUNTED_CAPACITIES: f64 = 2.5;
/// Collection begins before this amount of host writes.
const COLLECTS: f64 = 1.5;
/// Interval of the curve over time, in drive capacities.
const INTERVAL_CAPACITIES: f64 = 0.125;

/// Parameters of a run; everything else is the same in all runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// Workload.
    pub mix: Mix,
    /// Flash of the cache, as a share of the drive.
    pub utilisation: f64,
    /// Small-object cache, percent of flash.
    pub soc_percent: u32,
    /// DRAM, MB at full size.
    pub dram_mb: u32,
    /// Number of caches that share the drive.
    pub tenants: u32,
    /// Whether writes use placement.
    pub placement: bool,
}

/// The paper's workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Meta's key-value cache: four gets per set (paper §6.1).
    KvCache,
    /// Twitter's cluster 12: four sets per get (paper §6.1).
    Twitter,
    /// The sets of the key-value cache alone (paper §6.1).
    WriteOnly,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Write amplification of the drive in steady state.
    pub dlwa: f64,
    /// Mean of the curve from the beginning of collection to the first turn of the ring of regions; NaN if it has no such point.
    pub dlwa_before_wrap: f64,
    /// Write amplification over time: host writes in drive capacities, and the value of the interval.
    pub curve: Vec<(f64, f64)>,
    /// Write amplification of the cache.
    pub alwa: f64,
    /// Hits per get.
    pub hit_ratio: f64,
    /// Operations per virtual second.
    pub throughput: f64,
    /// 99th percentile read latency of the drive.
    pub read_p99_ns: u64,
    /// 99th percentile write latency of the drive.
    pub write_p99_ns: u64,
    /// Garbage collections with live data per drive capacity of host writes.
    pub gc_events: f64,
    /// Share of the written bytes that came from buckets.
    pub soc_write_share: f64,
}

impl Mix {
    /// Shares of gets and sets, as CacheBench's ratios.
    fn ratios(self) -> (f64, f64) {
        match self {
            Self::KvCache => (0.8, 0.2),
            Self::Twitter => (0.2, 0.8),
            Self::WriteOnly => (0.0, 1.0),
        }
    }
}

impl Experiment {
    /// The paper's default run (§6.1): 42 GB of DRAM, 4 % of flash for small objects, the whole drive in use.
    #[must_use]
    pub fn usual(mix: Mix, placement: bool) -> Self {
        Self { mix, utilisation: 1.0, soc_percent: 4, dram_mb: 43_000, tenants: 1, placement }
    }

    /// The cache's writes, as the closed form of write amplification takes them.
    fn writes(&self, bucket_writes: f64) -> Mixed {
        Mixed {
            used: self.utilisation,
            random_space: f64::from(self.soc_percent) / 100.0,
            random_writes: bucket_writes,
            has_placement: self.placement,
        }
    }

    /// CacheBench config at full size, with a share of the written bytes for buckets.
    #[must_use]
    pub fn config(&self, bucket_writes: f64) -> String {
        let flash_mib = DRIVE_MIB * self.utilisation / f64::from(self.tenants);
        let mut text = String::from("[");
        for tenant in 0..self.tenants {
            let comma = if tenant > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{}", self.instance(flash_mib, bucket_writes));
        }
        text + "]"
    }

    /// One instance with two pools: values of 50 to 800 bytes, which go to buckets, and of 3 to 9 kB, which go to regions. Each
    /// pool has more data than flash, so that all of flash is used. Misses are not filled, so that the writes do not depend on
    /// hits.
    fn instance(&self, flash_mib: f64, bucket_writes: f64) -> String {
        let keys_of = |mean_bytes: f64| WORKING_SET * flash_mib * 1048576.0 / mean_bytes;
        let (small, large) = (keys_of(SMALL_MEAN_BYTES), keys_of(LARGE_MEAN_BYTES));
        let keys = (small + large) as u64;
        let pools = [self.pool(small, "[50, 800]"), self.pool(large, "[3000, 9000]")].join(",");
        let (small_keys, small_ops) = (small / (small + large), small_ops(bucket_writes));
        let (large_keys, large_ops) = (1.0 - small_keys, 1.0 - small_ops);
        let (dram, soc, placement) = (self.dram_mb / self.tenants, self.soc_percent, self.placement);
        let (flash, rate) = (flash_mib as u64, OPS_PER_SECOND / u64::from(self.tenants));
        format!(
            r#"{{ "cache_config": {{
  "cacheSizeMB": {dram}, "maxAllocSize": 16384, "allocFactor": 1.2, "numPools": 2, "poolSizes": [0.3, 0.7],
  "nvmCacheSizeMB": {flash}, "navyBigHashSizePct": {soc}, "navySmallItemMaxSize": 2048, "navyBlockSize": 4096,
  "navySegmentedFifoSegmentRatio": [1], "deviceEnableFDP": {placement}
}}, "test_config": {{
  "generator": "online", "numOps": 1000000000000, "numThreads": 16, "numKeys": {keys},
  "opRatePerSec": {rate}, "opRateBurstSize": 64, "valueCompressibility": 1,
  "keyPoolDistribution": [{small_keys}, {large_keys}], "opPoolDistribution": [{small_ops}, {large_ops}],
  "poolDistributions": [{pools}]
}} }}"#
        )
    }

    /// A pool in which the most popular 5 % of the keys get half of the requests.
    fn pool(&self, keys: f64, value_bytes: &str) -> String {
        let (get, set) = self.mix.ratios();
        let (hot, warm, cold) = (0.05 * keys, 0.25 * keys, 0.7 * keys);
        format!(
            r#"{{
  "getRatio": {get}, "setRatio": {set}, "delRatio": 0.0,
  "keySizeRange": [16, 40], "keySizeRangeProbability": [1.0],
  "valSizeRange": {value_bytes}, "valSizeRangeProbability": [1.0],
  "popularityBuckets": [{hot}, {warm}, {cold}], "popularityWeights": [0.5, 0.3, 0.2] }}"#
        )
    }
}

impl Measure for Experiment {
    type Result = Measured;

    /// Runs until the drive is steady and for half that time again.
    fn measure(&self, runner: &Runner, advance: &dyn Fn(f64)) -> Result<Measured, StudyError> {
        let device = Override::Device(DeviceSpec::Simulated(CARD.to_owned()));
        let loaded = load_text(Path::new("study"), &self.config(runner.bucket_writes), &[device])
            .map_err(SessionError::from)?;
        let Loaded::Config(config) = loaded else { unreachable!("the text is a config") };
        let stop = Stop::default();
        let options = SessionOptions {
            seed: runner.seed,
            stop: stop.clone(),
            scale: runner.scale,
            ..SessionOptions::default()
        };
        let session = Session::open(&config, options)?;
        let drive = session.drive().cloned().expect("a simulated run has a model drive");
        let phases = Phases::of(&self.writes(runner.bucket_writes));
        let mut watch = Watch::new(drive, phases, (runner.stop.clone(), stop), advance);
        let report = session.run(&config, &mut watch)?;
        if runner.stop.is_set() {
            return Err(StudyError::Interrupted);
        }
        drop(report);
        Ok(watch.measured())
    }
}

/// Runs each of `experiments` with and without placement.
///
/// # Errors
/// As [`Runner::run`].
pub fn run_both(
    runner: &Runner,
    experiments: &[Experiment],
) -> Result<Vec<(Measured, Measured)>, StudyError> {
    let both =
        experiments.iter().flat_map(|it| [true, false].map(|placement| Experiment { placement, ..*it }));
    let measured = runner.run(&both.collect::<Vec<_>>())?;
    Ok(measured.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// Share of requests for small objects with which buckets write this share of the bytes.
fn small_ops(bucket_writes: f64) -> f64 {
    let small = bucket_writes / BUCKET_BYTES;
    small / (small + (1.0 - bucket_writes) / LARGE_MEAN_BYTES)
}

/// Host writes at which parts of a run end, in drive capacities.
#[derive(Debug, Clone, Copy)]
struct Phases {
    first_wrap: f64,
    warm: f64,
    end: f64,
}

impl Phases {
    fn of(writes: &Mixed) -> Self {
        let first_wrap = writes.wrap_capacities();
        let rewritten = writes.used * writes.random_space / writes.random_writes;
        let warm = WARM_CAPACITIES.max(WARM_TURNS * first_wrap).max(WARM_REWRITES * rewritten);
        Self { first_wrap, warm, end: warm + COUNTED_CAPACITIES }
    }
}

struct Watch<'a> {
    advance: &'a dyn Fn(f64),
    drive: ModelDrive,
    interrupt: Stop,
    stop: Stop,
    capacity_pages: f64,
    phases: Phases,
    next: f64,
    curve: Vec<(f64, f64)>,
    /// Drive counters at the last point of the curve.
    last: Stats,
    warm: Option<Moment>,
    end: Option<Moment>,
}

impl<'a> Watch<'a> {
    fn new(
        drive: ModelDrive,
        phases: Phases,
        (interrupt, stop): (Stop, Stop),
        advance: &'a dyn Fn(f64),
    ) -> Self {
        let space = &drive.card().space;
        let capacity_pages = space.usable_bytes as f64 / f64::from(space.page_bytes);
        let last = drive.stats().unwrap_or_default();
        Self {
            advance,
            drive,
            interrupt,
            stop,
            capacity_pages,
            phases,
            next: INTERVAL_CAPACITIES,
            curve: Vec::new(),
            last,
            warm: None,
            end: None,
        }
    }

    fn measured(self) -> Measured {
        let part = self.end.unwrap_or_default().since(&self.warm.unwrap_or_default());
        let drive = part.drive.clone().unwrap_or_default();
        let latency = part.snapshot.device_latency();
        let p99 = |of: Option<&Histogram>| of.and_then(|it| it.quantile_ns(0.99)).unwrap_or(0);
        let flash = part.flash();
        let written = |bytes: Option<u64>| bytes.unwrap_or(0) as f64;
        let bucket_bytes = written(flash.soc.map(|soc| soc.physical_written_bytes));
        let region_bytes = written(flash.regions.map(|regions| regions.written_bytes));
        let before_wrap = COLLECTS..0.9 * self.phases.first_wrap;
        let before: Vec<f64> =
            self.curve.iter().filter(|(at, _)| before_wrap.contains(at)).map(|(_, dlwa)| *dlwa).collect();
        Measured {
            dlwa_before_wrap: before.iter().sum::<f64>() / before.len() as f64,
            dlwa: drive.dlwa(self.drive.card().space.page_bytes).unwrap_or(f64::NAN),
            curve: self.curve,
            alwa: flash.write_amplification().unwrap_or(f64::NAN),
            hit_ratio: part.counts.hit_ratio().unwrap_or(f64::NAN),
            throughput: part.counts.ops as f64 / part.at.as_secs_f64(),
            read_p99_ns: p99(latency.map(|it| &it.0)),
            write_p99_ns: p99(latency.map(|it| &it.1)),
            gc_events: drive.gc_events as f64 / (drive.host_pages as f64 / self.capacity_pages),
            soc_write_share: bucket_bytes / (bucket_bytes + region_bytes),
        }
    }
}

impl Watcher for Watch<'_> {
    fn refresh(&mut self, _instances: &[&dyn Observable], _elapsed: Duration) {
        if self.interrupt.is_set() {
            self.stop.set(StopReason::Interrupt);
        }
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let Some(stats) = self.drive.stats() else { return };
        let written = stats.host_pages as f64 / self.capacity_pages;
        if written >= self.next {
            let dlwa = stats.since(&self.last).dlwa(self.drive.card().space.page_bytes);
            self.curve.push((written, dlwa.unwrap_or(1.0)));
            self.last = stats.clone();
            self.next = written + INTERVAL_CAPACITIES;
            (self.advance)(written / self.phases.end);
        }
        if self.warm.is_none() && written >= self.phases.warm {
            self.warm = Some(Moment::of(instances, elapsed, Some(stats)));
        } else if self.end.is_none() && written >= self.phases.end {
            self.end = Some(Moment::of(instances, elapsed, Some(stats)));
            self.stop.set(StopReason::Interrupt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ops_give_the_share_of_bucket_writes() {
        for share in [0.6, 0.8] {
            let ops = small_ops(share);
            let buckets = ops * BUCKET_BYTES;
            let found = buckets / (buckets + (1.0 - ops) * LARGE_MEAN_BYTES);
            assert!((found - share).abs() < 1e-12, "{found}");
        }
        assert!((small_ops(0.6) - 0.688).abs() < 1e-3 && (small_ops(0.8) - 0.855).abs() < 1e-3);
    }

    #[test]
    fn warm_up_takes_two_turns_of_the_ring_and_twelve_rewrites_of_the_buckets() {
        let usual = Experiment::usual(Mix::KvCache, false);
        let warm = |of: Experiment, share| Phases::of(&of.writes(share)).warm;
        assert!((warm(usual, 0.8) - 9.6).abs() < 1e-9, "0.96 of the drive at a fifth of the writes, twice");
        assert!((warm(usual, 0.6) - 5.0).abs() < 1e-9);
        assert!((warm(Experiment { soc_percent: 96, ..usual }, 0.8) - 14.4).abs() < 1e-9);
        assert!((warm(Experiment { utilisation: 0.5, ..usual }, 0.8) - 5.0).abs() < 1e-9);
    }
}
