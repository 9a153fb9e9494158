//! Opens what a plan describes: the cache on its device, and the workload.

use std::path::Path;
use std::sync::Arc;

use cache::config::regions::{OrderConfig, RegionConfig, Reinsertion};
use cache::config::{
    CacheConfig, DramConfig, ItemDestructor, PairConfig, RebalanceBy, Recovery, UpkeepConfig,
};
use cache::{Builder, Cache, CacheError, FlashConfig};
use device::names::nearest;
use device::timer::{SystemTimer, Timer};
use device::wrap::MeasureDevice;
use device::{Clock, Device, RequestKind, Simulation};
use policy::admission::{AdmissionConfig, Chance, DynamicRandomConfig, RejectFirstConfig};
use policy::eviction::{EvictionConfig, Refresh};
use workload::generate::{Online, PreparedAccesses, Table};
use workload::trace::{Amplify, Format, HeaderMismatch, Order, Replay, ReplayConfig, SuffixRule, TraceError};
use workload::{Request, Source, Workload, WorkloadError};

use super::engine::{CallMode, DeviceLatency, EngineTarget, MeasuredFlash};
use super::error::OpenError;
use super::fit;
use super::item_sizes::{self, ItemLimit, ItemSizes};
use super::learned::LearnedAdmission;
use super::listed_drives::ListedDrive;
use super::misses::MissTrace;
use super::object_limits::ObjectLimits;
use super::objects::{self, Objects};
use super::pace::Waiter;
use super::trace_time::{CacheClock, TimeTracking, TraceTime};
use crate::config::plan::{
    AdmissionPlan, CachePlan, EvictionPlan, FlashPlan, OrderPlan, RebalancePlan, RebalanceStrategy,
    ReinsertionPlan, ReplayPlan, TraceFormat, WorkloadPlan,
};
use crate::events::{Clocks, EventFile, EventTracker};

/// Rebalancing moves one slab at a time, and configs assume slabs of CacheLib's size: with smaller slabs, random rebalancing would
/// take memory from classes that need little. A small cache keeps smaller slabs, or it would have too few for its classes.
const CACHELIB_SLAB_BYTES: u32 = 4 << 20;
const CACHELIB_SLABS_FROM_BYTES: u64 = 128 * CACHELIB_SLAB_BYTES as u64;

/// Lower limit of the scaled buffer for small items that wait to be written.
const MIN_PENDING_BYTES: usize = 64 << 10;

/// Config path of the learned admission's keys.
const LEARNED_AT: &str = "test_config.replayGeneratorConfig.mlAdmissionConfig";

/// Resources and options of a cache that its plan does not contain.
#[derive(Default)]
pub struct CacheResources {
    /// The flash device.
    pub device: Option<Arc<dyn Device>>,
    /// Drives whose media writes are read from the drive itself.
    pub listed_drives: Vec<ListedDrive>,
    /// The file for key events.
    pub events: Option<EventFile>,
    /// The range of item sizes, if it is known.
    pub sizes: Option<ItemSizes>,
    /// Called with every item that leaves the cache.
    pub destructor: Option<ItemDestructor>,
    /// Allows existing data on flash to be overwritten.
    pub force: bool,
}

