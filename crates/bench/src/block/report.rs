//! Results of a replay as JSON and text.

use std::fmt::Write as _;

use block::sets::{Counters, Geometry};
use device::counters::CounterTable;
use device::names::noun;
use serde_json::{Map, Value, json};

use super::replay::Summary;
use super::source::BlockTraceStats;
use crate::report::numbers::{grouped, was};

/// The results as JSON.
#[must_use]
pub fn json(name: &str, geometry: &Geometry, summary: &Summary) -> Value {
    let counters: Map<String, Value> =
        summary.counters.named().into_iter().map(|(name, count)| (name, json!(count))).collect();
    let (disk, bare) = (&summary.disk, &summary.bare);
    json!({
        "name": name,
        "geometry": {
            "block_bytes": geometry.block_bytes,
            "sets": geometry.sets,
            "ways": geometry.ways,
            "placement": geometry.placement.name(),
            "run_bytes": geometry.placement.run_bytes(),
        },
        "requests": summary.requests,
        "hit_percent": summary.counters.hit_percent(),
        "read_hit_percent": summary.counters.read_hit_percent(),
        "write_hit_percent": summary.counters.write_hit_percent(),
        "dirty_write_hit_percent": summary.counters.dirty_write_hit_percent(),
        "counters": counters,
        "disk": {
            "reads": disk.reads, "writes": disk.writes,
            "read_bytes": disk.read_bytes, "written_bytes": disk.written_bytes,
            "without_seek": disk.without_seek, "busy_seconds": disk.busy_ns as f64 / 1e9,
        },
        "without_cache": {
            "reads": bare.reads, "writes": bare.writes, "busy_seconds": bare.busy_ns as f64 / 1e9,
        },
        "busier_half_percent": summary.busier_half * 100.0,
        "busier_half_of_misses_percent": summary.busier_half_misses * 100.0,
        "held_blocks": summary.held_blocks,
        "dirty_blocks": summary.dirty_blocks,
        "highest_dirty_blocks": summary.highest_dirty_blocks,
    })
}

/// A table with a column for each cache.
#[must_use]
pub fn text(named: &[(String, Summary)]) -> String {
    let mut out = String::new();
    let _ = write!(out, "{:<30}", "");
    named.iter().for_each(|(name, _)| {
        let _ = write!(out, " {name:>16}");
    });
    out.push('\n');
    let mut row = |label: &str, value: &dyn Fn(&Summary) -> String| {
        let _ = write!(out, "{label:<30}");
        named.iter().for_each(|(_, summary)| {
            let _ = write!(out, " {:>16}", value(summary));
        });
        out.push('\n');
    };
    let percent = |value: f64| format!("{value:.2} %");
    row("requests", &|it| grouped(it.requests));
    row("hit rate", &|it| percent(it.counters.hit_percent()));
    row("read_hit_percent", &|it| percent(it.counters.read_hit_percent()));
    row("write_hit_percent", &|it| percent(it.counters.write_hit_percent()));
    row("dirty_write_hit_percent", &|it| percent(it.counters.dirty_write_hit_percent()));
    row("disk operations", &|it| grouped(it.disk.operations()));
    row("  relative to no cache", &|it| {
        percent(it.disk.operations() as f64 / it.bare.operations().max(1) as f64 * 100.0)
    });
    row("disk busy, seconds", &|it| grouped(it.disk.busy_ns / 1_000_000_000));
    row("  without the cache", &|it| grouped(it.bare.busy_ns / 1_000_000_000));
    row("busier half of the sets", &|it| percent(it.busier_half * 100.0));
    for (number, (name, _)) in Counters::default().named().iter().enumerate() {
        let count = |it: &Summary| it.counters.named()[number].1;
        if named.iter().any(|(_, summary)| count(summary) > 0) {
            row(name, &|it| grouped(count(it)));
        }
    }
    row("blocks cached", &|it| grouped(it.held_blocks));
    row("blocks dirty, peak", &|it| grouped(it.highest_dirty_blocks));
    row("blocks dirty, at the end", &|it| grouped(it.dirty_blocks));
    out
}

/// Irregularities of the trace; empty if there are none.
#[must_use]
pub fn oddities(stats: &BlockTraceStats) -> Vec<String> {
    let mut odd = stats.notes.clone();
    if stats.wrong_rows > 0 {
        let first = stats.first_wrong.as_deref().unwrap_or_default();
        let are = if stats.wrong_rows == 1 { "is" } else { "are" };
        let (wrong, rows) = (stats.wrong_rows, stats.rows);
        odd.push(format!("{wrong} of {rows} {} {are} bad; the first: {first}", noun(rows, "row")));
    }
    if stats.late > 0 {
        odd.push(format!(
            "{0} {2} {1} too far out of order to be sorted by time, and {1} left in place",
            stats.late,
            was(stats.late),
            noun(stats.late, "request")
        ));
    }
    if stats.other_devices > 0 {
        let are = if stats.other_devices == 1 { "is" } else { "are" };
        let others = stats.other_devices;
        odd.push(format!("{others} {} {are} for other devices", noun(others, "request")));
    }
    if stats.requests == 0 {
        odd.push(format!("the trace has no request in {} {}", stats.rows, noun(stats.rows, "row")));
    }
    odd
}

/// Statistics of the trace reader as JSON.
#[must_use]
pub fn trace_json(stats: &BlockTraceStats) -> Value {
    json!({
        "formats": stats.formats, "rows": stats.rows, "requests": stats.requests,
        "other_devices": stats.other_devices, "wrong_rows": stats.wrong_rows, "late": stats.late,
    })
}
