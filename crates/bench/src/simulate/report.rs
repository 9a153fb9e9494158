//! Results of simulations as JSON, CSV and text.

mod tenants;

use std::fmt::Write as _;

use policy::simulate::Counts;
use serde_json::{Value, json};
use workload::trace::ReadReport;

use super::{Outcome, Point, Row, SampleWarning, Sampled, Totals};
use crate::report::numbers::{counted, grouped, was};
use crate::run::counts::ratio;

impl Outcome {
    /// Formats a cache size: bytes, or objects if sizes were ignored.
    #[must_use]
    pub fn size_text(&self, size: u64) -> String {
        if self.ignored_size { format!("{} obj", grouped(size)) } else { bytes(size) }
    }
}

impl Row {
    /// Hits per request; `None` without requests.
    #[must_use]
    pub fn object_hit_ratio(&self) -> Option<f64> {
        ratio(self.counts.hits, self.counts.requests)
    }

    /// Bytes of hits per byte of requests.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.counts.hit_weight, self.counts.weight)
    }

    /// Bytes written per byte inserted, if writes are counted.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let Counts { written_weight, insert_weight, .. } = self.counts;
        if self.is_flash { ratio(written_weight, insert_weight) } else { None }
    }
}

/// The results as JSON.
#[must_use]
pub fn json(outcome: &Outcome) -> Value {
    let Outcome { rows, totals, warmup_requests, sampled, read, was_stopped, .. } = outcome;
    let mut trace = trace(totals, read);
    if outcome.ignored_size {
        trace["footprint_bytes"] = Value::Null;
    }
    json!({
        "trace": trace,
        "sizes_ignored": outcome.ignored_size,
        "warmup_requests": warmup_requests,
        "sampled": sampled.map(|it| json!({
            "hot_objects": it.hot_objects,
            "drawn_objects": it.drawn_objects,
            "other_objects": it.other_objects,
            "interval_covers": "choice of objects and scaled cache",
        })),
        "was_stopped": was_stopped,
        "tenants": tenants::json(outcome),
        "rows": rows.iter().map(|row| row_json(row, outcome)).collect::<Vec<_>>(),
    })
}

/// Totals of the trace and of its reader.
#[must_use]
pub fn trace(totals: &Totals, read: &ReadReport) -> Value {
    json!({
        "format": read.format,
        "accesses": totals.accesses,
        "requests": totals.requests,
        "objects": totals.objects,
        "footprint_bytes": totals.footprint_bytes,
        "bad_rows": read.bad_rows,
        "zero_sizes": read.zero_sizes,
        "backward_times": read.backward_times,
        "notes": read.notes,
        "unreadable": crate::trace::unreadable_json(&read.unreadable),
        "clamped_sizes": totals.clamped_sizes,
        "ttl_requests": totals.ttl_requests,
        "ttl_requests_honoured": totals.ttl_requests_honoured,
    })
}

/// In a sample, hits are estimates and inserts are not known.
fn row_json(row: &Row, outcome: &Outcome) -> Value {
    let Counts { requests, hits, weight, hit_weight, inserts, insert_weight, written_weight } = row.counts;
    let counted = |count: u64| outcome.sampled.is_none().then_some(count);
    let in_bytes = |bytes: u64| (!outcome.ignored_size).then_some(bytes);
    json!({
        "policy": row.policy,
        "policy_as_given": row.as_given,
        "size_bytes": in_bytes(row.size_bytes),
        "size_objects": outcome.ignored_size.then_some(row.size_bytes),
        "requests": requests,
        "hits": hits,
        "object_hit_ratio": row.object_hit_ratio(),
        "byte_hit_ratio": row.byte_hit_ratio().filter(|_| !outcome.ignored_size),
        "requested_bytes": in_bytes(weight),
        "hit_bytes": in_bytes(hit_weight),
        "inserts": counted(inserts),
        "inserted_bytes": counted(insert_weight).and_then(in_bytes),
        "written_bytes": row.is_flash.then_some(written_weight),
        "write_amplification": row.write_amplification(),
        "series": row.series.iter().map(|point| point_json(point, outcome)).collect::<Vec<_>>(),
        "interval": row.interval.map(|interval| json!({
            "object_hit_ratio": [interval.object_hit_ratio.0, interval.object_hit_ratio.1],
            "byte_hit_ratio": (!outcome.ignored_size).then_some([interval.byte_hit_ratio.0, interval.byte_hit_ratio.1]),
        })),
        "doubt": row.doubt.map(|doubt| match doubt {
            SampleWarning::FewWait { objects, .. } => json!({ "waiting_objects": objects }),
            SampleWarning::Coarse { objects, .. } => json!({ "cached_objects": objects }),
            SampleWarning::BySize => json!("by_size"),
            SampleWarning::Erratic => json!("erratic"),
        }),
    })
}