/// Opens the cache that `plan` describes, on its device if it has flash. `tasks` selects workers that are tasks instead of threads.
/// If `time` is set, the cache's clock shows the trace's time.
///
/// # Errors
/// A setting that the cache cannot have, or a device that holds other data.
pub fn cache(
    plan: &CachePlan,
    resources: CacheResources,
    seed: u64,
    world: &World,
    tasks: bool,
    time: Option<&Arc<TraceTime>>,
) -> Result<OpenCache, OpenError> {
    let CacheResources { device, listed_drives, events, sizes, destructor, force } = resources;
    let clock = &world.clock();
    let shown: Arc<dyn Clock> = match time {
        Some(time) => Arc::new(CacheClock { world: Arc::clone(clock), time: Arc::clone(time) }),
        None => Arc::clone(clock),
    };
    let (dram, item_limit, warning) = dram(plan, sizes)?;
    let mut warnings: Vec<String> = warning.into_iter().collect();
    let objects = plan.objects.map(Objects::new);
    let mut config = CacheConfig {
        dram,
        flash: None,
        upkeep: upkeep(plan.rebalance.as_ref()),
        seed,
        hash_seed: Some(0),
        on_remove: None,
        on_evict: None,
        item_destructor: objects.as_ref().map(Objects::destructor).or(destructor),
        events: None,
        spawner: None,
        memory_budget_bytes: None,
    };
    let mut measured = None;
    if let Some((plan_flash, device)) = plan.flash.as_ref().zip(device) {
        let latency = Arc::new(DeviceLatency::default());
        let observer = observer(Arc::clone(&latency));
        let device = Arc::new(MeasureDevice::new(device, Arc::clone(clock), observer));
        let placing = plan_flash.placement;
        measured = Some(MeasuredFlash { device: Arc::clone(&device), latency, placing });
        let recovery = match plan.persist_dir {
            None => Recovery::Discard,
            Some(_) if force => Recovery::ReopenOrDiscard,
            Some(_) => Recovery::Reopen,
        };
        let flash = flash(plan_flash, device, recovery, seed);
        warnings.extend(smaller_regions(plan_flash, flash.regions.region_bytes));
        config.flash = Some(flash);
    }
    let tracker = plan.events.as_ref().zip(events).map(|(plan, file)| {
        let clocks = Clocks { shown: Arc::clone(&shown), world: Arc::clone(clock) };
        EventTracker::new(file, plan, clocks, matches!(world, World::Simulated(_)))
    });
    config.events = tracker.as_ref().map(EventTracker::sink);
    let builder = Cache::builder().config(config).clock(shown);
    let (cache, call_mode) = match world {
        World::Real(_) => (
            builder.open().map_err(|error| by_its_path(error, plan))?,
            if tasks { CallMode::Async } else { CallMode::Blocking },
        ),
        World::Simulated(simulation) => (open_in(simulation, builder)?, CallMode::Async),
    };
    let target = match plan.objects.as_ref().zip(objects) {
        Some((object_plan, objects)) => {
            let limits =
                ObjectLimits::new(&cache, object_plan, plan, Arc::clone(clock)).map_err(OpenError::Config)?;
            EngineTarget::new(cache, call_mode, measured).with_objects(objects, limits).limited_to(item_limit)
        }
        None => EngineTarget::new(cache, call_mode, measured)
            .with_listed_drives(listed_drives)
            .limited_to(item_limit),
    };
    Ok(OpenCache { target, warnings, tracker })
}

/// Adds the flash paths, and the option that discards the data, to the error for a device that holds another cache.
fn by_its_path(error: CacheError, plan: &CachePlan) -> OpenError {
    let (CacheError::Occupied(contents), Some(flash)) = (&error, &plan.flash) else { return error.into() };
    let paths: Vec<_> = flash.paths.iter().map(|path| path.display().to_string()).collect();
    let paths = paths.join(", ");
    OpenError::Config(format!("cache_config.nvmCachePaths: {paths}: {contents}; --force discards it"))
}

/// Opens a cache whose background work runs as tasks of `simulation`.
fn open_in(simulation: &Simulation, builder: Builder) -> Result<Cache, OpenError> {
    let cache = builder.open_stepped()?;
    let timer: Arc<dyn Timer> = Arc::new(simulation.world());
    for task in cache.background_tasks(&timer) {
        simulation.spawn(task);
    }
    Ok(cache)
}

/// Real or simulated time.
pub enum World {
    /// Real time.
    Real(Arc<dyn Clock>),
    /// Virtual time.
    Simulated(Simulation),
}

impl World {
    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Real(clock) => Arc::clone(clock),
            Self::Simulated(simulation) => Arc::new(simulation.world()),
        }
    }

    /// How workers wait; `tasks` selects workers that are tasks instead of threads.
    #[must_use]
    pub fn waiter(&self, tasks: bool) -> Waiter {
        match self {
            Self::Real(_) if tasks => Waiter::SharedThread(Arc::new(SystemTimer::default())),
            Self::Real(clock) => Waiter::Thread(Arc::clone(clock)),
            Self::Simulated(simulation) => {
                Waiter::Task { timer: Arc::new(simulation.world()), cpu_ns_per_op: SIMULATED_CPU_NS_PER_OP }
            }
        }
    }
}

