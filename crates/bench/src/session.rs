//! A whole run: opens everything, runs it, and reports.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cache::CacheError;
use device::memory::MemoryDevice;
use device::{Clock, Device, Simulation, SystemClock};

use crate::config::cachebench::{Config, ConfigError};
use crate::config::lower::{lower, lower_without_traces};
use crate::config::plan::{DestructorPlan, FlashPlan, InstancePlan, RunPlan, WorkloadPlan};
use crate::environment;
use crate::events::{self, EventTracker};
use crate::report::series::{DriveBytes, Moment, Recorder, flash_stats};
use crate::report::{DriveReport, RunReport, totals};
use crate::run::counts::CounterTable;
use crate::run::destructors::Destructors;
use crate::run::devices::{self, DeviceSource, Devices};
use crate::run::disk_space;
use crate::run::engine::EngineTarget;
use crate::run::error::OpenError;
use crate::run::in_memory;
use crate::run::io_path;
use crate::run::item_sizes::ItemSizes;
use crate::run::listed_drives;
use crate::run::memory;
use crate::run::misses;
use crate::run::model_drive::{self, ModelDrive};
use crate::run::open::{self, CacheResources, OpenWorkload, World};
use crate::run::simulated::run_simulated;
use crate::run::stop::Stop;
use crate::run::stressors::Stressor;
use crate::run::{
    Instance, InstanceOptions, InstanceReport, Observable, RunError, Watcher, run_all, run_mark,
};

/// Options of a session in addition to the config.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Time limit, after which the run ends with a full report.
    pub timeout: Option<Duration>,
    /// Whether every operation is timed.
    pub time_all: bool,
    /// Flag that stops the run.
    pub stop: Stop,
    /// Divisor of the cache and drive sizes and of the number of keys. The number of reclaim units, shares and object sizes do
    /// not change. 0 and 1 change nothing.
    pub scale: u32,
    /// Whether any content of the flash device is overwritten, including a file system or another file.
    pub force: bool,
}

/// A session that is open and not started.
pub struct Session {
    instances: Vec<Arc<Instance<EngineTarget>>>,
    /// Event tracker of each instance, if it has one.
    trackers: Vec<Option<EventTracker>>,
    /// Whether each instance is persistent.
    persistent: Vec<bool>,
    options: SessionOptions,
    flash_paths: Vec<PathBuf>,
    world: World,
    drive: Option<ModelDrive>,
    warnings: Vec<String>,
}

/// Result of checking the flash devices of a config.
#[derive(Debug, Default)]
pub struct FlashCheck {
    /// Warnings.
    pub warnings: Vec<String>,
    /// Devices and directories that do not exist, for example because the config is for another machine.
    pub absent: Vec<String>,
}

/// Error of a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The config cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file or device of the config cannot be opened.
    #[error("{}: instance {instance}: {source}", file.display())]
    Open {
        /// The config.
        file: PathBuf,
        /// Index of the instance.
        instance: usize,
        /// The reason.
        source: OpenError,
    },
    /// The machine has too little memory.
    #[error("{}: {message}", file.display())]
    Memory {
        /// The config.
        file: PathBuf,
        /// The key with the largest share, the bytes needed and the bytes available.
        message: String,
    },
    /// The model drive cannot be created.
    #[error(transparent)]
    Drive(OpenError),
    /// The run could not start.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The events of the run cannot be written.
    #[error("{0}")]
    Events(std::io::Error),
}

