//! Runs experiments concurrently, each once.

use std::collections::HashMap;
use std::fmt::Debug;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::cdn::{Demand, PhotoCache, PhotoMeasured};
use super::experiment::{Experiment, Measured, StudyError};
use super::{GivenTrace, Progress};
use crate::block::Summary;
use crate::run::stop::Stop;

/// Runs the experiments of studies. An experiment that several figures share is run once.
pub struct Runner {
    /// Divisor of the paper's drive and cache sizes.
    pub scale: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Flag that stops all runs.
    pub stop: Stop,
    /// The given trace; `None` generates the workload.
    pub(super) given: Option<GivenTrace>,
    /// Share of the host's writes that are buckets, in the studies of the FDP paper.
    pub(super) bucket_writes: f64,
    /// Folder with logs of drives.
    pub(super) logs: Option<PathBuf>,
    progress: Progress,
    done: Mutex<HashMap<String, Measured>>,
    photos: Mutex<HashMap<String, PhotoMeasured>>,
    demand: OnceLock<Demand>,
    /// Results of block cache replays, by workload, seed and settings.
    pub(super) replayed: Mutex<HashMap<String, Summary>>,
}

impl Runner {
    /// Creates a runner for 1/`scale` of the paper's drive.
    #[must_use]
    pub fn new(scale: u32, seed: u64, stop: Stop, progress: Progress) -> Self {
        Self {
            scale,
            seed,
            stop,
            given: None,
            bucket_writes: super::ring::BUCKET_WRITES,
            logs: None,
            progress,
            done: Mutex::default(),
            photos: Mutex::default(),
            demand: OnceLock::new(),
            replayed: Mutex::default(),
        }
    }

    /// Uses a trace for the studies that [take one](super::Study::takes_trace).
    #[must_use]
    pub fn on_trace(self, given: GivenTrace) -> Self {
        Self { given: Some(given), ..self }
    }

    /// Uses another share of bucket writes than [`BUCKET_WRITES`](super::ring::BUCKET_WRITES).
    #[must_use]
    pub fn with_bucket_writes(self, bucket_writes: f64) -> Self {
        Self { bucket_writes, ..self }
    }

    /// Uses the logs of a folder for the studies that [need some](super::Study::needs_logs).
    #[must_use]
    pub fn with_logs(self, folder: Option<PathBuf>) -> Self {
        Self { logs: folder, ..self }
    }

    /// Runs `experiments` and returns their results in order; as many run concurrently as there are cores.
    ///
    /// # Errors
    /// The first error.
    pub fn run(&self, experiments: &[Experiment]) -> Result<Vec<Measured>, StudyError> {
        self.side_by_side(&self.done, experiments, |experiment, advance| experiment.run(self, advance))
    }

    /// Runs photo caches and returns their results in order.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn photos<const N: usize>(&self, caches: &[PhotoCache; N]) -> Result<[PhotoMeasured; N], StudyError> {
        let demand = self.demand()?;
        let run =
            |cache: &PhotoCache, advance: &dyn Fn(f64)| cache.run(demand, self.seed, &self.stop, advance);
        let measured = self.side_by_side(&self.photos, caches, run)?;
        Ok(measured.try_into().unwrap_or_else(|_| unreachable!("one for each")))
    }

    /// The workload of photo caches.
    ///
    /// # Errors
    /// As [`Demand::of`].
    pub(super) fn demand(&self) -> Result<&Demand, StudyError> {
        if let Some(demand) = self.demand.get() {
            return Ok(demand);
        }
        let demand = Demand::of(self)?;
        Ok(self.demand.get_or_init(|| demand))
    }

    fn side_by_side<E: Debug + Sync, M: Clone + Send>(
        &self,
        done: &Mutex<HashMap<String, M>>,
        experiments: &[E],
        run: impl Fn(&E, &dyn Fn(f64)) -> Result<M, StudyError> + Sync,
    ) -> Result<Vec<M>, StudyError> {
        let missing: Vec<&E> = experiments.iter().filter(|it| !done.lock().contains_key(&key(it))).collect();
        self.each(missing.len(), |number, advance| {
            let measured = run(missing[number], advance)?;
            done.lock().insert(key(missing[number]), measured);
            Ok(())
        })?;
        let done = done.lock();
        Ok(experiments.iter().map(|it| done[&key(it)].clone()).collect())
    }

    /// Runs the numbers 0 to `count`, as many concurrently as there are cores. `run` receives its number and a function to
    /// report the completed share.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn each(
        &self,
        count: usize,
        run: impl Fn(usize, &dyn Fn(f64)) -> Result<(), StudyError> + Sync,
    ) -> Result<(), StudyError> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.progress.each(threads, count, run)
    }

    /// Runs each of `experiments` with and without placement.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_both(&self, experiments: &[Experiment]) -> Result<Vec<(Measured, Measured)>, StudyError> {
        let both =
            experiments.iter().flat_map(|it| [true, false].map(|placement| Experiment { placement, ..*it }));
        let measured = self.run(&both.collect::<Vec<_>>())?;
        Ok(measured.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    }
}

fn key(experiment: &impl Debug) -> String {
    format!("{experiment:?}")
}
