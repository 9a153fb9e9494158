//! How far a study is: a bar on a terminal, a line a run elsewhere.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// Parts of a run that the bar tells apart.
const PARTS: u64 = 100;

/// Goes to standard error, so that results can be piped.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    runs: Mutex<Runs>,
}

/// The runs that are under way together.
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
        let watched = !quiet && std::io::stderr().is_terminal();
        Self { bar: watched.then(ProgressBar::hidden), quiet, runs: Mutex::default() }
    }

    /// So many runs begin.
    pub(super) fn begin(&self, count: usize) {
        *self.runs.lock() = Runs { parts: vec![0; count], ended: 0 };
        let Some(bar) = self.bar.as_ref().filter(|_| count > 0) else { return };
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3}%  {msg}, {eta} left");
        bar.set_style(style.expect("the template is a constant"));
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        bar.reset();
        bar.set_length(count as u64 * PARTS);
        bar.set_message(format!("0 of {count} runs"));
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
        if self.bar.is_none() && !self.quiet {
            // Nobody reads: then nobody misses it.
            let _ = writeln!(std::io::stderr(), "{} of {} runs", runs.ended, runs.parts.len());
        }
    }

    /// All have, or one failed: takes the bar away.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, runs: &Runs) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} of {} runs", runs.ended, runs.parts.len()));
            bar.set_position(runs.parts.iter().sum());
        }
    }
}
