//! Tenants in the results of simulations.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::tenants::{Tenant, TenantCounts, TenantGroup};
use super::super::{Outcome, Row};
use super::bytes;
use crate::report::numbers::grouped;

/// The tenants as JSON; null if tenants are not distinguished or the trace has none.
pub(super) fn json(outcome: &Outcome) -> Value {
    if outcome.tenants.is_empty() {
        return Value::Null;
    }
    let named = outcome.tenants.iter().filter(|it| matches!(it.who, TenantGroup::Named(_)));
    let one = |is_it: fn(&TenantGroup) -> bool| outcome.tenants.iter().find(|it| is_it(&it.who));
    json!({
        "largest": named.map(|it| tenant(it, &outcome.rows)).collect::<Vec<_>>(),
        "others": one(|who| matches!(who, TenantGroup::Others(_))).map(|it| tenant(it, &outcome.rows)),
        "without_tenant": one(|who| *who == TenantGroup::NoTenant).map(|it| tenant(it, &outcome.rows)),
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
    let mut fields = json!({
        "requests": all.requests,
        "requested_bytes": all.bytes,
        "rows": rows.iter().zip(&tenant.rows).map(row).collect::<Vec<_>>(),
    });
    match &tenant.who {
        TenantGroup::Named(name) => fields["tenant"] = json!(**name),
        TenantGroup::Others(count) => fields["distinguished"] = json!(count),
        TenantGroup::NoTenant => {}
    }
    fields
}

/// Appends a CSV row for each tenant and row of the results; the last column is the tenant.
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

fn label(who: &TenantGroup) -> String {
    match who {
        TenantGroup::Named(name) => name.to_string(),
        TenantGroup::Others(0) => "(others)".to_owned(),
        TenantGroup::Others(count) => format!("({} others)", grouped(*count as u64)),
        TenantGroup::NoTenant => "(no tenant)".to_owned(),
    }
}

/// Longer names are truncated.
const MAX_NAME_CHARS: usize = 40;

/// Appends a table for each policy: tenants down, sizes across.
pub(super) fn text(outcome: &Outcome, out: &mut String) {
    if outcome.tenants.is_empty() {
        return;
    }
    let mut first = 0;
    for of_policy in outcome.rows.chunk_by(Row::has_policy_of) {
        let _ = writeln!(out, "\n{} by tenant: object hit ratio, byte hit ratio", of_policy[0].label());
        let sizes: String = of_policy.iter().map(|row| format!(" {:>19}", bytes(row.size_bytes))).collect();
        let _ = writeln!(out, "  {:MAX_NAME_CHARS$} {:>15}{sizes}", "", "requests");
        for tenant in &outcome.tenants {
            let counts = &tenant.rows[first..first + of_policy.len()];
            let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |it| format!("{it:.6}"));
            let cell = |it: &TenantCounts| {
                format!(" {:>10} {:>8}", shown(it.object_hit_ratio()), shown(it.byte_hit_ratio()))
            };
            let cells: String = counts.iter().map(cell).collect();
            let name: String = label(&tenant.who).chars().take(MAX_NAME_CHARS).collect();
            let _ = writeln!(out, "  {name:MAX_NAME_CHARS$} {:>15}{cells}", grouped(counts[0].requests));
        }
        first += of_policy.len();
    }
}
