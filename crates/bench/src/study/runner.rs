//! Runs experiments concurrently, each once.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Debug;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::StudyError;
use super::given::GivenTrace;
use crate::block::Summary;
use crate::run::stop::Stop;
use crate::side_by_side::Progress;

/// Share of the host's writes that are buckets, in the studies of the FDP paper: 74 to 90 % in logs of caches on a real drive.
pub const BUCKET_WRITES: f64 = 0.8;

/// An experiment of a study. Its `Debug` form identifies it among those of its type.
pub trait Measure: Debug + Sync + 'static {
    /// The measured values.
    type Result: Clone + Send + Sync + 'static;

    /// Runs the experiment. `advance` receives the completed share.
    ///
    /// # Errors
    /// The run failed or was stopped.
    fn measure(&self, runner: &Runner, advance: &dyn Fn(f64)) -> Result<Self::Result, StudyError>;
}

/// A result by the type of its experiment and the experiment's `Debug` form.
type Results = HashMap<(TypeId, String), Arc<dyn Any + Send + Sync>>;

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
    results: Mutex<Results>,
    shared: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
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
            bucket_writes: BUCKET_WRITES,
            logs: None,
            progress,
            results: Mutex::default(),
            shared: Mutex::default(),
            replayed: Mutex::default(),
        }
    }

    /// Uses a trace for the studies that [take one](super::Study::takes_trace).
    #[must_use]
    pub fn on_trace(self, given: GivenTrace) -> Self {
        Self { given: Some(given), ..self }
    }

    /// Uses another share of bucket writes than [`BUCKET_WRITES`].
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
    pub fn run<M: Measure>(&self, experiments: &[M]) -> Result<Vec<M::Result>, StudyError> {
        let missing: Vec<&M> = experiments.iter().filter(|it| self.result(*it).is_none()).collect();
        self.each(missing.len(), |number, advance| {
            let measured = missing[number].measure(self, advance)?;
            self.results.lock().insert(key(missing[number]), Arc::new(measured));
            Ok(())
        })?;
        Ok(experiments.iter().map(|it| self.result(it).expect("each experiment has run")).collect())
    }

    /// The result of an experiment that has run.
    fn result<M: Measure>(&self, experiment: &M) -> Option<M::Result> {
        let found = self.results.lock().get(&key(experiment)).cloned();
        found.map(|it| it.downcast_ref::<M::Result>().expect("the key has the type").clone())
    }

    /// The value of type `T` that experiments share. `make` makes it for the first caller.
    ///
    /// # Errors
    /// As `make`.
    pub(super) fn shared<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, StudyError>,
    ) -> Result<Arc<T>, StudyError> {
        let known = self.shared.lock().get(&TypeId::of::<T>()).cloned();
        let value = match known {
            Some(value) => value,
            None => {
                let made = Arc::new(make()?) as Arc<dyn Any + Send + Sync>;
                self.shared.lock().entry(TypeId::of::<T>()).or_insert(made).clone()
            }
        };
        Ok(value.downcast().expect("the key is the type"))
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
}

fn key<M: Measure>(experiment: &M) -> (TypeId, String) {
    (TypeId::of::<M>(), format!("{experiment:?}"))
}