/// CPU time that one operation takes in a simulated run: a round number near the measured cost of a DRAM hit, request generation
/// and counting included, in both CacheLib and this engine.
pub const SIMULATED_CPU_NS_PER_OP: u64 = 1000;

/// An open cache.
pub struct OpenCache {
    /// The cache as a target.
    pub target: EngineTarget,
    /// Settings that could not be met exactly.
    pub warnings: Vec<String>,
    /// Logs key events, if configured.
    pub tracker: Option<EventTracker>,
}

/// Checks whether [`cache()`] would open, on `device` if the plan has flash, without allocating memory or reading the device. Returns
/// warnings about settings that would not be met exactly.
///
/// # Errors
/// A setting that the cache cannot have.
pub fn check(
    plan: &CachePlan,
    device: Option<Arc<dyn Device>>,
    sizes: Option<ItemSizes>,
) -> Result<Vec<String>, OpenError> {
    let (_, _, warning) = dram(plan, sizes)?;
    let mut warnings: Vec<String> = warning.into_iter().collect();
    if let Some((plan_flash, device)) = plan.flash.as_ref().zip(device) {
        let flash = flash(plan_flash, device, Recovery::Discard, 0);
        flash.check()?;
        warnings.extend(smaller_regions(plan_flash, flash.regions.region_bytes));
    }
    Ok(warnings)
}

fn smaller_regions(plan: &FlashPlan, used_bytes: u32) -> Option<String> {
    let (key, configured_kib, used) = (plan.region_key, plan.region_bytes >> 10, used_bytes >> 10);
    let message =
        format!("{key}: flash has room for too few regions of {configured_kib} KiB; using {used} KiB");
    (plan.region_bytes != used_bytes).then_some(message)
}

fn observer(latency: Arc<DeviceLatency>) -> device::wrap::measure::Observer {
    Arc::new(move |kind, _bytes, latency_ns| match kind {
        RequestKind::Read => latency.read(latency_ns),
        RequestKind::Write => latency.write(latency_ns),
        _ => {}
    })
}

/// Returns the DRAM configuration, the largest item that it accepts, and a warning if larger ones are requested.
pub(super) fn dram(
    plan: &CachePlan,
    sizes: Option<ItemSizes>,
) -> Result<(DramConfig, ItemLimit, Option<String>), OpenError> {
    let mut config = DramConfig::new(plan.dram_bytes, cache::config::eviction(eviction(&plan.eviction)?));
    let share = |(number, share): (usize, &f64)| cache::config::PoolConfig {
        name: format!("pool_{number}"),
        share: *share,
    };
    config.pools = plan.pool_shares.iter().enumerate().map(share).collect();
    config.slab_bytes = match plan.objects {
        Some(_) => Some(objects::SLAB_BYTES),
        None => (plan.dram_bytes >= CACHELIB_SLABS_FROM_BYTES).then_some(CACHELIB_SLAB_BYTES),
    };
    config.alloc_factor = Some(plan.classes.factor);
    config.min_item_bytes = plan.classes.min_bytes;
    config.max_chunk_bytes = Some(plan.classes.max_bytes);
    config.alloc_sizes = plan.classes.explicit_bytes.clone();
    // The values of an object cache are on the heap, not in its items.
    let sizes = sizes.filter(|_| plan.objects.is_none());
    let (limit, warning) = item_sizes::fit_slabs(&mut config, plan, sizes)?;
    Ok((config, limit, warning))
}

fn eviction(plan: &EvictionPlan) -> Result<EvictionConfig, OpenError> {
    let kind =
        plan.policy.parse().map_err(|error| OpenError::Config(format!("cache_config.allocator: {error}")))?;
    Ok(EvictionConfig {
        kind,
        // Fixed: CacheBench reads a tuning interval and never uses it. A write replaces the item, so only reads refresh an entry. If
        // reads must not, the longest possible interval keeps them from doing so within any run.
        refresh: Refresh {
            seconds: if plan.update_on_read { plan.refresh_seconds } else { u32::MAX },
            ratio: 0.0,
            tune_every_seconds: 0,
        },
        update_on_read: plan.update_on_read,
        update_on_write: false,
        insertion_point: plan.insertion_point,
        hot_percent: plan.hot_percent,
        cold_percent: plan.cold_percent,
    })
}

