//! A whole run: open everything, stress it, say how it went.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};

use crate::config::cachebench::{Config, ConfigError};
use crate::config::lower::lower;
use crate::config::plan::{InstancePlan, RunPlan};
use crate::environment;
use crate::report::series::Recorder;
use crate::report::{RunReport, totals};
use crate::run::devices::Devices;
use crate::run::engine::EngineTarget;
use crate::run::open::{self, OpenError};
use crate::run::pace::Waiter;
use crate::run::stop::Stop;
use crate::run::{Instance, InstanceOptions, RunError, Watcher, run_all};

/// How a session is run, besides what the config says.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// Ends the run, with a full report.
    pub timeout: Option<Duration>,
    /// Times every operation.
    pub time_all: bool,
    /// Ends the run when it is set.
    pub stop: Stop,
}

/// Everything opened, nothing run yet.
pub struct Session {
    instances: Vec<Instance<EngineTarget>>,
    /// Which of them a later run is to find again.
    persistent: Vec<bool>,
    options: SessionOptions,
    flash_paths: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
    warnings: Vec<String>,
}

/// Why a session could not be.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The config cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something that it names cannot be opened.
    #[error("instance {instance}: {source}")]
    Open {
        /// Which of several.
        instance: usize,
        /// What.
        source: OpenError,
    },
    /// The run could not start.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Session {
    /// Opens what `config` describes.
    ///
    /// # Errors
    /// A feature that is not here, or something that cannot be opened.
    pub fn open(config: &Config, options: SessionOptions) -> Result<Self, SessionError> {
        let plan = lower(config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let flash_paths = flash_paths(&plan);
        let persistent = plan.instances.iter().map(|it| it.cache.persist_dir.is_some()).collect();
        let mut devices = Devices::of(plan.instances.iter().map(|it| &it.cache));
        let (mut instances, mut warnings) = (Vec::new(), Vec::new());
        for (number, plan) in plan.instances.into_iter().enumerate() {
            let (instance, warned) = open_instance(plan, &mut devices, number, &options, &clock)
                .map_err(|source| SessionError::Open { instance: number, source })?;
            instances.push(instance);
            warnings.extend(warned);
        }
        Ok(Self { instances, persistent, options, flash_paths, clock, warnings })
    }

    /// Where what was opened is not as the config asks for.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs it to its end and closes the caches.
    ///
    /// # Errors
    /// A workload or thread that cannot start.
    pub fn run(self, config: &Config, watcher: &mut dyn Watcher) -> Result<RunReport, SessionError> {
        let seed = self.options.seed;
        let environment = environment::capture(&self.flash_paths, self.clock.unix_seconds());
        let mut recorder = Recorder::new(watcher);
        let instances = run_all(&self.instances, self.options.timeout, &mut recorder)?;
        let mut series = recorder.series;
        let all = totals(&instances);
        series.end(all.seconds, all.counts);
        let warnings = config.warnings.iter().map(ToString::to_string).chain(self.warnings.clone()).collect();
        let errors = self.close();
        Ok(RunReport { errors, instances, series, warnings, seed, config: config.as_run(), environment })
    }

    /// A persistent cache is closed, so that the next run finds it; any other is only dropped, and its file goes with it.
    fn close(self) -> Vec<String> {
        let mut errors = Vec::new();
        for (instance, persistent) in self.instances.into_iter().zip(self.persistent) {
            if persistent && let Err(error) = instance.into_target().into_cache().close() {
                errors.push(format!("The cache could not be closed and will start empty: {error}"));
            }
        }
        errors
    }
}

fn open_instance(
    plan: InstancePlan,
    devices: &mut Devices,
    number: usize,
    options: &SessionOptions,
    clock: &Arc<dyn Clock>,
) -> Result<(Instance<EngineTarget>, Vec<String>), OpenError> {
    // Instances of one run must not ask for the same keys in the same order.
    let seed = options.seed.wrapping_add(number as u64);
    let (workload, trace) = open::workload(&plan.workload)?;
    let open::OpenCache { target, warnings } = open::cache(&plan.cache, devices, seed, clock)?;
    let instance_options = InstanceOptions {
        seed,
        clock: Arc::clone(clock),
        waiter: Waiter::Thread(Arc::clone(clock)),
        stop: options.stop.clone(),
        time_all: options.time_all,
        inherits: plan.cache.persist_dir.is_some(),
        chains: open::has_chains(&plan.workload),
        trace,
    };
    Ok((Instance::new(target, plan.run, workload, instance_options), warnings))
}

fn flash_paths(plan: &RunPlan) -> Vec<PathBuf> {
    plan.instances
        .iter()
        .filter_map(|it| it.cache.flash.as_ref())
        .flat_map(|flash| flash.paths.clone())
        .collect()
}
