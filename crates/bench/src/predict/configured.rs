//! The cache and the requests of a config, as input of a prediction.
//!
//! The requests are those of a run of the config, taken from the workers in turn. A setting that the simulation does not support is
//! refused, with its key and the reason, or replaced by the nearest supported one, with a warning.

use cache::SmallItems;
use ssd::Card;
use workload::generate::GeneratorConfig;
use workload::trace::{Access, AccessKind, Accesses, ReadReport, TraceError};
use workload::{RequestKind, Source};

use super::{PredictError, Settings, SmallEngine, WarmUp};
use crate::config::cachebench::{Config, ConfigError};
use crate::config::findings::Diagnostic;
use crate::config::lower::lower;
use crate::config::plan::{
    AdmissionPlan, ArrivalsPlan, FlashPlan, InstancePlan, OrderPlan, ReinsertionPlan, RunPlan, RunSettings,
    WorkloadPlan,
};
use crate::run::error::OpenError;
use crate::run::open;

/// Default limit of requests. Distributions have no end, and configs request billions.
pub const REQUESTS_AT_MOST: u64 = 20_000_000;

/// The format that the read report of a config has.
pub(super) const CONFIG_FORMAT: &str = "config";

/// A config that can be predicted.
#[derive(Debug, Clone)]
pub struct Configured {
    /// DRAM of the cache, bytes.
    pub dram_bytes: u64,
    /// Bytes of the cache on flash.
    pub flash_bytes: u64,
    /// Share of `flash_bytes` for small objects.
    pub small_share: f64,
    /// The engine for small objects.
    pub small: SmallEngine,
    /// Probability of admission to flash.
    pub admission: f64,
    /// Whether small and large objects have a placement handle each.
    pub placement: bool,
    /// The other settings of the cache.
    pub settings: Settings,
    /// Requests per second of all workers, if the config limits them.
    pub requests_per_second: Option<f64>,
    /// The config's warm-up, if its length is given in requests.
    pub warm_up: Option<WarmUp>,
    /// Warnings about settings that are replaced by others.
    pub warnings: Vec<String>,
    plan: RunPlan,
}

impl Configured {
    /// Reads `config`.
    ///
    /// # Errors
    /// The config is invalid, or has a setting that predictions do not support.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let refused = |problems: Vec<Diagnostic>| ConfigError { file: config.file.clone(), problems };
        let plan = lower(config)?;
        let [instance] = plan.instances.as_slice() else {
            let message = format!(
                "the config has {} caches, and a prediction is for one: give a config with one of them",
                plan.instances.len()
            );
            return Err(refused(vec![Diagnostic { at: String::new(), message }]));
        };
        let Some(flash) = &instance.cache.flash else {
            return Err(refused(vec![diagnostic(
                "cache_config.nvmCacheSizeMB",
                "is 0: a prediction is for a cache on flash; `flashwright simulate` has caches in memory",
            )]));
        };
        let problems = problems(instance, flash);
        if !problems.is_empty() {
            return Err(refused(problems));
        }
        let run = &instance.run;
        Ok(Self {
            dram_bytes: instance.cache.dram_bytes,
            flash_bytes: flash.bytes_per_device * flash.paths.len().max(1) as u64,
            small_share: f64::from(flash.pairs[0].1) / 100.0,
            small: match flash.small_items {
                SmallItems::Sets => SmallEngine::Sets,
                SmallItems::Log(_) => SmallEngine::Log,
            },
            admission: match flash.admission {
                AdmissionPlan::Probability(probability) => probability,
                _ => 1.0,
            },
            placement: flash.placement,
            settings: settings(flash, run.lookaside),
            requests_per_second: rate(instance),
            warm_up: warm_up(run, &instance.workload),
            warnings: warnings(instance, flash),
            plan,
        })
    }

    /// Whether the requests are drawn from distributions; the scale then divides their number of keys. A trace is replayed unchanged.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        matches!(self.instance().workload, WorkloadPlan::Online(_) | WorkloadPlan::Prepared { .. })
    }

    /// The default scale of the simulation: 1 for a trace. For distributions, the largest power of two that is at most a quarter of
    /// [`smallest_scale`](super::smallest_scale) and leaves at least 512 MiB of flash.
    #[must_use]
    pub fn usual_scale(&self, card: &Card) -> u32 {
        if !self.is_generated() {
            return 1;
        }
        let by_flash = u32::try_from(self.flash_bytes >> 29).unwrap_or(u32::MAX);
        let most = by_flash.min(super::smallest_scale(card) / 4).max(1);
        1 << most.ilog2()
    }

    /// Number of requests of a run.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.instance().run.total_ops()
    }

    fn instance(&self) -> &InstancePlan {
        &self.plan.instances[0]
    }

    /// The first `at_most` requests of a run at `1/scale`.
    ///
    /// # Errors
    /// Invalid distributions, or a trace that cannot be read.
    pub fn accesses(&self, scale: u32, at_most: u64, seed: u64) -> Result<Box<dyn Accesses>, PredictError> {
        let failed = |error: &OpenError| PredictError::Layout(error.to_string());
        let scaled = self.plan.clone().scaled(scale);
        let InstancePlan { workload, run, .. } = &scaled.instances[0];
        let opened = open::workload(workload, true).map_err(|error| failed(&error))?;
        let sources = opened
            .workload
            .sources(run.threads, seed)
            .map_err(|error| PredictError::Layout(error.to_string()))?;
        Ok(Box::new(Requests {
            sources,
            turn: 0,
            left: run.total_ops().min(at_most),
            ns_per_request: self.requests_per_second.map(|rate| 1e9 / rate),
            report: ReadReport { format: CONFIG_FORMAT, ..ReadReport::default() },
        }))
    }
}

