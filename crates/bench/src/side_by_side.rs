//! Runs that go side by side, and how far they are: a bar on a terminal, a line a run elsewhere.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::bar::{Bar, Unit};

/// Parts of a run that the bar tells apart.
const PARTS: u64 = 100;

/// Adds up the runs that are under way together.
pub struct Progress {
    bar: Bar,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    /// Of each, how much of it is done.
    parts: Vec<u64>,
    ended: usize,
}

impl Progress {
    /// A bar, if somebody watches. `quiet` shows nothing at all.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self { bar: Bar::new(Unit::Steps, quiet), runs: Mutex::default() }
    }

    /// Runs number 0 to `count`, `threads` of them at once. A run is told its number, and tells what share of it is done.
    ///
    /// # Errors
    /// The first that failed; those that have not begun do not any more.
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

    /// So many runs begin.
    fn begin(&self, count: usize) {
        let mut runs = self.runs.lock();
        *runs = Runs { parts: vec![0; count], ended: 0 };
        if count > 0 {
            self.show(&runs);
        }
    }

    /// This share of run `number` is done.
    fn advance(&self, number: usize, share: f64) {
        let mut runs = self.runs.lock();
        runs.parts[number] = (share.clamp(0.0, 1.0) * PARTS as f64) as u64;
        self.show(&runs);
    }

    /// Run `number` has ended.
    fn ended(&self, number: usize) {
        let mut runs = self.runs.lock();
        runs.parts[number] = PARTS;
        runs.ended += 1;
        self.show(&runs);
        self.bar.line_instead(&runs.words());
    }

    /// All have, or one failed: takes the bar away.
    fn end(&self) {
        self.bar.finish();
    }

    fn show(&self, runs: &Runs) {
        self.bar.set(runs.parts.iter().sum(), runs.parts.len() as u64 * PARTS, runs.words() + ", ");
    }
}

impl Runs {
    fn words(&self) -> String {
        format!("{} of {} runs", self.ended, self.parts.len())
    }
}