impl Session {
    /// Opens everything that `config` describes.
    ///
    /// # Errors
    /// A feature is not supported, or something cannot be opened.
    pub fn open(config: &Config, options: SessionOptions) -> Result<Self, SessionError> {
        let plan = scaled(config, lower(config)?, options.scale)?;
        check_world(config, &plan, options.scale)?;
        check_memory(config, &plan)?;
        let flash_paths = flash_paths(&plan);
        let persistent = plan.instances.iter().map(|it| it.cache.persist_dir.is_some()).collect();
        let one_thread = plan.card.is_some();
        // Traces are checked before flash is written.
        let mut workloads = open_workloads(config, &plan, one_thread)?;
        open_misses(config, &plan, &mut workloads)?;
        let files = events::open_all(&plan.instances).map_err(|wrong| event_error(config, wrong))?;
        let (world, mut drive) = enter_world(config, &plan, &options)?;
        let mut devices = Devices::of(plan.instances.iter().map(|it| &it.cache), options.force);
        let supply: &mut dyn DeviceSource = match &mut drive {
            Some(drive) => drive,
            None => &mut devices,
        };
        let flash: Vec<_> = plan.instances.iter().map(|it| it.cache.flash.as_ref()).collect();
        let (listed_drives, unlisted) = listed_drives::open(&flash);
        let mut warnings = workload_warnings(&workloads);
        warnings.extend(unlisted);
        warnings.extend(place_warnings(&plan));
        let devices = open_devices(config, &flash, supply)?;
        let opened = flash.iter().zip(&devices);
        let io_paths = opened.filter_map(|(plan, device)| io_path::warning((*plan)?, &**device.as_ref()?));
        warnings.extend(io_paths);
        let several = plan.instances.len() > 1;
        let mut instances = Vec::new();
        let mut trackers = Vec::new();
        let besides = devices.into_iter().zip(listed_drives).zip(files);
        let besides = besides.map(|((device, listed_drives), events)| CacheResources {
            device,
            listed_drives,
            events,
            sizes: None,
            destructor: None,
            force: options.force,
        });
        let parts = plan.instances.into_iter().zip(workloads).zip(besides);
        for (number, ((plan, workload), beside)) in parts.enumerate() {
            let opened = open_instance(plan, workload, beside, number, &options, &world)
                .map_err(|source| open_error(config, number, source))?;
            instances.push(Arc::new(opened.instance));
            trackers.push(opened.tracker);
            let named = |warning| if several { format!("[{number}].{warning}") } else { warning };
            warnings.extend(opened.warnings.into_iter().map(named));
        }
        Ok(Self { instances, trackers, persistent, options, flash_paths, world, drive, warnings })
    }

