//! One profile on one drive, with placement or without: the real engine, through all stages.

use std::path::Path;
use std::time::Duration;

use device::nvme::Wear;

use super::life::{Life, Wearing, Years};
use super::profile::{Profile, Room};
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
use crate::run::target::Snapshot;
use crate::session::{Session, SessionError, SessionOptions};

/// A profile and how its writes go.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The workload.
    pub profile: &'static Profile,
    /// The cache.
    pub room: Room,
}

/// How all jobs are run.
#[derive(Debug, Clone)]
pub struct How {
    /// Seed of everything random.
    pub seed: u64,
    /// How long stages are.
    pub lengths: Lengths,
    /// What is offered.
    pub offers: Vec<Offer>,
    /// What the drive is rated for.
    pub life: Life,
    /// The user's wish to stop.
    pub interrupt: Stop,
}

/// What came of a job.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The profile's name.
    pub profile: &'static str,
    /// Whether writes were placed.
    pub placement: bool,
    /// How the drive was filled.
    pub warm_up: WarmUp,
    /// Every rate, the unlimited one first.
    pub rows: Vec<Row>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// What the run's own checks found, in the filling too.
    pub failures: Vec<String>,
    /// What was not as asked for.
    pub warnings: Vec<String>,
    /// The drive's counters before and after, where it has any.
    pub wear: Option<(Wear, Wear)>,
}

/// What was measured at a rate.
#[derive(Debug, Clone)]
pub struct Row {
    /// Operations a second that were offered; none was as fast as it goes.
    pub offered: Option<u64>,
    /// The figures of a run, of this stage alone.
    pub report: InstanceReport,
    /// What was written.
    pub wearing: Wearing,
    /// How long the drive lasts at that.
    pub years: Years,
    /// Capacities that the host writes in a day.
    pub drive_writes_a_day: f64,
}

impl Job {
    /// Its config, for a drive.
    ///
    /// # Errors
    /// A config that cannot run on it.
    pub fn config(&self, subject: &Subject) -> Result<Config, SessionError> {
        let device = match subject {
            Subject::Model(model) => DeviceSpec::Simulated(model.named.clone()),
            Subject::Real(real) => DeviceSpec::Path(real.path.clone()),
        };
        let name = Path::new(self.profile.name);
        let loaded = load_text(name, &self.profile.config(&self.room), &[Override::Device(device)])?;
        let Loaded::Config(config) = loaded else { unreachable!("a profile is a config") };
        Session::check(&config, self.room.scale)?;
        Ok(*config)
    }

    /// Runs it.
    ///
    /// # Errors
    /// What cannot be opened or run.
    pub fn run(&self, subject: &Subject, how: &How, advance: &dyn Fn(f64)) -> Result<Measured, SessionError> {
        let config = self.config(subject)?;
        let stop = Stop::default();
        let options = SessionOptions {
            seed: how.seed,
            stop: stop.clone(),
            scale: self.room.scale,
            // Whoever owns the drive was asked before anything was written.
            force: true,
            ..SessionOptions::default()
        };
        let before = wear(subject);
        let session = Session::open(&config, options)?;
        let drive = session.drive().cloned();
        let capacity_bytes = subject.capacity_bytes() as f64 / f64::from(self.room.scale);
        let mut stages = Stages {
            lengths: how.lengths,
            offers: &how.offers,
            life: how.life,
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
            region_bytes: self.profile.region_bytes(&self.room),
            drive: drive.as_ref(),
            life: &how.life,
        };
        let rows = done.iter().filter_map(|stage| Row::new(stage, &context));
        Ok(Measured {
            profile: self.profile.name,
            placement: self.room.placement,
            warm_up,
            rows: rows.collect(),
            interrupted: stop.reason() == Some(StopReason::Interrupt),
            failures: report.failures(),
            warnings: report.warnings,
            wear: before.zip(wear(subject)),
        })
    }
}

/// The drive's counters, where it has any.
fn wear(subject: &Subject) -> Option<Wear> {
    let Subject::Real(real) = subject else { return None };
    Some(Watched::open(&real.path).ok()?.sample(0).wear)
}

/// What a stage is a part of.
struct Context<'a> {
    whole: &'a RunReport,
    first: Option<&'a Moment>,
    region_bytes: f64,
    drive: Option<&'a ModelDrive>,
    life: &'a Life,
}

impl Row {
    /// The stage as a run of its own.
    fn new(stage: &Stage, context: &Context<'_>) -> Option<Self> {
        let Stage { offered, counted } = stage;
        let Context { whole, first, region_bytes, drive, life } = *context;
        let wearing = Wearing::of_stage(counted, first?, region_bytes, drive);
        let mut flash = counted.flash.clone();
        if let Some((drive, stats)) = drive.zip(counted.drive.as_ref()) {
            DriveReport { stats: stats.clone(), ..DriveReport::since(drive, None) }
                .apply_to_flash(&mut flash);
        }
        let snapshot = Snapshot { dram: counted.dram.clone(), flash: Some(flash), ..Snapshot::default() };
        let report = InstanceReport {
            seconds: counted.at.as_secs_f64(),
            counts: counted.counts,
            latencies: counted.latencies.clone(),
            snapshot,
            stopped: None,
            ..whole.instances.first()?.clone()
        };
        let (years, drive_writes_a_day) = (life.years(&wearing), life.drive_writes_a_day(&wearing));
        Some(Self { offered: *offered, report, wearing, years, drive_writes_a_day })
    }

    /// Operations a second that were done.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.report.counts.ops as f64 / self.report.seconds.max(1e-9)
    }

    /// The share of the offered operations that was done, at most 1; `None` at full speed. A request that begins before the stage
    /// and ends in it is counted, but does not make the drive faster than the load.
    #[must_use]
    pub fn reached(&self) -> Option<f64> {
        self.offered.map(|offered| (self.throughput() / offered as f64).min(1.0))
    }

    /// A quantile of the drive's reads and of its writes.
    #[must_use]
    pub fn device_quantiles(&self, share: f64) -> (Option<Duration>, Option<Duration>) {
        let latency = self.report.snapshot.flash.as_ref().and_then(|flash| flash.device_latency.as_ref());
        let of = |histogram: &crate::run::latency::Histogram| {
            histogram.quantile_ns(share).map(Duration::from_nanos)
        };
        (latency.and_then(|it| of(&it.0)), latency.and_then(|it| of(&it.1)))
    }
}
