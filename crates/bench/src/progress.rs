//! Progress of a run: a bar on a terminal, plain lines otherwise, and the stats file.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::Clock;

use crate::bar::{Bar, Unit};
use crate::report::amount::duration;
use crate::report::interval::Previous;
use crate::report::intervals::write_whole;
use crate::run::counts::{CounterTable, Counts};
use crate::run::latency::Latencies;
use crate::run::{Observable, Watcher};

/// Options of the progress display.
#[derive(Debug, Clone, Default)]
pub struct ProgressOptions {
    /// Time between two intervals; zero disables them.
    pub interval: Duration,
    /// File for the intervals, which are then not printed. Several instances have a file each.
    pub stats_file: Option<PathBuf>,
    /// Time limit of the run.
    pub timeout: Option<Duration>,
    /// Whether to print nothing on the terminal.
    pub quiet: bool,
}

/// A stats file.
struct StatsFile {
    path: PathBuf,
    file: File,
    /// The first write error, after which an interval is missing.
    failed: Option<std::io::Error>,
}

/// Shows the progress of a run. Lines go to `lines`: standard output, or standard error if standard output is in use.
pub struct Progress<W> {
    options: ProgressOptions,
    clock: Arc<dyn Clock>,
    lines: W,
    files: Vec<StatsFile>,
    last: Vec<Previous>,
    shown: Duration,
    bar: Bar,
}

impl<W: Write> Progress<W> {
    /// Creates a display for `instances` instances; lines have the time of `clock`.
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
                files.push(StatsFile { path, file, failed: None });
            }
        }
        let bar = Bar::new(Unit::Custom, options.quiet);
        let last = std::iter::repeat_with(Previous::default).take(instances).collect();
        Ok(Self { options, clock, lines, files, last, shown: Duration::ZERO, bar })
    }

    /// Appends the final results to the stats files and removes the bar.
    ///
    /// # Errors
    /// A stats file could not be written, now or during the run.
    pub fn finish(mut self, results: &[String]) -> std::io::Result<()> {
        self.bar.finish();
        for (StatsFile { path, file, failed: before }, message) in self.files.iter_mut().zip(results) {
            write_whole(file, message.as_bytes()).map_err(failed(path))?;
            if let Some(error) = before.take() {
                return Err(std::io::Error::new(
                    error.kind(),
                    format!("{error}: some intervals are missing"),
                ));
            }
        }
        Ok(())
    }

    fn show_interval(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let seconds = (elapsed - self.shown).as_secs_f64();
        self.shown = elapsed;
        let now = self.clock.unix_seconds();
        for (number, instance) in instances.iter().enumerate() {
            let interval = self.last[number].advance(*instance);
            let line = interval.progress_line(number, now, seconds);
            let block = (!self.files.is_empty()).then(|| interval.block(&line, seconds));
            match block {
                Some(block) => self.write_block(number, &block),
                None => self.print(&line),
            }
        }
    }

    /// Writes an interval. A full disk does not end the run: the interval is skipped, and the first time a warning is printed.
    fn write_block(&mut self, number: usize, block: &str) {
        let Some(StatsFile { path, file, failed: before }) = self.files.get_mut(number) else { return };
        let Err(error) = write_whole(file, block.as_bytes()).map_err(failed(path)) else { return };
        if before.is_none() {
            let message = format!("warning: {error}; the interval is skipped");
            *before = Some(error);
            self.bar.line(&message);
        }
    }

    fn print(&mut self, line: &str) {
        let lines = &mut self.lines;
        self.bar.suspend(|| drop(writeln!(lines, "{line}")));
    }
}

impl<W: Write> Watcher for Progress<W> {
    fn refresh(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        if self.bar.is_watched() {
            let (share, message) = how_far(instances, elapsed, self.options.timeout);
            self.bar.set((share * BAR_STEPS) as u64, BAR_STEPS as u64, message);
        }
    }

    fn sample(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        if !self.options.interval.is_zero() && elapsed - self.shown >= self.options.interval {
            self.show_interval(instances, elapsed);
        }
    }

    fn warn(&mut self, message: &str) {
        self.bar.line(&format!("warning: {message}"));
    }
}

/// Adds the name of a stats file to an error.
fn failed(path: &Path) -> impl Fn(std::io::Error) -> std::io::Error {
    move |error| std::io::Error::new(error.kind(), format!("writing {}: {error}", path.display()))
}

/// Resolution of the bar.
const BAR_STEPS: f64 = 10_000.0;

