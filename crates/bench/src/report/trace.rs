//! Reading and replay of a trace: invalid rows, and requests that the run did not execute.

use serde_json::{Value, json};
use workload::trace::{Rejected, ReplayStats};

use super::numbers::{counted, grouped, share, was};
use crate::run::InstanceReport;

/// Up to this percentage, missing requests are expected: threads are never at the same row when a run ends.
const UNEVEN_PERCENT: u64 = 1;

/// The trace statistics for the result file.
pub fn to_json(report: &InstanceReport) -> Option<Value> {
    let trace = report.trace.as_ref()?;
    let rejected = |it: &Rejected| json!({ "reason": it.reason, "rows": it.rows, "first": it.first });
    let rejected: Vec<Value> = trace.rejected.iter().map(rejected).collect();
    Some(json!({
        "rows": trace.rows,
        "rejected_rows": trace.rejected_rows,
        "rejected": rejected,
        "filtered_rows": trace.filtered_rows,
        "requests": trace.requests,
        "requests_not_made": missing_requests(report, trace),
        "read_to_end": trace.read_to_end,
        "messages": trace.messages,
        "notes": trace.notes,
        "failure": trace.failure,
    }))
}

/// Requests in the replayed part of the trace that were not executed.
fn missing_requests(report: &InstanceReport, trace: &ReplayStats) -> u64 {
    trace.requests.saturating_sub(report.ops_with_warmup())
}

/// The warning for rows that were skipped, by reason.
pub fn rejected_rows_remark(report: &InstanceReport) -> Option<String> {
    const NAMED: usize = 3;
    let trace = report.trace.as_ref().filter(|trace| trace.rejected_rows > 0)?;
    let (wrong, all) = (trace.rejected_rows, trace.rows + trace.rejected_rows);
    let mut reasons: Vec<&Rejected> = trace.rejected.iter().collect();
    reasons.sort_by_key(|it| std::cmp::Reverse(it.rows));
    let text = |it: &&Rejected| format!("{} because {} (first: {})", grouped(it.rows), it.reason, it.first);
    let mut named: Vec<String> = reasons.iter().take(NAMED).map(text).collect();
    let others: u64 = reasons.iter().skip(NAMED).map(|it| it.rows).sum();
    if others > 0 {
        named.push(format!("{} for other reasons", grouped(others)));
    }
    Some(format!(
        "{} of {} of the trace ({}) {} skipped as invalid: {}",
        grouped(wrong),
        counted(all, "row"),
        share(wrong, all),
        was(wrong),
        named.join("; ")
    ))
}

/// The warning for requests of the trace that were not executed, with the limit that ended the run.
pub fn missing_requests_remark(report: &InstanceReport) -> Option<String> {
    let trace = report.trace.as_ref().filter(|trace| trace.failure.is_none())?;
    let (made, missing) = (report.ops_with_warmup(), missing_requests(report, trace));
    let is_uneven = missing.saturating_mul(100) > trace.requests.saturating_mul(UNEVEN_PERCENT);
    let limit = format!("numOps, {} per thread", grouped(report.settings.ops_per_thread));
    let limit = report.stopped.map_or(limit, |reason| reason.to_string());
    let missing_of = format!(
        "{} of {} ({}) {} not executed",
        grouped(missing),
        counted(trace.requests, "request"),
        share(missing, trace.requests),
        was(missing)
    );
    let remedy = match report.stopped {
        None => {
            ": a thread that reaches numOps skips the rest of its rows; with replaySerializationMode `strict` these are all \
                 requests for its keys, otherwise up to a batch of rows"
        }
        Some(_) => "",
    };
    if trace.read_to_end {
        let enough = match report.stopped {
            None => format!("; numOps {} executes them all", grouped(trace.requests)),
            Some(_) => String::new(),
        };
        return (missing > 0)
            .then(|| format!("The trace was not replayed in full ({limit}): {missing_of}{remedy}{enough}"));
    }
    let uneven = format!("up to the last row used, {missing_of}{remedy}");
    match (trace.is_endless, is_uneven) {
        (true, false) => None,
        (true, true) => Some(format!("The replay ended unevenly ({limit}): {uneven}")),
        (false, false) => Some(format!(
            "The trace was not replayed to its end ({limit}), only its first {}",
            counted(made, "request")
        )),
        (false, true) => Some(format!("The trace was not replayed to its end ({limit}); {uneven}")),
    }
}
