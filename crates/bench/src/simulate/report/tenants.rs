//! The tenants' part of a result.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::tenants::{Tenant, TenantCounts, Who};
use super::super::{Outcome, Row};
use super::bytes;
use crate::report::text::grouped;

/// The tenants as JSON; null where they were not told apart, or the trace does not tell.
pub(super) fn json(outcome: &Outcome) -> Value {
    if outcome.tenants.is_empty() {
        return Value::Null;
    }
    let named = outcome.tenants.iter().filter(|it| matches!(it.who, Who::Named(_)));
    let one = |is_it: fn(&Who) -> bool| outcome.tenants.iter().find(|it| is_it(&it.who));
    json!({
        "largest": named.map(|it| tenant(it, &outcome.rows)).collect::<Vec<_>>(),
        "others": one(|who| matches!(who, Who::Others(_))).map(|it| tenant(it, &outcome.rows)),
        "without_tenant": one(|who| *who == Who::Nobody).map(|it| tenant(it, &outcome.rows)),
    })
}

fn tenant(tenant: &Tenant, rows: &[Row]) -> Value {
    let row = |(row, counts): (&Row, &TenantCounts)| {
        json!({
            "policy": row.policy,
            "size_bytes": row.size_bytes,
            "hits": counts.hits,
            "hit_bytes": counts.hit_bytes,
            "object_hit_ratio": counts.object_hit_ratio(),
            "byte_hit_ratio": counts.byte_hit_ratio(),
        })
    };
    let all = tenant.rows.first().copied().unwrap_or_default();
    let mut told = json!({
        "requests": all.requests,
        "requested_bytes": all.bytes,
        "rows": rows.iter().zip(&tenant.rows).map(row).collect::<Vec<_>>(),
    });
    match &tenant.who {
        Who::Named(name) => told["tenant"] = json!(**name),
        Who::Others(count) => told["told_apart"] = json!(count),
        Who::Nobody => {}
    }
    told
}

/// Each row of the tenants as CSV, in the columns of the others; the last one is the tenant.
pub(super) fn csv(outcome: &Outcome, out: &mut String) {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.6}"));
    for tenant in &outcome.tenants {
        let name = quoted(&label(&tenant.who));
        for (Row { policy, size_bytes, .. }, counts) in outcome.rows.iter().zip(&tenant.rows) {
            let (objects, bytes) = (ratio(counts.object_hit_ratio()), ratio(counts.byte_hit_ratio()));
            let TenantCounts { requests, hits, .. } = counts;
            let _ = writeln!(out, "{policy},{size_bytes},{requests},{hits},{objects},{bytes},,{name}");
        }
    }
}

fn quoted(name: &str) -> String {
    if name.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

fn label(who: &Who) -> String {
    match who {
        Who::Named(name) => name.to_string(),
        Who::Others(0) => "(others)".to_owned(),
        Who::Others(count) => format!("({} others)", grouped(*count as u64)),
        Who::Nobody => "(without one)".to_owned(),
    }
}

/// Names are cut to this.
const LONGEST_NAME: usize = 40;

/// A table a policy for people: tenants down, sizes across.
pub(super) fn text(outcome: &Outcome, out: &mut String) {
    if outcome.tenants.is_empty() {
        return;
    }
    let mut first = 0;
    for of_policy in outcome.rows.chunk_by(Row::has_policy_of) {
        let _ = writeln!(out, "\n{} by tenant: object hit ratio, byte hit ratio", of_policy[0].label());
        let sizes: String = of_policy.iter().map(|row| format!(" {:>19}", bytes(row.size_bytes))).collect();
        let _ = writeln!(out, "  {:LONGEST_NAME$} {:>15}{sizes}", "", "requests");
        for tenant in &outcome.tenants {
            let counts = &tenant.rows[first..first + of_policy.len()];
            let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |it| format!("{it:.6}"));
            let cell = |it: &TenantCounts| {
                format!(" {:>10} {:>8}", shown(it.object_hit_ratio()), shown(it.byte_hit_ratio()))
            };
            let cells: String = counts.iter().map(cell).collect();
            let name: String = label(&tenant.who).chars().take(LONGEST_NAME).collect();
            let _ = writeln!(out, "  {name:LONGEST_NAME$} {:>15}{cells}", grouped(counts[0].requests));
        }
        first += of_policy.len();
    }
}