    /// Checks a config without opening a device: sizes, distributions, and the format of traces. Returns warnings.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check(config: &Config, scale: u32) -> Result<Vec<String>, SessionError> {
        let plan = scaled(config, lower(config)?, scale)?;
        let mut warnings = workload_warnings(&open_workloads(config, &plan, false)?);
        misses::check(&plan).map_err(|(number, source)| open_error(config, number, source))?;
        events::check_all(&plan.instances).map_err(|wrong| event_error(config, wrong))?;
        check_world(config, &plan, scale)?;
        warnings.extend(check_caches(config, &plan, scale)?);
        Ok(warnings)
    }

    /// Like [`check`](Self::check), for a config whose traces may be made later.
    ///
    /// # Errors
    /// As [`open`](Self::open), except for errors of traces.
    pub fn check_without_traces(config: &Config, scale: u32) -> Result<Vec<String>, SessionError> {
        let plan = scaled(config, lower_without_traces(config)?, scale)?;
        check_world(config, &plan, scale)?;
        check_caches(config, &plan, scale)
    }

    /// Checks whether the flash devices of `config` can be opened, without creating or changing anything. With `force`, any
    /// content is accepted.
    ///
    /// # Errors
    /// As [`open`](Self::open), except for missing devices, which the result lists.
    pub fn check_flash(config: &Config, options: &SessionOptions) -> Result<FlashCheck, SessionError> {
        let plan = scaled(config, lower_without_traces(config)?, options.scale)?;
        let mut check = FlashCheck { warnings: place_warnings(&plan), absent: Vec::new() };
        if plan.card.is_some() {
            return Ok(check);
        }
        let devices = Devices::of(plan.instances.iter().map(|it| &it.cache), options.force);
        for (number, instance) in plan.instances.iter().enumerate() {
            let Some(flash) = &instance.cache.flash else { continue };
            let absent = devices.check(flash).map_err(|source| open_error(config, number, source))?;
            check.absent.extend(absent.into_iter().map(|it| open_error(config, number, it).to_string()));
        }
        Ok(check)
    }

    /// Checks whether there is enough memory for a run of `config`.
    ///
    /// # Errors
    /// There is not enough memory, or the config is invalid.
    pub fn check_memory(config: &Config, scale: u32) -> Result<(), SessionError> {
        check_memory(config, &scaled(config, lower_without_traces(config)?, scale)?)
    }

    /// The clock of the run: real or simulated.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.world.clock()
    }

    /// Deviations from the config.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The model drive of a simulated run.
    #[must_use]
    pub fn drive(&self) -> Option<&ModelDrive> {
        self.drive.as_ref()
    }

    /// Runs to the end and closes the caches.
    ///
    /// # Errors
    /// A workload, a thread or an event file cannot start.
    pub fn run(mut self, config: &Config, watcher: &mut dyn Watcher) -> Result<RunReport, SessionError> {
        let seed = self.options.seed;
        let mut trackers = std::mem::take(&mut self.trackers);
        let started = self.drive.is_none().then(|| SystemClock.unix_seconds());
        let environment = environment::capture(&self.flash_paths, started);
        let drive_bytes = || {
            let drive = DriveReport::since(self.drive.as_ref()?, None);
            Some(DriveBytes { host: drive.host_bytes(), media: drive.media_bytes() })
        };
        let drive_before = RefCell::new(None);
        let look_at_drive = || *drive_before.borrow_mut() = self.drive.as_ref().and_then(ModelDrive::stats);
        let mut recorder = Recorder::new(watcher, &drive_bytes, &look_at_drive);
        let begun = trackers.iter_mut().flatten().try_for_each(EventTracker::begin);
        let run = begun.map_err(SessionError::Events).and_then(|()| self.run_instances(&mut recorder));
        let mut instances = match run {
            Ok(instances) => instances,
            Err(error) => {
                // Closing keeps the persistent content of earlier runs.
                self.close();
                return Err(error);
            }
        };
        let mut errors = self.finish_misses(&mut instances);
        errors.extend(self.finish_destructors(&mut instances));
        self.instances.iter().zip(&mut instances).for_each(|(it, report)| it.finish_stressor(report));
        for (report, tracker) in instances.iter_mut().zip(trackers) {
            report.events = tracker.map(EventTracker::finish);
        }
        let all = totals(&instances);
        // The series covers the whole run, including the warm-up.
        let (mut seconds, mut counts) = (all.seconds, all.counts);
        if let Some(warmup) = &all.warmup {
            seconds += warmup.seconds;
            counts.add(&warmup.counts);
        }
        let observed: Vec<&dyn Observable> =
            self.instances.iter().map(|it| &**it as &dyn Observable).collect();
        let mut flash = flash_stats(&observed);
        if let Some(flash) = &mut flash {
            drive_bytes().inspect(|drive| drive.set(flash));
        }
        recorder.end(Moment { seconds, counts, flash });
        let series = recorder.series;
        let warnings = config.warnings.iter().map(ToString::to_string).chain(self.warnings.clone()).collect();
        let drive = self.drive.as_ref().map(|drive| DriveReport::since(drive, drive_before.take().as_ref()));
        if let ([only], Some(drive)) = (&mut instances[..], &drive) {
            drive.apply_to(only);
        }
        errors.extend(self.close());
        Ok(RunReport {
            errors,
            unwritten: Vec::new(),
            instances,
            series,
            warnings,
            seed,
            drive,
            config: config.as_run(),
            environment,
        })
    }

    fn run_instances(&self, watcher: &mut dyn Watcher) -> Result<Vec<InstanceReport>, SessionError> {
        let timeout = self.options.timeout;
        Ok(match &self.world {
            World::Real(_) => run_all(&self.instances, timeout, watcher)?,
            World::Simulated(simulation) => run_simulated(simulation, &self.instances, timeout, watcher)?,
        })
    }

    /// Completes the traces of misses, and returns errors.
    fn finish_misses(&self, reports: &mut [InstanceReport]) -> Vec<String> {
        let several = reports.len() > 1;
        let finish = |(number, (instance, report)): (usize, (&Arc<Instance<_>>, &mut InstanceReport))| {
            let error = instance.finish_misses(report).err()?;
            Some(if several { format!("Instance {number}: {error}") } else { error })
        };
        self.instances.iter().zip(reports).enumerate().filter_map(finish).collect()
    }

    /// Checks that each item was destroyed once, if the config requires it, and returns errors.
    fn finish_destructors(&self, reports: &mut [InstanceReport]) -> Vec<String> {
        let finish = |(instance, report): (&Arc<Instance<_>>, &mut InstanceReport)| {
            instance.finish_destructors(report).err()
        };
        self.instances.iter().zip(reports).filter_map(finish).collect()
    }

    /// Closes persistent caches, so that the next run can open them. Other caches are dropped, and their files removed.
    fn close(self) -> Vec<String> {
        let mut errors = Vec::new();
        // The tasks of a simulation have references to the instances.
        drop(self.world);
        let several = self.instances.len() > 1;
        for (number, (instance, persistent)) in self.instances.into_iter().zip(self.persistent).enumerate() {
            let Some(instance) = Arc::into_inner(instance).filter(|_| persistent) else { continue };
            if let Err(error) = instance.into_target().into_cache().close() {
                let name = if several { format!("Instance {number}: ") } else { String::new() };
                let end = match error {
                    CacheError::Lost { .. } => "was closed, but some of its items are lost",
                    _ => "could not be closed, and will be empty at the next start",
                };
                errors.push(format!("{name}The cache {end}: {error}"));
            }
        }
        errors
    }
}

