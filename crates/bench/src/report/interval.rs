//! Progress output: CacheBench's progress line, and the detailed block of `--progress_stats_file`.

use std::fmt::Write as _;

use cache::stats::FlashStats;

use super::amount::duration;
use super::numbers::{grouped, line, percent};
use super::text::{allocator, throughput};
use crate::run::Observable;
use crate::run::counts::{CounterTable, Counts};
use crate::run::latency::{Histogram, Latencies};
use crate::run::sweeps::Sweeps;
use crate::run::target::Snapshot;

/// Counters of one instance at the end of the last interval.
#[derive(Debug, Default)]
pub struct Previous {
    counts: Counts,
    latencies: Latencies,
    device: Option<(Histogram, Histogram)>,
    flash_written_bytes: Option<u64>,
    sweeps: u64,
}

/// The difference of one instance's counters over an interval.
#[derive(Debug)]
pub struct Interval {
    /// Counters since the start.
    pub total: Counts,
    /// Counters since the last interval.
    pub since: Counts,
    /// Latencies since the last interval.
    pub latencies: Latencies,
    /// The target's counters since the start; the device's latencies since the last interval.
    pub snapshot: Snapshot,
    /// Bytes written to flash since the last interval; `None` without flash.
    pub flash_written_bytes: Option<u64>,
    /// Totals of iterations over DRAM since the start, and the number of iterations since the last interval.
    pub sweeps: Option<(Sweeps, u64)>,
}

impl Previous {
    /// Reads the counters of `instance`, and saves them for the next call.
    pub fn advance(&mut self, instance: &dyn Observable) -> Interval {
        let total = instance.counts();
        let all_latencies = instance.latencies();
        let mut snapshot = instance.snapshot();
        let since = total.since(&self.counts);
        let latencies = all_latencies.since(&self.latencies);
        if let Some(device) = &mut snapshot.device {
            let now = device.latency.clone();
            if let (Some((reads, writes)), Some(before)) = (&mut device.latency, &self.device) {
                *reads = reads.since(&before.0);
                *writes = writes.since(&before.1);
            }
            self.device = now;
        }
        let sweeps = instance.sweeps().map(|totals| (totals, totals.sweeps - self.sweeps));
        self.sweeps = sweeps.map_or(0, |(totals, _)| totals.sweeps);
        (self.counts, self.latencies) = (total, all_latencies);
        let written = snapshot.stats.flash.as_ref().map(|flash| flash.device.written_bytes);
        let before = std::mem::replace(&mut self.flash_written_bytes, written).unwrap_or(0);
        let flash_written_bytes = written.map(|written| written.saturating_sub(before));
        Interval { total, since, latencies, snapshot, flash_written_bytes, sweeps }
    }
}

impl Interval {
    /// CacheBench's progress line for instance `number` at `unix_seconds` (shown as UTC), followed by rates over the interval of
    /// `interval_seconds`.
    #[must_use]
    pub fn progress_line(&self, number: usize, unix_seconds: u32, interval_seconds: f64) -> String {
        let (hours, minutes, seconds) = (unix_seconds / 3600 % 24, unix_seconds / 60 % 60, unix_seconds % 60);
        let stats = &self.snapshot.stats;
        let of_flash = |read: fn(&FlashStats) -> u64| grouped(stats.flash.as_ref().map_or(0, read));
        format!(
            "Instance {number:>3}: {hours:02}:{minutes:02}:{seconds:02} {:>10.2}M ops completed. {} items in cache. {} items in nvm \
             cache. {} items evicted from nvm cache. Hit Ratio {:>7} (RAM {:>7}, NVM {:>7}).",
            self.total.ops as f64 / 1e6,
            grouped(stats.dram_total().items),
            of_flash(FlashStats::items),
            of_flash(FlashStats::evictions),
            percent(self.since.hit_ratio()),
            percent(self.since.hit_ratio_dram()),
            percent(self.since.hit_ratio_flash()),
        ) + &self.rates(interval_seconds)
            + &self.sweeps_text()
    }

    /// Operations, bytes written to flash and p99 of gets, over the interval.
    fn rates(&self, seconds: f64) -> String {
        let seconds = seconds.max(1e-9);
        let mut text = format!(" {} ops/s", grouped((self.since.ops as f64 / seconds).round() as u64));
        if let Some(bytes) = self.flash_written_bytes {
            let _ = write!(text, ", {:.1} MB/s written to nvm", bytes as f64 / seconds / 1e6);
        }
        if let Some(ns) = self.latencies.gets().quantile_ns(0.99) {
            let _ = write!(text, ", get p99 {}", duration(ns as f64));
        }
        text + "."
    }

    /// Figures of the iterations over DRAM. Exceptions are always 0.
    fn sweeps_text(&self) -> String {
        let Some((totals, new)) = self.sweeps else { return String::new() };
        let last = totals.last_items.map(|items| format!(", most recent sweep: {} items", grouped(items)));
        format!(
            " DRAM iterator {}: +{} sweeps{}, 0 sweep exceptions.",
            totals.mode,
            grouped(new),
            last.unwrap_or_default()
        )
    }

    /// The block for the stats file.
    #[must_use]
    pub fn block(&self, progress_line: &str, seconds: f64) -> String {
        let mut out = format!("{progress_line}\n== Allocator Stats ==\n");
        out += &allocator(&self.snapshot, &self.total, None);
        out += "== Hit Ratio Stats Since Last ==\n";
        line(&mut out, format_args!("Cache Gets    : {}", grouped(self.since.gets)));
        line(&mut out, format_args!("Hit Ratio     : {:>6}", percent(self.since.hit_ratio())));
        line(&mut out, format_args!("RAM Hit Ratio : {:>6}", percent(self.since.hit_ratio_dram())));
        line(&mut out, format_args!("NVM Hit Ratio : {:>6}", percent(self.since.hit_ratio_flash())));
        out += "== Throughput Stats ==\n";
        out += &throughput(&self.since, seconds);
        out.push('\n');
        out
    }
}
