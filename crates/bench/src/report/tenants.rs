//! Figures per tenant, ordered by the number of requests.

use serde_json::{Value, json};

use super::numbers::{grouped, line, percent};
use crate::run::InstanceReport;
use crate::run::tenants::{TenantCounts, Tenants};

/// Limit of the tenants that the result file lists.
pub const IN_FILE: usize = 1000;
/// Limit of the tenants that the text lists.
const IN_TEXT: usize = 20;

/// The tenants for the result file; `null` if the trace has none.
#[must_use]
pub fn to_json(report: &InstanceReport) -> Value {
    let Some(tenants) = &report.tenants else { return Value::Null };
    let mut json = tenants.json(IN_FILE, counts_json);
    json["all"] = counts_json(&tenants.sum());
    json
}

fn counts_json(counts: &TenantCounts) -> Value {
    json!({
        "ops": counts.ops,
        "gets": counts.gets,
        "get_hits_dram": counts.get_hits_dram,
        "get_hits_flash": counts.get_hits_flash,
        "sets": counts.sets,
        "deletes": counts.deletes,
        "requested_bytes": counts.bytes.requested,
        "got_bytes": counts.bytes.found,
        "stored_bytes": counts.bytes.stored,
        "hit_ratio": counts.hit_ratio(),
        "byte_hit_ratio": counts.byte_hit_ratio(),
    })
}

/// The tenants as text; empty if the trace has none.
#[must_use]
pub fn to_text(report: &InstanceReport) -> String {
    let Some(tenants) = &report.tenants else { return String::new() };
    let mut out = String::from("\n== Tenants ==\n");
    let columns =
        ["ops", "gets", "hits", "RAM hits", "NVM hits", "sets", "deletes", "byte hits", "GiB stored"];
    let width = width(tenants);
    let heads: String = columns.iter().map(|name| format!(" {name:>13}")).collect();
    line(&mut out, format_args!("{:width$}{heads}", "tenant"));
    for (name, counts) in tenants.named.iter().take(IN_TEXT) {
        row(&mut out, width, name, counts);
    }
    let (count, others) = tenants.others(IN_TEXT);
    if others.ops > 0 {
        let many = if tenants.not_distinguished.ops > 0 { "or more " } else { "" };
        row(&mut out, width, &format!("({} {many}others)", grouped(count as u64)), &others);
    }
    if tenants.without_tenant.ops > 0 {
        row(&mut out, width, "(no tenant)", &tenants.without_tenant);
    }
    out
}

/// Longer names are cut.
const LONGEST_NAME: usize = 40;

fn width(tenants: &Tenants) -> usize {
    let names = tenants.named.iter().take(IN_TEXT).map(|(name, _)| name.chars().count());
    names.max().unwrap_or(0).clamp(20, LONGEST_NAME)
}

fn row(out: &mut String, width: usize, name: &str, counts: &TenantCounts) {
    let name: String =
        name.chars().take(LONGEST_NAME).map(|it| if it.is_control() { '?' } else { it }).collect();
    let share = |part: u64| percent(crate::run::counts::ratio(part, counts.gets));
    let cells = [
        grouped(counts.ops),
        grouped(counts.gets),
        percent(counts.hit_ratio()),
        share(counts.get_hits_dram),
        share(counts.get_hits_flash),
        grouped(counts.sets),
        grouped(counts.deletes),
        percent(counts.byte_hit_ratio()),
        format!("{:.3}", counts.bytes.stored as f64 / (1_u64 << 30) as f64),
    ];
    let cells: String = cells.iter().map(|cell| format!(" {cell:>13}")).collect();
    line(out, format_args!("{name:width$}{cells}"));
}