/// Scales the plan, and refuses a scale that leaves no flash.
fn scaled(config: &Config, plan: RunPlan, scale: u32) -> Result<RunPlan, SessionError> {
    let full_bytes: Vec<u64> =
        plan.instances.iter().filter_map(|it| Some(it.cache.flash.as_ref()?.bytes_per_device)).collect();
    let mut plan = plan.scaled(scale);
    if let Some(card) = plan.card.clone() {
        let flash = plan.instances.iter_mut().filter_map(|it| it.cache.flash.as_mut());
        model_drive::round_to_scaled_card(&card, scale, &full_bytes, flash.collect());
    }
    let has_none =
        |it: &InstancePlan| it.cache.flash.as_ref().is_some_and(|flash| flash.bytes_per_device == 0);
    match plan.instances.iter().position(has_none).filter(|_| scale > 1) {
        Some(number) => {
            let message = format!(
                "--scale 1/{scale}: is too large a divisor for cache_config.nvmCacheSizeMB: no flash is left"
            );
            Err(open_error(config, number, OpenError::Config(message)))
        }
        None => Ok(plan),
    }
}

fn check_memory(config: &Config, plan: &RunPlan) -> Result<(), SessionError> {
    memory::check(plan).map_err(|message| SessionError::Memory { file: config.file.clone(), message })
}

fn open_workloads(
    config: &Config,
    plan: &RunPlan,
    one_thread: bool,
) -> Result<Vec<OpenWorkload>, SessionError> {
    let open = |(number, plan): (usize, &InstancePlan)| {
        open::workload(&plan.workload, one_thread).map_err(|source| open_error(config, number, source))
    };
    plan.instances.iter().enumerate().map(open).collect()
}

/// Warnings of the workloads.
fn workload_warnings(workloads: &[OpenWorkload]) -> Vec<String> {
    let named = |number: usize, message: &String| match workloads {
        [_] => message.clone(),
        _ => format!("[{number}].{message}"),
    };
    let all = workloads.iter().enumerate();
    all.flat_map(|(number, it)| it.warnings.iter().map(move |message| named(number, message))).collect()
}

/// Warnings about the files and devices of flash.
fn place_warnings(plan: &RunPlan) -> Vec<String> {
    if plan.card.is_some() {
        return Vec::new();
    }
    // An absent path is refused elsewhere; a warning about its parent directory would add nothing.
    let present = |flash: &FlashPlan| {
        let paths = flash.paths.iter().filter(|path| !devices::is_uncreatable(path));
        FlashPlan { paths: paths.cloned().collect(), ..flash.clone() }
    };
    let caches = plan.instances.iter().map(|it| &it.cache);
    let caches = caches.filter_map(|it| Some((present(it.flash.as_ref()?), it.persist_dir.is_some())));
    let caches: Vec<_> = caches.collect();
    let caches: Vec<_> = caches.iter().map(|(flash, is_kept)| (flash, *is_kept)).collect();
    let mut warnings = disk_space::warnings(&caches);
    warnings.extend(in_memory::warnings(caches.iter().flat_map(|(flash, _)| &flash.paths)));
    warnings
}