fn upkeep(plan: Option<&RebalancePlan>) -> UpkeepConfig {
    let Some(plan) = plan else {
        return UpkeepConfig { rebalance_interval_ms: 0, ..UpkeepConfig::default() };
    };
    UpkeepConfig {
        rebalance_interval_ms: u64::try_from(plan.interval.as_millis()).unwrap_or(u64::MAX),
        rebalance: match plan.strategy {
            RebalanceStrategy::Random => RebalanceBy::Random,
            RebalanceStrategy::TailAge => RebalanceBy::TailAge,
            RebalanceStrategy::Hits => RebalanceBy::Hits,
        },
        rebalance_min_slabs: plan.min_slabs,
        rebalance_min_difference_ratio: plan.diff_ratio,
        move_on_release: plan.move_items,
        ..UpkeepConfig::default()
    }
}

fn flash(plan: &FlashPlan, device: Arc<dyn Device>, recovery: Recovery, seed: u64) -> FlashConfig {
    let mut config = FlashConfig::new(device);
    let share = |percent: u8| f64::from(percent) / 100.0;
    let pair = |&(size, soc): &(u8, u8)| PairConfig { device_share: share(size), soc_share: share(soc) };
    config.pairs = plan.pairs.iter().map(pair).collect();
    config.small_item_max_bytes = plan.small_item_max_bytes as usize;
    config.bucket_bytes = plan.bucket_bytes;
    config.filter_bytes_per_bucket = plan.filter_bytes;
    config.small_items = Some(plan.small_items);
    config.recover_after = plan.recover_after;
    config.regions = regions(plan, &config.regions, seed);
    let capacity_bytes = config.device.geometry().capacity_bytes;
    config.regions.region_bytes = fit::region_bytes(plan, capacity_bytes, config.regions.least_regions());
    if plan.paths.len() > 1 {
        // The stripe unit is a region, so a region never spans two devices.
        config.region_alignment_bytes = u64::from(config.regions.region_bytes);
    }
    config.admission = Arc::from(policy::admission::build(&admission(plan, seed)));
    config.pending_bytes = (config.pending_bytes / plan.pending_divisor as usize).max(MIN_PENDING_BYTES);
    config.min_ttl_seconds = plan.min_ttl_seconds;
    config.separate_metadata = plan.placement_extras.metadata;
    config.recovery = recovery;
    config
}

fn regions(plan: &FlashPlan, defaults: &RegionConfig, seed: u64) -> RegionConfig {
    let mut regions = defaults.clone();
    regions.region_bytes = plan.region_bytes;
    regions.clean_regions = plan.clean_regions.max(defaults.clean_regions);
    // The next multiple of a block, or the largest one that fits the type.
    let whole_blocks = plan.max_write_bytes.checked_next_multiple_of(plan.block_bytes);
    regions.max_write_bytes = whole_blocks.unwrap_or(u32::MAX / plan.block_bytes * plan.block_bytes);
    regions.value_checksums = plan.value_checksums;
    regions.order = match &plan.order {
        OrderPlan::Lru => OrderConfig::Lru,
        OrderPlan::Fifo => OrderConfig::Fifo,
        OrderPlan::SegmentedFifo(shares) => OrderConfig::SegmentedFifo { shares: shares.clone() },
        OrderPlan::SegmentedLru(segments) => OrderConfig::SegmentedLru { segments: *segments },
        OrderPlan::Ripq(ripq) => OrderConfig::Ripq(*ripq),
    };
    regions.transfers_at_once = plan.transfers_at_once;
    regions.write_whole = plan.write_whole;
    regions.separate_reinserted = plan.placement && plan.placement_extras.reinserted;
    regions.separate_points = plan.placement_extras.insertion_points;
    regions.reinsertion = match plan.reinsertion {
        ReinsertionPlan::Never => Reinsertion::Never,
        ReinsertionPlan::Hits(at_least) => Reinsertion::Hits { at_least },
        ReinsertionPlan::Percent(percent) => Reinsertion::Percent { percent, seed },
    };
    // Twice the clean regions, as in CacheBench; at least the store's default, and at least two more than the insertion points, so that
    // one buffer is filled while another is written.
    let points = u32::try_from(regions.points()).unwrap_or(u32::MAX);
    regions.buffers =
        regions.clean_regions.saturating_mul(2).max(points.saturating_add(2)).max(defaults.buffers);
    regions
}