fn point_json(point: &Point, outcome: &Outcome) -> Value {
    let Counts { requests, hits, weight, hit_weight, .. } = point.counts;
    let in_bytes = |bytes: u64| (!outcome.ignored_size).then_some(bytes);
    json!({
        "start": point.start,
        "requests": requests,
        "hits": hits,
        "object_hit_ratio": ratio(hits, requests),
        "byte_hit_ratio": ratio(hit_weight, weight).filter(|_| !outcome.ignored_size),
        "requested_bytes": in_bytes(weight),
        "hit_bytes": in_bytes(hit_weight),
    })
}

/// The intervals of all rows as CSV with a header; empty if there are none.
#[must_use]
pub fn series_csv(outcome: &Outcome) -> String {
    let size = if outcome.ignored_size { "size_objects" } else { "size_bytes" };
    let mut out = format!("policy,{size},start,requests,hits,object_hit_ratio,byte_hit_ratio\n");
    for row in &outcome.rows {
        for Point { start, counts: Counts { requests, hits, weight, hit_weight, .. } } in &row.series {
            let by_bytes = ratio(*hit_weight, *weight).filter(|_| !outcome.ignored_size);
            let [objects, bytes] = [ratio(*hits, *requests), by_bytes]
                .map(|ratio| ratio.map_or_else(String::new, |ratio| format!("{ratio:.6}")));
            let (policy, size) = (&row.policy, row.size_bytes);
            let _ = writeln!(out, "{policy},{size},{start},{requests},{hits},{objects},{bytes}");
        }
    }
    out
}

/// The rows as CSV with a header. A sample has columns for the intervals. With tenants, the rows of each tenant follow the rows
/// of all requests, whose tenant is empty.
#[must_use]
pub fn csv(outcome: &Outcome) -> String {
    let size = if outcome.ignored_size { "size_objects" } else { "size_bytes" };
    let mut out = format!("policy,{size},requests,hits,object_hit_ratio,byte_hit_ratio,write_amplification");
    out += if !outcome.tenants.is_empty() {
        ",tenant\n"
    } else if outcome.sampled.is_some() {
        ",object_hit_ratio_low,object_hit_ratio_high,byte_hit_ratio_low,byte_hit_ratio_high\n"
    } else {
        "\n"
    };
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.6}"));
    for row in &outcome.rows {
        let by_bytes = row.byte_hit_ratio().filter(|_| !outcome.ignored_size);
        let (objects, bytes) = (ratio(row.object_hit_ratio()), ratio(by_bytes));
        let (Row { policy, size_bytes, counts, .. }, writes) = (row, ratio(row.write_amplification()));
        let Counts { requests, hits, .. } = counts;
        let _ = write!(out, "{policy},{size_bytes},{requests},{hits},{objects},{bytes},{writes}");
        if outcome.sampled.is_some() {
            let (objects, bytes) = row.interval.map(|it| (it.object_hit_ratio, it.byte_hit_ratio)).unzip();
            for (low, high) in [objects.unzip(), bytes.unzip()] {
                let _ = write!(out, ",{},{}", ratio(low), ratio(high));
            }
        }
        out += if outcome.tenants.is_empty() { "\n" } else { ",\n" };
    }
    tenants::csv(outcome, &mut out);
    out
}