fn diagnostic(at: &str, message: impl Into<String>) -> Diagnostic {
    Diagnostic { at: at.to_owned(), message: message.into() }
}

fn settings(flash: &FlashPlan, fills_misses: bool) -> Settings {
    Settings {
        small_at_most: flash.small_item_max_bytes,
        set_bytes: flash.bucket_bytes,
        filter_bytes: flash.filter_bytes,
        region_bytes: Some(flash.region_bytes),
        fills_misses,
        log: match flash.small_items {
            SmallItems::Log(options) => options,
            SmallItems::Sets => Settings::default().log,
        },
    }
}

/// The warm-up, if its length is given in requests. A trace may end before `numOps`, so that its warm-up is a number; of requests drawn
/// from distributions, a part is predicted, and the warm-up is a share of it.
fn warm_up(run: &RunSettings, workload: &WorkloadPlan) -> Option<WarmUp> {
    let per_thread = run.warmup.ops_per_thread;
    match workload {
        _ if per_thread == 0 => None,
        WorkloadPlan::Replay(_) => Some(WarmUp::Accesses(per_thread.saturating_mul(run.threads as u64))),
        _ => {
            let share = per_thread as f64 / run.ops_per_thread.max(1) as f64;
            (share < 1.0).then_some(WarmUp::Share(share))
        }
    }
}

/// The rate limit of a closed loop, or the arrival rate of an open loop. The rate of a trace follows from its timestamps.
fn rate(instance: &InstancePlan) -> Option<f64> {
    match instance.run.arrivals {
        ArrivalsPlan::Uniform { per_second } | ArrivalsPlan::Poisson { per_second } => {
            Some(per_second as f64)
        }
        ArrivalsPlan::Closed => instance.run.rate.map(|(per_second, _)| per_second as f64),
        ArrivalsPlan::Trace { .. } => None,
    }
}

/// Diagnostics of settings that predictions do not support.
fn problems(instance: &InstancePlan, flash: &FlashPlan) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut refuse = |at: &str, message: &str| found.push(diagnostic(at, message));
    match &instance.workload {
        WorkloadPlan::Stressor(stressor) => refuse(
            "test_config.name",
            &format!(
                "{} makes no requests that could be predicted; --set test_config.name=null",
                stressor.name()
            ),
        ),
        WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => {
            refuse_mix(config, &mut refuse);
        }
        WorkloadPlan::Replay(replay) if replay.learned.is_some() => refuse(
            "test_config.replayGeneratorConfig.mlAdmissionConfig",
            "is not predicted; --set test_config.replayGeneratorConfig.mlAdmissionConfig=null admits all",
        ),
        WorkloadPlan::Replay(_) => {}
    }
    match flash.admission {
        AdmissionPlan::DynamicRandom { .. } => refuse(
            "cache_config.navyAdmissionWriteRateMB",
            "an admission that follows the write rate is not predicted; --set cache_config.navyAdmissionWriteRateMB=null, and \
             --admission 50% for a fixed probability",
        ),
        AdmissionPlan::RejectFirst => refuse(
            "cache_config.flashAdmission",
            "reject-first is not predicted; predict a similar policy with --set cache_config.flashAdmission=probability:0.5",
        ),
        AdmissionPlan::Always | AdmissionPlan::Probability(_) => {}
    }
    if flash.pairs.len() > 1 {
        refuse(
            "cache_config.navyArenas",
            "is not predicted; --set cache_config.navyArenas=null has one pair of engines",
        );
    }
    if flash.retention_seconds > 0 {
        refuse(
            "cache_config.nvmAdmissionRetentionTimeThreshold",
            "is not predicted; --set cache_config.nvmAdmissionRetentionTimeThreshold=null",
        );
    }
    if flash.min_ttl_seconds > 0 {
        refuse("cache_config.memoryOnlyTTL", "is not predicted; --set cache_config.memoryOnlyTTL=null");
    }
    if instance.run.only_set_if_miss {
        refuse("test_config.onlySetIfMiss", "is not predicted; --set test_config.onlySetIfMiss=false");
    }
    found
}