fn admission(plan: &FlashPlan, seed: u64) -> Vec<AdmissionConfig> {
    let mut all = Vec::new();
    match plan.admission {
        AdmissionPlan::Always => {}
        AdmissionPlan::Probability(probability) => {
            all.push(AdmissionConfig::Probability { probability, chance: Chance::EachTime { seed } });
        }
        AdmissionPlan::DynamicRandom { bytes_per_second } => {
            all.push(AdmissionConfig::DynamicRandom(DynamicRandomConfig::new(bytes_per_second)));
        }
        AdmissionPlan::RejectFirst => all.push(AdmissionConfig::RejectFirst(RejectFirstConfig::default())),
    }
    if plan.retention_seconds > 0 {
        all.push(AdmissionConfig::Retention { idle_at_most_seconds: plan.retention_seconds });
    }
    all
}

/// A workload that is ready to start.
pub struct OpenWorkload {
    /// The requests.
    pub workload: Box<dyn Workload>,
    /// The trace that the workload replays, with its reading statistics.
    pub trace: Option<Arc<Replay>>,
    /// Progress in the trace's own time, if the warm-up or the cache's clock uses it.
    pub time: Option<Arc<TraceTime>>,
    /// Whether the cache's clock shows the trace's time.
    pub clock_follows: bool,
    /// The file for misses; set after the file is opened.
    pub misses: Option<MissTrace>,
    /// The model that decides which sets are executed, if configured.
    pub learned: Option<LearnedAdmission>,
    /// Warnings about the trace.
    pub warnings: Vec<String>,
}

/// Opens the workload that `plan` describes; `one_thread` as in [`ReplayConfig`].
///
/// # Errors
/// Invalid distributions, or a trace that cannot be read.
pub fn workload(plan: &WorkloadPlan, one_thread: bool) -> Result<OpenWorkload, OpenError> {
    let generated = |workload| OpenWorkload {
        workload,
        trace: None,
        time: None,
        clock_follows: false,
        misses: None,
        learned: None,
        warnings: Vec::new(),
    };
    Ok(match plan {
        WorkloadPlan::Online(config) => generated(Box::new(Online::new(config)?)),
        WorkloadPlan::Prepared { config, ops } => generated(Box::new(PreparedAccesses::new(config, *ops)?)),
        WorkloadPlan::Stressor(_) => generated(Box::new(NoRequests)),
        WorkloadPlan::Replay(plan) => {
            let wrong = |error| OpenError::Trace { key: plan.named_by, source: Box::new(error) };
            let learned = plan.learned.as_deref().map(LearnedAdmission::open).transpose();
            let learned = learned.map_err(|message| OpenError::Config(format!("{LEARNED_AT}.{message}")))?;
            let trace = Replay::new(ReplayConfig { one_thread, ..replay(plan).map_err(wrong)? });
            let columns = trace.check_files().map_err(wrong)?;
            let warnings = columns.iter().flat_map(|(path, columns)| column_warnings(path, columns));
            let warnings =
                warnings.map(|message| format!("test_config.{}: {message}", plan.named_by)).collect();
            let trace = Arc::new(trace);
            let mut workload: Box<dyn Workload> = Box::new(SharedReplay(Arc::clone(&trace)));
            let begins_at = if plan.clock_follows { trace.begins_at_ns().map_err(wrong)? } else { None };
            let needs_time = plan.clock_follows || plan.warms_by_time;
            let time = needs_time.then(|| trace_time(begins_at)).transpose()?;
            if let Some(time) = &time {
                workload = Box::new(TimeTracking { workload, time: Arc::clone(time) });
            }
            let clock_follows = plan.clock_follows;
            let trace = Some(trace);
            OpenWorkload { workload, trace, time, clock_follows, misses: None, learned, warnings }
        }
    })
}

/// Warnings about columns of a trace's header that are unknown or missing.
pub fn column_warnings(path: &Path, columns: &HeaderMismatch) -> Vec<String> {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut warnings = Vec::new();
    let mut others = Vec::new();
    for column in &columns.unknown {
        match nearest(column, columns.lacking.iter().copied()) {
            Some(near) => warnings.push(format!("column `{column}` is not used; did you mean `{near}`?")),
            None => others.push(column.as_str()),
        }
    }
    match others[..] {
        [] => {}
        [other] => warnings.push(format!("column `{other}` is not used")),
        _ => warnings.push(format!("columns {} are not used", quoted(&others))),
    }
    warnings.extend(columns.meant.iter().map(|(column, meaning)| format!("no column `{column}`: {meaning}")));
    warnings.into_iter().map(|warning| format!("{}: {warning}", path.display())).collect()
}