/// A condition that ends a run, and the completed share of it, 0 to 1.
pub(crate) type End = (&'static str, f64);

/// The condition that is reached first at the current pace. All instances must end, unless the time limit ends all.
pub(crate) fn nearest_end(
    instances: &[&dyn Observable],
    elapsed: Duration,
    timeout: Option<Duration>,
) -> Option<End> {
    let nearer = |a: End, b: End| if b.1 > a.1 { b } else { a };
    let of_instance = |instance: &&dyn Observable| {
        let (ops, total) = (instance.counts().ops, instance.total_ops());
        let limits = instance.limits();
        let ends = [
            (total > 0).then(|| ("numOps", ops as f64 / total as f64)),
            limits.flash_written.map(|share| ("maxFlashWriteMB", share)),
            limits.trace.map(|share| ("the end of the trace", share)),
        ];
        ends.into_iter().flatten().reduce(nearer)
    };
    let last = instances.iter().filter_map(of_instance).reduce(|a, b| if b.1 < a.1 { b } else { a });
    let timeout =
        timeout.map(|timeout| ("the time limit", elapsed.as_secs_f64() / timeout.as_secs_f64().max(1e-9)));
    last.into_iter().chain(timeout).reduce(nearer).map(|(name, share)| (name, share.clamp(0.0, 1.0)))
}

/// Completed share of the run, and its rates as text.
fn how_far(instances: &[&dyn Observable], elapsed: Duration, timeout: Option<Duration>) -> (f64, String) {
    let (mut counts, mut latencies) = (Counts::default(), Latencies::default());
    instances.iter().for_each(|it| {
        counts.add(&it.counts());
        latencies.merge(&it.latencies());
    });
    let seconds = elapsed.as_secs_f64();
    let rate = counts.ops as f64 / seconds.max(1e-9);
    let hits = counts.hit_ratio().unwrap_or(0.0);
    let mut message = format!("{:.0}k ops/s  ", rate / 1e3);
    if let Some(bytes) =
        instances.iter().filter_map(|it| Some(it.flash_stats()?.device.written_bytes)).reduce(|a, b| a + b)
    {
        let _ = write!(message, "{:.1} MB/s to flash  ", bytes as f64 / seconds.max(1e-9) / 1e6);
    }
    let _ = write!(message, "hit ratio {:.1}%  ", hits * 100.0);
    if let Some(ns) = latencies.gets().quantile_ns(0.99) {
        let _ = write!(message, "get p99 {}  ", duration(ns as f64));
    }
    let end = nearest_end(instances, elapsed, timeout);
    if let Some((name, share)) = end.filter(|(_, share)| *share > 0.0) {
        let _ = write!(message, "{} left to {name}", clock_text(seconds * (1.0 - share) / share));
    }
    (end.map_or(0.0, |(_, share)| share), message)
}

fn clock_text(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Paths of the stats files: `path` itself for a single instance.
#[must_use]
pub fn stats_files(path: &Path, instances: usize) -> Vec<PathBuf> {
    match instances {
        1 => vec![path.to_owned()],
        _ => (0..instances).map(|number| numbered(path, number)).collect(),
    }
}

/// For instance 2, `stats.log` becomes `stats_2.log`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |it| format!(".{}", it.to_string_lossy()));
    path.with_file_name(format!("{stem}_{number}{extension}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::run::Limits;
    use crate::run::target::Snapshot;

    /// An instance with constant counters.
    #[derive(Default)]
    struct Frozen {
        counts: Counts,
        total_ops: u64,
        limits: Limits,
    }

    impl Observable for Frozen {
        fn counts(&self) -> Counts {
            self.counts
        }
        fn latencies(&self) -> Latencies {
            Latencies::default()
        }
        fn snapshot(&self) -> Snapshot {
            Snapshot::default()
        }
        fn total_ops(&self) -> u64 {
            self.total_ops
        }
        fn limits(&self) -> Limits {
            self.limits
        }
        fn set_rate(&self, _: u64) {}
    }

    fn frozen(ops: u64, total_ops: u64) -> Frozen {
        Frozen { counts: Counts { ops, ..Counts::default() }, total_ops, limits: Limits::default() }
    }

    /// A get is counted when it begins, and its miss when it ends, so a sample can have more misses than gets.
    #[test]
    fn hit_ratio_with_more_misses_than_gets_is_zero() {
        for (gets, get_misses, percent) in [(10, 4, 60.0), (10, 11, 0.0), (0, 0, 0.0)] {
            let counts = Counts { ops: gets, gets, get_misses, ..Counts::default() };
            let instance = Frozen { counts, total_ops: u64::MAX, limits: Limits::default() };
            let (share, message) = how_far(&[&instance, &instance], Duration::from_secs(1), None);
            assert!((0.0..1e-9).contains(&share));
            assert!(message.contains(&format!("hit ratio {percent:.1}%")), "{message}");
        }
    }

    #[test]
    fn time_left_refers_to_the_nearest_end() {
        let left = |instances: &[&dyn Observable], timeout: Option<u64>| {
            let timeout = timeout.map(Duration::from_secs);
            how_far(instances, Duration::from_secs(10), timeout).1
        };
        let endless = frozen(1_000_000, 900_000_000_000);
        assert!(left(&[&endless], Some(40)).ends_with("0:00:30 left to the time limit"));
        assert!(left(&[&endless], None).ends_with("left to numOps"));
        let limits = Limits { flash_written: Some(0.25), trace: Some(0.1) };
        assert!(
            left(&[&Frozen { limits, ..frozen(1, u64::MAX) }], None)
                .ends_with("0:00:30 left to maxFlashWriteMB")
        );
        let limits = Limits { flash_written: None, trace: Some(0.5) };
        let in_trace = Frozen { limits, ..frozen(1, u64::MAX) };
        assert!(left(&[&in_trace], None).ends_with("0:00:10 left to the end of the trace"));
        // Both instances must end.
        assert!(left(&[&in_trace, &frozen(1, 5)], None).ends_with("0:00:40 left to numOps"));
    }

    #[test]
    fn interval_with_write_error_is_skipped_completely() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats");
        std::fs::write(&path, "whole\n").unwrap();
        let mut reading = File::open(&path).unwrap();
        assert!(write_whole(&mut reading, b"more\n").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\n");
        let options = ProgressOptions { stats_file: Some("/dev/full".into()), ..ProgressOptions::default() };
        let clock = Arc::new(device::SystemClock);
        let error = Progress::new(options, clock, 1, std::io::sink()).err().unwrap();
        assert!(error.to_string().starts_with("writing /dev/full: "), "{error}");
    }
}