/// Opens the traces of misses. This is the last check before flash is written.
fn open_misses(config: &Config, plan: &RunPlan, workloads: &mut [OpenWorkload]) -> Result<(), SessionError> {
    misses::check(plan).map_err(|(number, source)| open_error(config, number, source))?;
    for (number, (plan, workload)) in plan.instances.iter().zip(workloads).enumerate() {
        let tenants = workload.trace.as_ref().map(|trace| trace.tenants());
        let misses = misses::open(&plan.workload, plan.run.threads, tenants);
        workload.misses = misses.map_err(|source| open_error(config, number, source))?;
    }
    Ok(())
}

/// Opens all devices before any cache: a cache that was opened would lose its content if a later device were refused.
fn open_devices(
    config: &Config,
    flash: &[Option<&FlashPlan>],
    supply: &mut dyn DeviceSource,
) -> Result<Vec<Option<Arc<dyn Device>>>, SessionError> {
    let mut open = |(number, plan): (usize, &Option<&FlashPlan>)| {
        let device = plan.map(|plan| supply.open(plan)).transpose();
        device.map_err(|source| open_error(config, number, source))
    };
    flash.iter().enumerate().map(&mut open).collect()
}

fn open_error(config: &Config, instance: usize, source: OpenError) -> SessionError {
    SessionError::Open { file: config.file.clone(), instance, source }
}

fn event_error(config: &Config, (instance, message): (usize, String)) -> SessionError {
    let message = format!("cache_config.eventTrackerFilePath: {message}");
    open_error(config, instance, OpenError::Config(message))
}

/// Refuses features that a simulated run does not support.
fn check_simulated(config: &Config, plan: &RunPlan) -> Result<(), SessionError> {
    for (number, instance) in plan.instances.iter().enumerate() {
        let refuse = |message: &str| Err(open_error(config, number, OpenError::Config(message.to_owned())));
        if instance.cache.persist_dir.is_some() {
            return refuse("cache_config.cacheDir: a simulated run cannot be persistent");
        }
        if let WorkloadPlan::Stressor(stressor) = instance.workload {
            return refuse(&format!(
                "test_config.name: `{}` cannot run in a simulated run: it uses real threads",
                stressor.name()
            ));
        }
        if instance.cache.destructor == DestructorPlan::Checked {
            return refuse(
                "cache_config.enableItemDestructorCheck: must be false in a simulated run: the check cannot wait for the simulated drive",
            );
        }
        if instance.run.sweeps.is_some() {
            return refuse(
                "test_config.dramIteratorMode: must be `disabled` in a simulated run: the iteration uses real time",
            );
        }
    }
    Ok(())
}

/// Checks whether [`enter_world`] would succeed.
fn check_world(config: &Config, plan: &RunPlan, scale: u32) -> Result<(), SessionError> {
    let Some(card) = &plan.card else { return Ok(()) };
    check_simulated(config, plan)?;
    let caches = plan.instances.iter().map(|it| &it.cache);
    ModelDrive::check(card, scale, caches).map_err(SessionError::Drive)
}

/// Checks whether the caches could be opened on devices of the given sizes, with the blocks of the model drive or otherwise 512
/// bytes.
fn check_caches(config: &Config, plan: &RunPlan, scale: u32) -> Result<Vec<String>, SessionError> {
    let card = plan.card.as_ref();
    let placing = plan.instances.iter().filter_map(|it| it.cache.flash.as_ref()).any(|flash| flash.placement);
    let blocks = card.map(|card| ModelDrive::block_and_page_bytes(card, scale, placing)).transpose();
    let (block_bytes, unit_bytes) = blocks.map_err(SessionError::Drive)?.unwrap_or((512, 512));
    let several = plan.instances.len() > 1;
    let mut warnings = Vec::new();
    for (number, InstancePlan { cache, workload, .. }) in plan.instances.iter().enumerate() {
        let in_memory = |flash: &&FlashPlan| card.is_none() && flash.paths.is_empty();
        if let Some(flash) = cache.flash.as_ref().filter(in_memory) {
            devices::check_memory(flash).map_err(|source| open_error(config, number, source))?;
        }
        let device = cache.flash.as_ref().map(|flash| -> Arc<dyn Device> {
            let paths = if card.is_some() { 1 } else { flash.paths.len().max(1) as u64 };
            let bytes = flash.bytes_per_device.saturating_mul(paths) / unit_bytes * unit_bytes;
            Arc::new(MemoryDevice::with_block_bytes(bytes, block_bytes))
        });
        let said = open::check(cache, device, ItemSizes::of(workload));
        let said = said.map_err(|source| open_error(config, number, source))?;
        let named = |warning| if several { format!("[{number}].{warning}") } else { warning };
        warnings.extend(said.into_iter().map(named));
    }
    Ok(warnings)
}

