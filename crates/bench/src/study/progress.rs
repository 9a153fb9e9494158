//! How far a study is: a bar on a terminal, a line a run elsewhere.

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

    /// So many runs begin.
    pub(super) fn begin(&self, count: usize) {
        let mut runs = self.runs.lock();
        *runs = Runs { parts: vec![0; count], ended: 0 };
        if count > 0 {
            self.show(&runs);
        }
    }

    /// This share of run `number` is done.
    pub(super) fn advance(&self, number: usize, share: f64) {
        let mut runs = self.runs.lock();
        runs.parts[number] = (share.clamp(0.0, 1.0) * PARTS as f64) as u64;
        self.show(&runs);
    }

    /// Run `number` has ended.
    pub(super) fn ended(&self, number: usize) {
        let mut runs = self.runs.lock();
        runs.parts[number] = PARTS;
        runs.ended += 1;
        self.show(&runs);
        self.bar.line_instead(&runs.words());
    }

    /// All have, or one failed: takes the bar away.
    pub(super) fn end(&self) {
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
