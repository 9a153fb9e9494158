//! Runs experiments side by side, each once.

use std::collections::HashMap;
use std::fmt::Debug;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Progress;
use super::cdn::{PhotoCache, PhotoMeasured};
use super::experiment::{Experiment, Measured, StudyError};
use crate::run::stop::Stop;

/// Where and how studies run. Experiments that several figures show are run once.
pub struct Runner {
    /// The drive and the cache are so much smaller than the paper's.
    pub scale: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Ends everything.
    pub stop: Stop,
    progress: Progress,
    done: Mutex<HashMap<String, Measured>>,
    photos: Mutex<HashMap<String, PhotoMeasured>>,
}

impl Runner {
    /// A runner of experiments on 1/`scale` of the paper's drive.
    #[must_use]
    pub fn new(scale: u32, seed: u64, stop: Stop, progress: Progress) -> Self {
        Self { scale, seed, stop, progress, done: Mutex::default(), photos: Mutex::default() }
    }

    /// What `experiments` came to, in their order; as many at once as there are cores.
    ///
    /// # Errors
    /// The first that failed.
    pub fn run(&self, experiments: &[Experiment]) -> Result<Vec<Measured>, StudyError> {
        self.side_by_side(&self.done, experiments, |experiment, advance| experiment.run(self, advance))
    }

    /// The same of photo caches.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn photos<const N: usize>(&self, caches: [PhotoCache; N]) -> Result<[PhotoMeasured; N], StudyError> {
        let run = |cache: &PhotoCache, advance: &dyn Fn(f64)| cache.run(self.seed, &self.stop, advance);
        let measured = self.side_by_side(&self.photos, &caches, run)?;
        Ok(measured.try_into().unwrap_or_else(|_| unreachable!("one for each")))
    }

    fn side_by_side<E: Debug + Sync, M: Clone + Send>(
        &self,
        done: &Mutex<HashMap<String, M>>,
        experiments: &[E],
        run: impl Fn(&E, &dyn Fn(f64)) -> Result<M, StudyError> + Sync,
    ) -> Result<Vec<M>, StudyError> {
        let missing: Vec<&E> = experiments.iter().filter(|it| !done.lock().contains_key(&key(it))).collect();
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(experiment) = missing.get(number) else { return };
                match run(experiment, &|share| self.progress.advance(number, share)) {
                    Ok(measured) => drop(done.lock().insert(key(experiment), measured)),
                    Err(error) => {
                        failure.lock().get_or_insert(error);
                        return;
                    }
                }
                self.progress.ended(number);
            }
        };
        self.progress.begin(missing.len());
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        self.progress.end();
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        let done = done.lock();
        Ok(experiments.iter().map(|it| done[&key(it)].clone()).collect())
    }

    /// Each of `experiments` with placement and without.
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
