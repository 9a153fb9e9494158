//! Writes an evaluation as JSON. Figures of a run have the same names as in the result of `bench`.

use std::time::Duration;

use serde_json::{Value, json};

use super::criteria::{Criteria, Missed};
use super::plan::Plan;
use super::profile::{PROFILES, Profile};
use super::run::{Measured, Row};
use super::subject::Subject;
use super::{EvaluationOptions, EvaluationResult};
use crate::drive::json as drive;
use crate::report::json::instance;

/// The evaluated drive or model.
#[must_use]
pub fn subject(subject: &Subject) -> Value {
    match subject {
        Subject::Model(model) => json!({
            "name": model.card.name,
            "title": model.card.title,
            "kind": "model",
            "capacity_bytes": subject.capacity_bytes(),
            "scale": format!("1/{}", model.scale),
            "placement_handles": model.card.placement.as_ref().map_or(0, |it| it.handles),
        }),
        Subject::Real(real) => {
            let mut fields = drive::info(&real.info);
            fields["name"] = subject.name().into();
            fields["capacity_bytes"] = real.capacity_bytes.into();
            fields
        }
    }
}

/// The pass criteria.
#[must_use]
pub fn criteria(criteria: &Criteria) -> Value {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "max_read_p99_ns": ns(criteria.max_read_p99),
        "max_write_p99_ns": criteria.max_write_p99.map(ns),
        "min_years": criteria.min_years,
        "min_reached": criteria.min_reached,
        "min_hit_ratio": criteria.min_hit_ratio,
        "min_ops_per_second": criteria.min_rate,
    })
}

/// The planned steps.
#[must_use]
pub fn plan(plan: &Plan) -> Value {
    let (bytes, seconds) = plan.cost();
    let steps = plan.steps().map(
        |(what, bytes, seconds)| json!({ "step": what, "written_bytes_at_most": bytes, "seconds": seconds }),
    );
    json!({ "steps": steps.collect::<Vec<_>>(), "written_bytes_at_most": bytes, "seconds": seconds })
}

/// The results of each profile that ran.
#[must_use]
pub fn profiles(found: &EvaluationResult, options: &EvaluationOptions) -> Value {
    let ran = PROFILES.iter().filter(|profile| found.measured.iter().any(|it| it.profile == profile.name));
    ran.map(|it| profile(it, found, &options.criteria)).collect()
}

fn profile(profile: &Profile, found: &EvaluationResult, criteria: &Criteria) -> Value {
    let runs: Vec<&Measured> = found.measured.iter().filter(|it| it.profile == profile.name).collect();
    let best = |run: &&Measured| {
        let best = criteria.best(run)?;
        Some((best.offered?, run.placement, best.years.figure().map(|(years, _)| years)))
    };
    let best = runs.iter().filter_map(best).max_by_key(|(rate, placement, _)| (*rate, *placement));
    let warm_ups = runs.iter().map(|run| {
        json!({ "placement": run.placement, "capacities": run.warm_up.capacities, "steady": run.warm_up.steady,
            "forecast": run.warm_up.forecast.as_ref().map(|it| json!({ "is_steady": it.is_steady, "value": it.value, "low": it.interval.0, "high": it.interval.1, "needed_bytes": it.needed_bytes, "reason": it.reason })),
            "interrupted": run.interrupted, "failures": run.failures, "warnings": run.warnings, "wear": wear(run) })
    });
    let rows = runs.iter().flat_map(|run| run.rows.iter().map(|row| row_json(run, row, criteria)));
    json!({
        "profile": profile.name,
        "title": profile.title,
        "passing_ops_per_second": best.map(|it| it.0),
        "passing_placement": best.map(|it| it.1),
        "passing_years": best.and_then(|it| it.2),
        "fillings": warm_ups.collect::<Vec<_>>(),
        "runs": rows.collect::<Vec<_>>(),
    })
}

fn wear(run: &Measured) -> Value {
    let wear = run.wear.as_ref();
    wear.map_or(
        Value::Null,
        |(before, after)| json!({ "before": drive::wear(before), "after": drive::wear(after) }),
    )
}

fn row_json(run: &Measured, row: &Row, criteria: &Criteria) -> Value {
    // The measurement at full speed is not judged.
    let missed = if row.offered.is_some() { criteria.missed(row) } else { Vec::new() };
    let years = row.years.figure();
    let mut fields = instance(&row.report, &[]);
    // Fields that describe a whole run.
    if let Some(fields) = fields.as_object_mut() {
        let of_runs = ["details", "insert_ends", "chain_ends", "flash_put_ends", "flash_put_waits"];
        let others = ["flash_max_item_bytes", "inconsistencies_found", "warnings"];
        of_runs.iter().chain(&others).for_each(|name| drop(fields.remove(*name)));
    }
    fields["placed"] = run.placement.into();
    fields["offered_ops_per_second"] = row.offered.into();
    fields["reached"] = row.reached().into();
    fields["dlwa"] = row.writes.dlwa.into();
    fields["host_bytes_per_second"] = row.writes.host_bytes_per_second.into();
    fields["wear_carried_over"] = row.writes.is_carried_over.into();
    fields["drive_writes_per_day"] = row.drive_writes_per_day.into();
    fields["life_years"] = years.map(|it| it.0).filter(|it| it.is_finite()).into();
    fields["life_years_is_upper_bound"] = years.map(|it| it.1).into();
    fields["passed"] = row.offered.map(|_| missed.is_empty()).into();
    fields["failures"] = missed.into_iter().map(|Missed { text, .. }| text).collect();
    fields
}