/// Creates the environment of a run: real, or simulated with a model drive.
fn enter_world(
    config: &Config,
    plan: &RunPlan,
    options: &SessionOptions,
) -> Result<(World, Option<ModelDrive>), SessionError> {
    let Some(card) = &plan.card else { return Ok((World::Real(Arc::new(SystemClock)), None)) };
    check_simulated(config, plan)?;
    let caches = plan.instances.iter().map(|it| &it.cache);
    let simulation = Simulation::new(options.seed);
    let drive = ModelDrive::new(&simulation.world(), card, options.scale, caches, options.seed)
        .map_err(SessionError::Drive)?;
    Ok((World::Simulated(simulation), Some(drive)))
}

/// An open instance, with its warnings and event tracker.
struct OpenInstance {
    instance: Instance<EngineTarget>,
    warnings: Vec<String>,
    tracker: Option<EventTracker>,
}

fn open_instance(
    plan: InstancePlan,
    OpenWorkload { workload, trace, time, clock_follows, misses, learned, .. }: OpenWorkload,
    beside: CacheResources,
    number: usize,
    options: &SessionOptions,
    world: &World,
) -> Result<OpenInstance, OpenError> {
    // Each instance has its own seed, so that they do not request the same keys in the same order.
    let seed = options.seed.wrapping_add(number as u64);
    let shown = time.as_ref().filter(|_| clock_follows);
    let destructors = destructors(&plan, &*world.clock());
    let destructor = destructors.as_ref().map(Destructors::callback);
    let beside = CacheResources { sizes: ItemSizes::of(&plan.workload), destructor, ..beside };
    let open::OpenCache { target, warnings, tracker } =
        open::cache(&plan.cache, beside, seed, world, plan.run.tasks, shown)?;
    let instance_options = InstanceOptions {
        seed,
        clock: world.clock(),
        waiter: world.waiter(plan.run.tasks),
        stop: options.stop.clone(),
        // Reading a simulated clock is free.
        time_all: options.time_all || matches!(world, World::Simulated(_)),
        inherits: plan.cache.persist_dir.is_some(),
        chains: open::has_chains(&plan.workload),
        trace,
        trace_time: time,
        misses,
        destructors,
        stressor: stressor(&plan, seed),
        learned,
    };
    let instance = Instance::new(target, plan.run, workload, instance_options);
    Ok(OpenInstance { instance, warnings, tracker })
}

/// The stressor of the plan, if it makes its own requests.
fn stressor(plan: &InstancePlan, seed: u64) -> Option<Stressor> {
    let WorkloadPlan::Stressor(stressor) = plan.workload else { return None };
    let cache = plan.cache.clone();
    let open_cache = move || {
        let world = World::Real(Arc::new(SystemClock));
        let opened = open::cache(&cache, CacheResources::default(), seed, &world, false, None);
        opened.map(|opened| opened.target.into_cache()).map_err(|error| error.to_string())
    };
    Some(Stressor::new(stressor, seed, Box::new(open_cache)))
}

fn destructors(plan: &InstancePlan, clock: &dyn Clock) -> Option<Arc<Destructors>> {
    let is_checked = plan.cache.destructor == DestructorPlan::Checked;
    let new = || Arc::new(Destructors::new(plan.run.threads, run_mark(clock), is_checked));
    (plan.cache.destructor != DestructorPlan::None).then(new)
}

fn flash_paths(plan: &RunPlan) -> Vec<PathBuf> {
    plan.instances
        .iter()
        .filter_map(|it| it.cache.flash.as_ref())
        .flat_map(|flash| flash.paths.clone())
        .collect()
}