/// The result as text: tables with a row per policy and a column per size.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let totals = &outcome.totals;
    let mut out = format!(
        "{} for {} {}; the first {} {} warm-up and not counted\n",
        counted(totals.requests, "request"),
        counted(totals.objects, "object"),
        match outcome.ignored_size {
            true => "whose sizes are ignored".to_owned(),
            false => format!("of {} in all", bytes(totals.footprint_bytes)),
        },
        grouped(outcome.warmup_requests),
        was(outcome.warmup_requests),
    );
    if totals.clamped_sizes > 0 {
        let _ = writeln!(
            out,
            "{} {} for objects of 4 GiB or more, which were counted as one byte less than 4 GiB",
            counted(totals.clamped_sizes, "request"),
            was(totals.clamped_sizes),
        );
    }
    if totals.ttl_requests > 0 {
        let _ = writeln!(out, "{}", ttl_text(totals, &outcome.read, outcome.ignored_ttl));
    }
    out += &outcome.sampled.map_or_else(String::new, sampled_text);
    if outcome.was_stopped {
        out += "stopped early: the ratios cover the requests up to then\n";
    }
    out += "\nobject hit ratio\n";
    table(&mut out, outcome, &outcome.rows, Row::object_hit_ratio);
    if outcome.sampled.is_some_and(|it| it.other_objects > 0) {
        out += "\nobject hit ratio, 95 % interval, plus or minus (-: too few objects sampled)\n";
        table(&mut out, outcome, &outcome.rows, margin);
        outcome
            .rows
            .chunk_by(Row::has_policy_of)
            .for_each(|rows| sample_warnings(&mut out, rows, |size| outcome.size_text(size)));
    }
    if !outcome.ignored_size {
        out += "\nbyte hit ratio\n";
        table(&mut out, outcome, &outcome.rows, Row::byte_hit_ratio);
    }
    let flash: Vec<Row> = outcome.rows.iter().filter(|row| row.is_flash).cloned().collect();
    if !flash.is_empty() {
        out += "\nwrite amplification: bytes written per byte admitted\n";
        table(&mut out, outcome, &flash, Row::write_amplification);
    }
    tenants::text(outcome, &mut out);
    out
}

/// Describes whether TTLs were applied.
pub(crate) fn ttl_text(totals: &Totals, read: &ReadReport, ignored_ttl: bool) -> String {
    const TOO_HIGH: &str = "nothing expires, so hit ratios are too high";
    let lost = totals.ttl_requests - totals.ttl_requests_honoured;
    let have = if totals.ttl_requests == 1 { "has" } else { "have" };
    let ttls = format!("{} {have} a time to live", counted(totals.ttl_requests, "request"));
    if ignored_ttl {
        format!("{ttls}, which was ignored: {TOO_HIGH}")
    } else if !read.has_time {
        format!("{ttls}, which cannot be honoured in a trace without times: {TOO_HIGH}")
    } else if lost > 0 {
        format!(
            "{ttls}; that of the first {} was ignored, since {} no time",
            grouped(lost),
            if lost == 1 { "it has" } else { "they have" }
        )
    } else {
        format!("{ttls}: a request for an expired object is a miss")
    }
}

/// Largest distance of the estimate from the ends of its interval, which is clipped to 0 and 1.
fn margin(row: &Row) -> Option<f64> {
    let (value, (low, high)) = (row.object_hit_ratio()?, row.interval?.object_hit_ratio);
    Some((value - low).max(high - value))
}

