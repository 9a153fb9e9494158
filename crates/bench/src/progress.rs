//! What the user sees while a run lasts: a bar on a terminal, plain lines elsewhere, and the stats file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::Clock;

use crate::bar::{Bar, Unit};
use crate::report::interval::Last;
use crate::run::counts::Counts;
use crate::run::{Observable, Watcher};

/// What to show.
#[derive(Debug, Clone, Default)]
pub struct ProgressOptions {
    /// Time between two lines or blocks; zero is never.
    pub interval: Duration,
    /// Where the blocks go; the lines go there too then. With several instances each has its own file.
    pub stats_file: Option<PathBuf>,
    /// Show nothing on the terminal.
    pub quiet: bool,
}

/// Shows how far a run is. The lines go to `lines`, which is standard output, or standard error where that is taken.
pub struct Progress<W> {
    options: ProgressOptions,
    clock: Arc<dyn Clock>,
    lines: W,
    files: Vec<(PathBuf, File)>,
    last: Vec<Last>,
    shown: Duration,
    bar: Bar,
}

impl<W: Write> Progress<W> {
    /// A display for `instances` instances, whose lines tell the time of `clock`.
    ///
    /// # Errors
    /// The stats file cannot be written.
    pub fn new(
        options: ProgressOptions,
        clock: Arc<dyn Clock>,
        instances: usize,
        lines: W,
    ) -> std::io::Result<Self> {
        let mut files = Vec::new();
        if let Some(path) = &options.stats_file {
            for path in stats_files(path, instances) {
                let mut file =
                    OpenOptions::new().create(true).append(true).open(&path).map_err(failed(&path))?;
                writeln!(file, "=== Starting new run ===").map_err(failed(&path))?;
                files.push((path, file));
            }
        }
        let bar = Bar::new(Unit::Told, options.quiet);
        let last = std::iter::repeat_with(Last::default).take(instances).collect();
        Ok(Self { options, clock, lines, files, last, shown: Duration::ZERO, bar })
    }

    /// Appends the final results to the stats files and takes the bar away.
    ///
    /// # Errors
    /// A stats file cannot be written.
    pub fn finish(mut self, results: &[String]) -> std::io::Result<()> {
        self.bar.finish();
        for ((path, file), words) in self.files.iter_mut().zip(results) {
            file.write_all(words.as_bytes()).map_err(failed(path))?;
        }
        Ok(())
    }

    fn show_interval(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let seconds = (elapsed - self.shown).as_secs_f64();
        self.shown = elapsed;
        let now = self.clock.unix_seconds();
        for (number, instance) in instances.iter().enumerate() {
            let interval = self.last[number].advance(*instance);
            let line = interval.progress_line(number, now);
            match self.files.get_mut(number) {
                // A full disk must not end the run; the final write reports it.
                Some((_, file)) => drop(file.write_all(interval.block(&line, seconds).as_bytes())),
                None => self.print(&line),
            }
        }
    }

    fn print(&mut self, line: &str) {
        let lines = &mut self.lines;
        self.bar.beside(|| drop(writeln!(lines, "{line}")));
    }
}

impl<W: Write> Watcher for Progress<W> {
    fn look(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        update(&self.bar, instances, elapsed);
    }

    fn moment(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        if !self.options.interval.is_zero() && elapsed - self.shown >= self.options.interval {
            self.show_interval(instances, elapsed);
        }
    }
}

/// The error of a stats file, with its name.
fn failed(path: &Path) -> impl Fn(std::io::Error) -> std::io::Error {
    move |error| std::io::Error::new(error.kind(), format!("writing {}: {error}", path.display()))
}

fn update(bar: &Bar, instances: &[&dyn Observable], elapsed: Duration) {
    let (ops, total, words) = how_far(instances, elapsed);
    bar.set(ops, total, words);
}

/// Operations done, of how many, and the rest in words.
fn how_far(instances: &[&dyn Observable], elapsed: Duration) -> (u64, u64, String) {
    let total = instances.iter().map(|it| it.total_ops()).fold(0, u64::saturating_add);
    let mut counts = Counts::default();
    instances.iter().for_each(|it| counts.add(&it.counts()));
    let ops = counts.ops;
    let rate = ops as f64 / elapsed.as_secs_f64().max(1e-9);
    let hits = counts.hit_ratio().unwrap_or(0.0);
    let left = if rate > 0.0 { (total.saturating_sub(ops)) as f64 / rate } else { 0.0 };
    let words =
        format!("{:.0}k ops/s  hit ratio {:.1}%  {} left", rate / 1e3, hits * 100.0, clock_words(left));
    (ops, total, words)
}

fn clock_words(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The stats file of each of so many instances, of which a single one has `path` itself.
#[must_use]
pub fn stats_files(path: &Path, instances: usize) -> Vec<PathBuf> {
    match instances {
        1 => vec![path.to_owned()],
        _ => (0..instances).map(|number| numbered(path, number)).collect(),
    }
}

/// `stats.log` for instance 2 is `stats_2.log`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |it| format!(".{}", it.to_string_lossy()));
    path.with_file_name(format!("{stem}_{number}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::latency::Latencies;
    use crate::run::target::Snapshot;

    /// An instance that is to do more than can be counted.
    struct Endless(Counts);

    impl Observable for Endless {
        fn counts(&self) -> Counts {
            self.0
        }
        fn latencies(&self) -> Latencies {
            Latencies::default()
        }
        fn snapshot(&self) -> Snapshot {
            Snapshot::default()
        }
        fn total_ops(&self) -> u64 {
            u64::MAX
        }
        fn set_rate(&self, _: u64) {}
    }

    /// A get counts when it begins and as a miss when it ends: who reads in between reads more misses than gets.
    #[test]
    fn a_look_at_more_misses_than_gets_ended_the_run() {
        let looks = [(10, 4, 60.0), (10, 11, 0.0), (0, 0, 0.0)];
        for (gets, get_misses, percent) in looks {
            let instance = Endless(Counts { ops: gets, gets, get_misses, ..Counts::default() });
            let (ops, total, words) = how_far(&[&instance, &instance], Duration::from_secs(1));
            assert_eq!((ops, total), (2 * gets, u64::MAX));
            assert!(words.contains(&format!("hit ratio {percent:.1}%")), "{words}");
        }
    }
}
