//! Progress of a run: a bar on a terminal, a line from time to time elsewhere, and a hint before a run that takes much memory or time.

use std::time::{Duration, Instant};

use bench::bar::{Bar, Unit};
use bench::report::numbers::grouped;
use ssd::Layout;
use ssd::card::MIN_SCALED_PAGES;

use super::Arguments;

/// Without a terminal, the first progress line is printed after this time.
const FIRST_LINE: Duration = Duration::from_secs(10);
/// Without a terminal, interval of the later progress lines.
const LINES: Duration = Duration::from_secs(60);

/// Shows the progress of a run.
pub(super) struct Pace {
    bar: Bar,
    started: Instant,
    next_line: Duration,
}

impl Pace {
    pub(super) fn new(quiet: bool) -> Self {
        Self { bar: Bar::new(Unit::Steps, quiet), started: now(), next_line: FIRST_LINE }
    }

    /// Shows that `done` of `total` pages are written.
    pub(super) fn update(&mut self, done: u64, total: u64) {
        self.bar.set(done, total, "");
        let elapsed = self.started.elapsed();
        if elapsed >= self.next_line {
            self.next_line = elapsed + LINES;
            self.bar.line_instead(&line(done, total, elapsed));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish();
    }
}

#[expect(clippy::disallowed_methods, reason = "printed progress follows the machine clock")]
fn now() -> Instant {
    Instant::now()
}

fn line(done: u64, total: u64, elapsed: Duration) -> String {
    let left = elapsed.as_secs_f64() * (total.saturating_sub(done)) as f64 / done.max(1) as f64;
    format!("{:.0} % written, {:.0} s left at this pace", done as f64 / total as f64 * 100.0, left)
}

/// A run that takes more memory than this,
const ANNOUNCED_BYTES: u64 = 1 << 30;
/// or writes more pages than this, is announced before it begins.
const ANNOUNCED_WRITES: f64 = 1e9;

/// Prints what a large run takes and how `--scale` reduces it.
pub(super) fn hint(arguments: &Arguments, layout: &Layout) {
    if let Some(text) = text(arguments, layout) {
        Bar::new(Unit::Steps, arguments.common.quiet).line(&text);
    }
}

fn text(arguments: &Arguments, layout: &Layout) -> Option<String> {
    let writes = f64::from(layout.shape().logical_pages) * (1.0 + arguments.warm_up + arguments.measure);
    let memory_bytes = layout.mapping_bytes();
    if memory_bytes < ANNOUNCED_BYTES && writes < ANNOUNCED_WRITES {
        return None;
    }
    let takes = format!(
        "{} page writes on a model that takes {:.1} GiB of memory",
        grouped(writes as u64),
        memory_bytes as f64 / f64::from(1 << 30)
    );
    let divisor = divisor(layout.shape().unit_pages.into());
    Some(match (divisor, arguments.units.or(arguments.pages_per_block)) {
        (2.., None) => format!(
            "{takes}; --scale 1/{} takes 1/{divisor} of both, for the same units, shares and write amplification",
            u64::from(arguments.scale) * divisor
        ),
        _ => takes,
    })
}

/// The largest suggested divisor that leaves a unit enough pages.
fn divisor(unit_pages: u64) -> u64 {
    [64, 16, 4].into_iter().find(|divisor| unit_pages / divisor >= MIN_SCALED_PAGES).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_extrapolates_the_remaining_time() {
        let text = line(25, 100, Duration::from_secs(10));
        assert_eq!(text, "25 % written, 30 s left at this pace");
    }
}
