//! The table of figures: name, unit, formula, and the computation from counters. All output formats are generated from it.

use serde_json::{Number, Value};

use crate::run::InstanceReport;
use crate::run::counts::{Counts, ratio};
use cache::stats::FlashStats;

/// A figure of the report.
pub struct Figure {
    /// Its name, which is stable across versions.
    pub name: &'static str,
    /// Its unit; `ratio` ranges from 0 to 1.
    pub unit: &'static str,
    /// Its definition, in terms of the counters.
    pub formula: &'static str,
    /// Its value; `None` if unknown.
    pub value: fn(&InstanceReport) -> Option<Reading>,
    /// The direction in which the figure improves.
    pub better: Better,
}

/// The direction in which a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
    /// Only 0 is acceptable: any other value is an error, not noise.
    Zero,
    /// Neither: the figure describes the load, not the performance.
    Neither,
}

impl Better {
    /// The word used in tables and results.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Zero => "none",
            Self::Neither => "",
        }
    }

    /// The direction of a figure in a result without this table, derived from its name.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        let leaf = name.rsplit('.').next().unwrap_or(name);
        match FIGURES.iter().find(|figure| figure.name == leaf) {
            Some(figure) => figure.better,
            None if leaf.ends_with("hit_ratio") => Self::Higher,
            None if leaf.ends_with("write_amplification") => Self::Lower,
            None if name.contains("latency_ns") && leaf != "count" => Self::Lower,
            None => Self::Neither,
        }
    }
}

/// A figure's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
}

impl Reading {
    /// The JSON value; `null` if it is not a finite number.
    #[must_use]
    pub fn to_json(self) -> Value {
        match self {
            Self::Whole(count) => Value::from(count),
            Self::Real(measure) => Number::from_f64(measure).map_or(Value::Null, Value::Number),
        }
    }
}

macro_rules! figures {
    (@better) => { Better::Neither };
    (@better $better:ident) => { Better::$better };
    ($($name:literal, $unit:literal, $formula:literal, $value:expr $(, better: $better:ident)?;)*) => {
        /// All figures, in the order of the result file.
        pub const FIGURES: &[Figure] = &[$(Figure {
            name: $name, unit: $unit, formula: $formula, value: $value, better: figures!(@better $($better)?),
        },)*];
    };
}

figures! {
    "ops", "ops", "completed requests of the workload", |r| whole(r.counts.ops);
    "seconds", "s", "from the first thread's start to the last thread's end", |r| Some(Reading::Real(r.seconds));
    "throughput_ops_per_second", "ops/s", "ops / seconds", |r| per_second(r.counts.ops, r), better: Higher;
    "hit_ratio", "ratio", "gets that hit / gets", |r| real(r.counts.hit_ratio()), better: Higher;
    "hit_ratio_dram", "ratio", "gets that hit in DRAM / gets", |r| real(r.counts.hit_ratio_dram()), better: Higher;
    "hit_ratio_flash", "ratio", "gets that hit on flash / gets that missed DRAM", |r| flash(r).and_then(|_| real(r.counts.hit_ratio_flash())), better: Higher;
    "gets", "gets", "gets, including those of updates", |r| whole(r.counts.gets);
    "sets", "sets", "sets attempted, including those after a missed get", |r| whole(r.counts.sets);
    "deletes", "deletes", "deletes", |r| whole(r.counts.deletes);
    "objects", "requests", "completed requests for several items (CDN objects, ranges of blocks); like the four below, null for other workloads", |r| of_objects(r, |c| c.objects);
    "object_hit_ratio", "ratio", "requests among objects that found every item / objects", |r| real(r.counts.object_hit_ratio()), better: Higher;
    "byte_hit_ratio", "ratio", "requested bytes that were found / egress_bytes", |r| real(r.counts.byte_hit_ratio()), better: Higher;
    "egress_bytes", "B", "bytes requested by objects", |r| of_objects(r, |c| c.egress_bytes);
    "ingress_bytes", "B", "bytes fetched for them from the origin: missing items in full, and bytes that may not be cached", |r| of_objects(r, |c| c.ingress_bytes), better: Lower;
    "items_dram", "items", "items in DRAM at the end", |r| whole(r.snapshot.stats.dram_total().items);
    "items_flash", "items", "items on flash at the end, including small items that wait in memory to be written", |r| of_flash(r, FlashStats::items);
    "alloc_attempts", "", "attempted allocations in DRAM", |r| whole(r.snapshot.stats.dram_total().allocation_attempts);
    "evictions_dram", "items", "items evicted from DRAM", |r| whole(r.snapshot.stats.dram_total().evictions);
    "flash_bytes_logical", "B", "keys and values accepted by flash, without those replaced, removed or lost before they were written", |r| of_flash(r, FlashStats::logical_bytes);
    "flash_bytes_waiting", "B", "the part of flash_bytes_logical that waits in memory at the end", |r| of_flash(r, FlashStats::waiting_bytes);
    "flash_bytes_host", "B", "bytes written to the device", |r| of_flash(r, |flash| flash.device.written_bytes);
    "flash_bytes_media", "B", "bytes written to the medium, if the drive reports them", |r| of_device(r, |device| device.media_written_bytes);
    "alwa", "ratio", "flash_bytes_host / (flash_bytes_logical - flash_bytes_waiting)", |r| flash(r).and_then(|flash| real(flash.write_amplification())), better: Lower;
    "dlwa", "ratio", "flash_bytes_media / flash_bytes_host", |r| flash(r).and_then(|flash| real(ratio(flash.device.media_written_bytes?, flash.device.written_bytes))), better: Lower;
    "gc_relocated_bytes", "B", "flash_bytes_media - flash_bytes_host", |r| of_device(r, |device| Some(device.media_written_bytes?.saturating_sub(device.written_bytes)));
    "inconsistencies", "", "values returned that the consistency check does not allow", |r| whole(r.counts.inconsistencies), better: Zero;
    "io_errors", "", "failed reads and writes of the device", |r| of_flash(r, |flash| flash.device.errors), better: Zero;
    "checksum_errors", "", "damaged entries, buckets or tables read from flash", |r| of_flash(r, FlashStats::checksum_errors), better: Zero;
}

fn whole(count: u64) -> Option<Reading> {
    Some(Reading::Whole(count))
}

fn real(measure: Option<f64>) -> Option<Reading> {
    measure.map(Reading::Real)
}

fn per_second(count: u64, report: &InstanceReport) -> Option<Reading> {
    (report.seconds > 0.0).then(|| Reading::Real(count as f64 / report.seconds))
}

/// A counter of requests for several items; unknown for other workloads.
fn of_objects(report: &InstanceReport, read: fn(&Counts) -> u64) -> Option<Reading> {
    (report.counts.objects > 0).then(|| Reading::Whole(read(&report.counts)))
}

fn flash(report: &InstanceReport) -> Option<&FlashStats> {
    report.snapshot.stats.flash.as_ref()
}

/// A counter of flash; 0 without flash.
fn of_flash(report: &InstanceReport, read: fn(&FlashStats) -> u64) -> Option<Reading> {
    whole(flash(report).map_or(0, read))
}

/// A counter of the flash device: 0 without flash, unknown if the device does not report it.
fn of_device(report: &InstanceReport, read: fn(&device::Counters) -> Option<u64>) -> Option<Reading> {
    flash(report).map_or(Some(0), |flash| read(&flash.device)).map(Reading::Whole)
}