/// Explains why a policy has no interval; for sizes that are too small, the largest is named.
fn sample_warnings(out: &mut String, of_policy: &[Row], size_text: impl Fn(u64) -> String) {
    let with_doubt = of_policy.iter().rev().find_map(|row| Some((row, row.doubt?)));
    let Some((row, doubt)) = with_doubt else { return };
    let (policy, size) = (row.label(), size_text(row.size_bytes));
    // 100 % is not a sample.
    let enough = |rate: f64| match (rate * 100.0).ceil() {
        percent if percent < 100.0 => format!("--sample {percent}% would do"),
        _ => "only all objects would do".to_owned(),
    };
    let _ = match doubt {
        SampleWarning::Coarse { objects, rate } => writeln!(
            out,
            "  {policy}: {size} holds only {objects:.1} sampled objects, weighed by their bytes, and 10 are needed for an \
             interval: {}",
            enough(rate)
        ),
        SampleWarning::FewWait { percent, objects, rate } => {
            let enough = enough(rate);
            writeln!(
                out,
                "  {policy}: new objects wait in {percent} % of the cache; of {size} that holds {objects:.1} sampled objects, \
                 and 10 are needed for an interval: {enough}"
            )
        }
        SampleWarning::BySize => writeln!(
            out,
            "  {policy}: no interval is known, because it values objects by size, and a sampled object has the weight of all objects \
             that it represents"
        ),
        SampleWarning::Erratic => writeln!(
            out,
            "  {policy}: no interval is known, because one popular object can keep out new ones for long, at different times in a sample"
        ),
    };
}

fn sampled_text(Sampled { hot_objects, drawn_objects, other_objects }: Sampled) -> String {
    let hot = grouped(hot_objects);
    match other_objects {
        0 => format!(
            "the sample is all {hot} objects, since it always includes the most popular and the largest: the ratios are exact\n"
        ),
        _ => format!(
            "the sample is the {hot} most popular and largest objects and {} drawn from the {} others\n",
            grouped(drawn_objects),
            grouped(other_objects),
        ),
    }
}

fn table(out: &mut String, outcome: &Outcome, rows: &[Row], ratio: fn(&Row) -> Option<f64>) {
    let policies = rows.chunk_by(Row::has_policy_of);
    let width = rows.iter().map(|row| row.label().len()).max().unwrap_or(0).max(8);
    for (number, of_policy) in policies.enumerate() {
        if number == 0 {
            let _ = write!(out, "  {:width$}", "");
            of_policy.iter().for_each(|row| {
                let _ = write!(out, " {:>10}", outcome.size_text(row.size_bytes));
            });
            out.push('\n');
        }
        let _ = write!(out, "  {:width$}", of_policy[0].label());
        for row in of_policy {
            let shown = ratio(row).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.6}"));
            let _ = write!(out, " {shown:>10}");
        }
        out.push('\n');
    }
}

/// Formats bytes in the largest unit with a value of at least 1.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let place = (bytes.checked_ilog2().unwrap_or(0) / 10).min(5);
    if place == 0 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / (1_u64 << (10 * place)) as f64;
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", units[place as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Interval;

    #[test]
    fn doubts_do_not_suggest_a_sample_of_100_percent() {
        let said = |rate| {
            let mut out = String::new();
            let row = Row {
                policy: "s3fifo".into(),
                as_given: "s3fifo".into(),
                size_bytes: 1000,
                counts: Counts::default(),
                is_flash: false,
                series: Vec::new(),
                interval: None,
                doubt: Some(SampleWarning::FewWait { percent: 10, objects: 5.0, rate }),
            };
            sample_warnings(&mut out, &[row], bytes);
            out
        };
        assert!(said(0.985).ends_with("--sample 99% would do\n"), "{}", said(0.985));
        for rate in [0.995, 1.0, 2.0] {
            assert!(said(rate).ends_with("only all objects would do\n"), "{}", said(rate));
        }
    }

    /// Half of the width of a clipped interval would be less than its distance to the far end.
    #[test]
    fn margin_of_clipped_interval_is_distance_to_far_end() {
        let row = |hits, object_hit_ratio| Row {
            policy: "lru".into(),
            as_given: "lru".into(),
            size_bytes: 1,
            counts: Counts { requests: 1000, hits, ..Counts::default() },
            is_flash: false,
            series: Vec::new(),
            interval: Some(Interval { object_hit_ratio, byte_hit_ratio: (0.0, 1.0) }),
            doubt: None,
        };
        for (hits, interval, expected) in
            [(2, (0.0, 0.012), 0.01), (999, (0.98, 1.0), 0.019), (500, (0.4, 0.6), 0.1)]
        {
            let found = margin(&row(hits, interval));
            assert!(found.is_some_and(|it| (it - expected).abs() < 1e-9), "{hits}: {found:?}");
        }
    }
}