/// A clock that starts at the trace's first timestamp.
fn trace_time(begins_at_ns: Option<u64>) -> Result<Arc<TraceTime>, OpenError> {
    let time = TraceTime::starting_at(begins_at_ns.unwrap_or(0)).ok_or_else(|| {
        let message = "cache_config.useTraceTimeStamp: the trace begins after the year 2106, beyond a cache's clock: \
                     set test_config.timestampFactor to the trace's clock ticks per second";
        OpenError::Config(message.to_owned())
    })?;
    Ok(Arc::new(time))
}

/// The workload of a stressor that makes its own requests: none.
struct NoRequests;

impl Workload for NoRequests {
    fn sources(&self, workers: usize, _seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        Ok(std::iter::repeat_with(|| Box::new(Self) as Box<dyn Source>).take(workers).collect())
    }

    fn key_count(&self) -> Option<u64> {
        None
    }
}

impl Source for NoRequests {
    fn next(&mut self) -> Option<Request<'_>> {
        None
    }
}

/// A replay whose statistics are read elsewhere too.
struct SharedReplay(Arc<Replay>);

impl Workload for SharedReplay {
    fn sources(&self, workers: usize, seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        self.0.sources(workers, seed)
    }

    fn key_count(&self) -> Option<u64> {
        self.0.key_count()
    }
}

/// The replay configuration of the trace in `plan`.
///
/// # Errors
/// The format is to be detected from the files, and cannot be.
pub fn replay(plan: &ReplayPlan) -> Result<ReplayConfig, TraceError> {
    let (format, columns) = match &plan.format {
        TraceFormat::Named(name) => Format::with_columns(name)?,
        TraceFormat::Detected => (Format::detect_files(&plan.files)?, None),
        TraceFormat::Binary => (binary_format(plan), None),
    };
    let mut config = ReplayConfig::new(plan.files.clone(), format);
    config.columns = columns;
    config.time_units_per_second = plan.time_units_per_second.unwrap_or(format.time_units_per_second());
    config.is_time_unit_given = plan.time_units_per_second.is_some();
    config.cut = plan.cut;
    config.amplify = Amplify {
        copies: plan.amplification,
        size_factor: plan.size_amplification,
        rule: if plan.cachebench_amplification { SuffixRule::Truncate } else { SuffixRule::Append },
    };
    let sizes = |table: &Table| table.sizes().expect("the plan was made of a table that can be drawn from");
    config.ttl_seconds = plan.ttl_seconds.as_ref().map(sizes);
    config.skip_rows = plan.fast_forward;
    config.repeat = plan.loops != Some(1);
    config.passes = plan.loops;
    config.ignore_op_count = plan.ignore_op_count;
    config.kinds = plan.ops.clone();
    config.timed = plan.timed;
    config.needs_times = plan.clock_follows || plan.warms_by_time;
    config.order = match (plan.strict_order, plan.timed) {
        (true, _) => Order::Strict,
        (false, true) => Order::Turns,
        (false, false) => Order::Any,
    };
    Ok(config)
}

/// The binary format of the first file. Any other content falls back to our own format, whose reader then names the one it found.
fn binary_format(plan: &ReplayPlan) -> &'static Format {
    let detected = Format::detect_files(&plan.files).ok();
    let ours = || Format::named("binary").expect("the format is in the table");
    detected.filter(|format| format.name == "cachebench-binary").unwrap_or_else(ours)
}

/// Whether a workload adds chained items.
#[must_use]
pub fn has_chains(plan: &WorkloadPlan) -> bool {
    match plan {
        WorkloadPlan::Online(config) | WorkloadPlan::Prepared { config, .. } => {
            config.pools.iter().any(|pool| pool.distribution.mix.add_chained > 0.0)
        }
        WorkloadPlan::Replay(_) | WorkloadPlan::Stressor(_) => false,
    }
}