fn refuse_mix(config: &GeneratorConfig, refuse: &mut impl FnMut(&str, &str)) {
    let any = |of: fn(&workload::generate::Mix) -> f64| {
        config.pools.iter().any(|pool| of(&pool.distribution.mix) > 0.0)
    };
    if any(|mix| mix.add_chained) {
        refuse(
            "test_config.addChainedRatio",
            "chained items are not predicted; --set test_config.addChainedRatio=0",
        );
    }
    if any(|mix| mix.update) {
        refuse(
            "test_config.updateRatio",
            "updates in place are not predicted; --set test_config.updateRatio=0",
        );
    }
}

/// Warnings about settings that are replaced by the nearest supported ones.
fn warnings(instance: &InstancePlan, flash: &FlashPlan) -> Vec<String> {
    let mut message = Vec::new();
    let eviction = &instance.cache.eviction;
    if !eviction.policy.eq_ignore_ascii_case("LRU") {
        message.push(format!(
            "cache_config.allocator: {} in DRAM is predicted as LRU: DRAM hits differ",
            eviction.policy
        ));
    }
    if instance.cache.pool_shares.len() > 1 {
        message.push("cache_config.numPools: the pools are predicted as one: DRAM hits differ".to_owned());
    }
    if flash.order != OrderPlan::Fifo {
        message.push(
            "cache_config.navySegmentedFifoSegmentRatio: regions are predicted as evicted first in, first out ([1]): hits and DLWA \
             differ"
                .to_owned(),
        );
    }
    if flash.reinsertion != ReinsertionPlan::Never {
        message.push(
            "cache_config.navyHitsReinsertionThreshold, navyProbabilityReinsertionThreshold: reinsertion is not predicted: hits and \
             ALWA differ"
                .to_owned(),
        );
    }
    message
}

/// The requests of a config's workers, taken in turn, as accesses.
struct Requests {
    sources: Vec<Box<dyn Source>>,
    turn: usize,
    left: u64,
    /// Time between requests without a timestamp; `None` if unknown.
    ns_per_request: Option<f64>,
    report: ReadReport,
}

const BATCH: usize = 4096;

impl Requests {
    /// Appends the next request of the next worker; false if all workers have ended.
    fn take(&mut self, batch: &mut Vec<Access>) -> bool {
        while !self.sources.is_empty() {
            self.turn %= self.sources.len();
            let Some(request) = self.sources[self.turn].next() else {
                drop(self.sources.remove(self.turn));
                continue;
            };
            let kind = match request.kind {
                RequestKind::Get | RequestKind::LoneGet => Some(AccessKind::Get),
                RequestKind::Set | RequestKind::LoneSet => Some(AccessKind::Set),
                RequestKind::Delete => Some(AccessKind::Delete),
                // It has no effect on the cache.
                RequestKind::CouldExist => None,
                RequestKind::AddChained | RequestKind::Update => unreachable!("refused with the config"),
            };
            let repeats = u64::from(request.repeat).min(self.left);
            let number = self.report.accesses as f64;
            let time_ns = request.time_ns.or_else(|| Some((number * self.ns_per_request?) as u64));
            // Without timestamps, the access's number in milliseconds, as in traces; items then do not expire.
            let access = kind.map(|kind| Access {
                time_ns: time_ns.unwrap_or(self.report.accesses * 1_000_000),
                key: request.key_id,
                size_bytes: request.key.len() as u64 + request.value_bytes,
                ttl_seconds: time_ns.and(request.ttl_seconds),
                tenant: None,
                kind,
            });
            self.report.has_time |= time_ns.is_some();
            self.report.accesses += repeats;
            self.left -= repeats;
            self.turn += 1;
            batch.extend(access.iter().flat_map(|access| std::iter::repeat_n(*access, repeats as usize)));
            return true;
        }
        false
    }
}

impl Accesses for Requests {
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        batch.clear();
        while batch.len() < BATCH && self.left > 0 && self.take(batch) {}
        Ok(!batch.is_empty())
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }
}

#[cfg(test)]
mod tests;
