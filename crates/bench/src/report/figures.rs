//! The one table of figures: name, unit, formula, and how it is computed from counters. Text, JSON and whatever comes
//! later only render it.

use serde_json::{Number, Value};

use crate::run::InstanceReport;
use crate::run::counts::{Counts, ratio};
use crate::run::target::FlashCounts;

/// A figure of the report.
pub struct Figure {
    /// Its name, which does not change between versions.
    pub name: &'static str,
    /// Its unit; `ratio` is 0 to 1.
    pub unit: &'static str,
    /// What it is, in terms of what is counted.
    pub formula: &'static str,
    /// Its value; `None` is unknown.
    pub value: fn(&InstanceReport) -> Option<Reading>,
    /// Which of two values is the better one.
    pub better: Better,
}

/// Which of two values is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The higher.
    Higher,
    /// The lower.
    Lower,
    /// The lower, and nothing but none is right: one more is no accident of measuring.
    None,
    /// Neither: it says how much was asked, not how well it went.
    Neither,
}

impl Better {
    /// In a table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::None => "none",
            Self::Neither => "",
        }
    }

    /// Of figures in results that have no table, by their names.
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
    /// As JSON; what is no number (a ratio of nothing) is `null`.
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
    "hit_ratio", "ratio", "gets that found something / gets", |r| real(r.counts.hit_ratio()), better: Higher;
    "hit_ratio_dram", "ratio", "gets that found it in DRAM / gets", |r| real(r.counts.hit_ratio_dram()), better: Higher;
    "hit_ratio_flash", "ratio", "gets that found it on flash / gets that DRAM did not answer", |r| flash(r).and_then(|_| real(r.counts.hit_ratio_flash())), better: Higher;
    "gets", "gets", "gets, including those of updates", |r| whole(r.counts.gets);
    "sets", "sets", "sets attempted, including those after a missed get", |r| whole(r.counts.sets);
    "deletes", "deletes", "deletes", |r| whole(r.counts.deletes);
    "objects", "requests", "completed requests for several items (CDN objects, ranges of blocks); like the four below, null for other workloads", |r| of_objects(r, |c| c.objects);
    "object_hit_ratio", "ratio", "requests among objects that found every item / objects", |r| real(r.counts.object_hit_ratio()), better: Higher;
    "byte_hit_ratio", "ratio", "requested bytes that were found / egress_bytes", |r| real(r.counts.byte_hit_ratio()), better: Higher;
    "egress_bytes", "B", "bytes requested by objects", |r| of_objects(r, |c| c.egress_bytes);
    "ingress_bytes", "B", "bytes fetched for them from behind the cache: missing items in full, and what may not be cached", |r| of_objects(r, |c| c.ingress_bytes), better: Lower;
    "items_dram", "items", "items in DRAM at the end", |r| r.snapshot.dram.items.map(Reading::Whole);
    "items_flash", "items", "items on flash at the end; of small ones those too that wait in memory to be written", |r| of_flash(r, |flash| flash.items);
    "alloc_attempts", "", "attempted allocations in DRAM", |r| r.snapshot.dram.alloc_attempts.map(Reading::Whole);
    "evictions_dram", "items", "items evicted from DRAM", |r| r.snapshot.dram.evictions.map(Reading::Whole);
    "flash_bytes_logical", "B", "keys and values accepted by flash, but for those replaced, removed or lost before they were written", |r| of_flash(r, |flash| flash.logical_bytes);
    "flash_bytes_waiting", "B", "the part of flash_bytes_logical that waits in memory at the end", |r| of_flash(r, |flash| flash.waiting_bytes);
    "flash_bytes_host", "B", "bytes written to the device", |r| of_flash(r, |flash| flash.host_bytes);
    "flash_bytes_media", "B", "bytes written to the medium, if the drive reports them", |r| of_flash(r, |flash| flash.media_bytes);
    "alwa", "ratio", "flash_bytes_host / (flash_bytes_logical - flash_bytes_waiting)", |r| flash_ratio(r, |flash| (flash.host_bytes, flash.settled_bytes())), better: Lower;
    "dlwa", "ratio", "flash_bytes_media / flash_bytes_host", |r| flash_ratio(r, |flash| (flash.media_bytes, flash.host_bytes)), better: Lower;
    "gc_relocated_bytes", "B", "flash_bytes_media - flash_bytes_host", |r| of_flash(r, |flash| Some(flash.media_bytes?.saturating_sub(flash.host_bytes?)));
    "inconsistencies", "", "values returned that the consistency check does not allow", |r| whole(r.counts.inconsistencies), better: None;
    "io_errors", "", "failed transfers", |r| flash(r).map_or(whole(0), |flash| flash.io_errors.map(Reading::Whole)), better: None;
    "checksum_errors", "", "damaged entries, buckets or tables read from flash", |r| flash(r).map_or(whole(0), |flash| flash.checksum_errors.map(Reading::Whole)), better: None;
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

/// A counter of requests for several items; unknown where there are none.
fn of_objects(report: &InstanceReport, read: fn(&Counts) -> u64) -> Option<Reading> {
    (report.counts.objects > 0).then(|| Reading::Whole(read(&report.counts)))
}

fn flash(report: &InstanceReport) -> Option<&FlashCounts> {
    report.snapshot.flash.as_ref()
}

/// A counter of flash: 0 where there is no flash, unknown where flash does not tell.
fn of_flash(report: &InstanceReport, read: fn(&FlashCounts) -> Option<u64>) -> Option<Reading> {
    match flash(report) {
        Some(flash) => read(flash).map(Reading::Whole),
        None => whole(0),
    }
}

fn flash_ratio(
    report: &InstanceReport,
    read: fn(&FlashCounts) -> (Option<u64>, Option<u64>),
) -> Option<Reading> {
    let (part, of) = read(flash(report)?);
    real(ratio(part?, of?))
}
