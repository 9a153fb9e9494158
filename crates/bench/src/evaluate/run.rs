//! Runs one profile on a drive, with or without placement, through all stages.

use std::path::Path;
use std::time::Duration;

use device::nvme::Wear;

use super::life::{Life, WriteRates, Years};
use super::profile::{CacheSetup, Profile};
use super::stages::{Lengths, Offer, Progress, Stage, Stages, WarmUp};
use super::subject::Subject;
use crate::config::cachebench::{Config, load_text};
use crate::config::{DeviceSpec, Loaded, Override};
use crate::drive::wear::Watched;
use crate::moment::Moment;
use crate::report::{DriveReport, RunReport};
use crate::run::InstanceReport;
use crate::run::model_drive::ModelDrive;
use crate::run::stop::{Stop, StopReason};
use crate::session::{Session, SessionError, SessionOptions};

/// A profile and the settings of its cache.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The workload.
    pub profile: &'static Profile,
    /// The cache.
    pub setup: CacheSetup,
}

/// Settings of all runs.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Lengths of the stages.
    pub lengths: Lengths,
    /// Offered rates.
    pub offers: Vec<Offer>,
    /// Rated endurance and required lifetime.
    pub life: Life,
    /// Whether the fill ends when a forecast proves that the write amplification is final, and not before.
    pub stop_early: bool,
    /// Flag that interrupts the runs.
    pub interrupt: Stop,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Name of the profile.
    pub profile: &'static str,
    /// Whether writes used placement.
    pub placement: bool,
    /// Result of the fill.
    pub warm_up: WarmUp,
    /// All rates, the unlimited one first.
    pub rows: Vec<Row>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Errors that the run's checks found, including the fill.
    pub failures: Vec<String>,
    /// Deviations from the settings.
    pub warnings: Vec<String>,
    /// The drive's wear counters before and after the run, if it has them.
    pub wear: Option<(Wear, Wear)>,
}

/// Measurement of one rate.
#[derive(Debug, Clone)]
pub struct Row {
    /// Offered operations per second; `None` is unlimited.
    pub offered: Option<u64>,
    /// Figures of this stage, as in the report of a run.
    pub report: InstanceReport,
    /// Write rate and write amplification.
    pub writes: WriteRates,
    /// Lifetime of the drive at this write rate.
    pub years: Years,
    /// Drive writes per day of the host.
    pub drive_writes_per_day: f64,
}

impl Job {
    /// CacheBench config for a drive.
    ///
    /// # Errors
    /// The config cannot run on the drive.
    pub fn config(&self, subject: &Subject) -> Result<Config, SessionError> {
        let device = match subject {
            Subject::Model(model) => DeviceSpec::Simulated(model.named.clone()),
            Subject::Real(real) => DeviceSpec::Path(real.path.clone()),
        };
        let name = Path::new(self.profile.name);
        let loaded = load_text(name, &self.profile.config(&self.setup), &[Override::Device(device)])?;
        let Loaded::Config(config) = loaded else { unreachable!("a profile is a config") };
        Session::check(&config, self.setup.scale)?;
        Ok(*config)
    }

    /// Runs the profile.
    ///
    /// # Errors
    /// The drive or the cache cannot be opened, or the run fails.
    pub fn run(
        &self,
        subject: &Subject,
        how: &RunOptions,
        advance: &dyn Fn(f64),
    ) -> Result<Measured, SessionError> {
        let config = self.config(subject)?;
        let stop = Stop::default();
        let options = SessionOptions {
            seed: how.seed,
            stop: stop.clone(),
            scale: self.setup.scale,
            // The user confirmed overwriting the drive before.
            force: true,
            ..SessionOptions::default()
        };
        let before = wear(subject);
        let session = Session::open(&config, options)?;
        let drive = session.drive().cloned();
        let capacity_bytes = subject.capacity_bytes() as f64 / f64::from(self.setup.scale);
        let mut stages = Stages {
            lengths: how.lengths,
            offers: &how.offers,
            life: how.life,
            stop_early: how.stop_early,
            capacity_bytes,
            drive: drive.clone(),
            interrupt: how.interrupt.clone(),
            stop: stop.clone(),
            advance,
            progress: Progress::default(),
        };
        let report = session.run(&config, &mut stages)?;
        let (warm_up, done) = stages.progress.results();
        let context = Context {
            whole: &report,
            first: done.first().map(|stage| &stage.counted),
            region_bytes: self.profile.region_bytes(&self.setup),
            drive: drive.as_ref(),
            life: &how.life,
        };
        let rows = done.iter().filter_map(|stage| Row::new(stage, &context));
        Ok(Measured {
            profile: self.profile.name,
            placement: self.setup.placement,
            warm_up,
            rows: rows.collect(),
            interrupted: stop.reason() == Some(StopReason::Interrupt),
            failures: report.failures(),
            warnings: report.warnings,
            wear: before.zip(wear(subject)),
        })
    }
}

/// The drive's wear counters, if it has them.
fn wear(subject: &Subject) -> Option<Wear> {
    let Subject::Real(real) = subject else { return None };
    Some(Watched::open(&real.path).ok()?.sample(0).wear)
}

/// Values that all stages of a run share.
struct Context<'a> {
    whole: &'a RunReport,
    first: Option<&'a Moment>,
    region_bytes: f64,
    drive: Option<&'a ModelDrive>,
    life: &'a Life,
}

impl Row {
    /// Converts a stage to a row.
    fn new(stage: &Stage, context: &Context<'_>) -> Option<Self> {
        let Stage { offered, counted } = stage;
        let Context { whole, first, region_bytes, drive, life } = *context;
        let writes = WriteRates::of_stage(counted, first?, region_bytes, drive);
        let mut snapshot = counted.snapshot.clone();
        if let Some((drive, stats)) = drive.zip(counted.drive.as_ref()) {
            DriveReport { stats: stats.clone(), ..DriveReport::since(drive, None) }
                .apply_to_flash(&mut snapshot);
        }
        let report = InstanceReport {
            seconds: counted.at.as_secs_f64(),
            counts: counted.counts,
            latencies: counted.latencies.clone(),
            snapshot,
            stopped: None,
            ..whole.instances.first()?.clone()
        };
        let (years, drive_writes_per_day) = (life.years(&writes), life.drive_writes_per_day(&writes));
        Some(Self { offered: *offered, report, writes, years, drive_writes_per_day })
    }

    /// Completed operations per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.report.counts.ops as f64 / self.report.seconds.max(1e-9)
    }

    /// Completed share of the offered operations, at most 1; `None` at full speed. The share can exceed 1 without the cap,
    /// because requests that start before the stage may complete in it.
    #[must_use]
    pub fn reached(&self) -> Option<f64> {
        self.offered.map(|offered| (self.throughput() / offered as f64).min(1.0))
    }

    /// Quantiles of the drive's read and write latency.
    #[must_use]
    pub fn device_quantiles(&self, share: f64) -> (Option<Duration>, Option<Duration>) {
        let latency = self.report.snapshot.device_latency();
        let of = |histogram: &crate::run::latency::Histogram| {
            histogram.quantile_ns(share).map(Duration::from_nanos)
        };
        (latency.and_then(|it| of(&it.0)), latency.and_then(|it| of(&it.1)))
    }
}
