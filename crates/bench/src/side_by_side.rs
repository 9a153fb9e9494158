//! Runs jobs concurrently and shows their progress: a bar on a terminal, a line per job otherwise.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::bar::{Bar, Unit};

/// Resolution of the bar for one run.
const PARTS: u64 = 100;

/// Progress of all concurrent runs.
pub struct Progress {
    bar: Bar,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    /// Completed parts of each run.
    parts: Vec<u64>,
    ended: usize,
}

impl Progress {
    /// Creates a bar if standard error is a terminal. `quiet` shows nothing.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self { bar: Bar::new(Unit::Steps, quiet), runs: Mutex::default() }
    }

    /// Runs the numbers 0 to `count` on `threads` threads. `run` receives its number and a function to report the completed share.
    ///
    /// # Errors
    /// The first error; runs that have not started are skipped.
    pub(crate) fn each<E: Send>(
        &self,
        threads: usize,
        count: usize,
        run: impl Fn(usize, &dyn Fn(f64)) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                if let Err(error) = run(number, &|share| self.advance(number, share)) {
                    failure.lock().get_or_insert(error);
                    next.store(count, Ordering::Relaxed);
                    return;
                }
                self.ended(number);
            }
        };
        self.begin(count);
        std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        self.end();
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Starts the display of `count` runs.
    fn begin(&self, count: usize) {
        let mut runs = self.runs.lock();
        *runs = Runs { parts: vec![0; count], ended: 0 };
        if count > 0 {
            self.show(&runs);
        }
    }

    /// Records the completed share of a run.
    fn advance(&self, number: usize, share: f64) {
        let mut runs = self.runs.lock();
        runs.parts[number] = (share.clamp(0.0, 1.0) * PARTS as f64) as u64;
        self.show(&runs);
    }

    /// Records that a run has ended.
    fn ended(&self, number: usize) {
        let mut runs = self.runs.lock();
        runs.parts[number] = PARTS;
        runs.ended += 1;
        self.show(&runs);
        self.bar.line_instead(&runs.text());
    }

    /// Removes the bar.
    fn end(&self) {
        self.bar.finish();
    }

    fn show(&self, runs: &Runs) {
        self.bar.set(runs.parts.iter().sum(), runs.parts.len() as u64 * PARTS, runs.text() + ", ");
    }
}

impl Runs {
    fn text(&self) -> String {
        format!("{} of {} runs", self.ended, self.parts.len())
    }
}
