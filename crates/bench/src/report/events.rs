//! Counts of logged key events, as text and JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::numbers::grouped;
use crate::events::EventCounts;
use crate::run::InstanceReport;

/// CacheBench's block of event counters; empty if events are not logged.
pub fn to_text(report: &InstanceReport) -> String {
    let Some(events) = &report.events else { return String::new() };
    let mut out = String::from("== Event Tracker Counters Map ==\n");
    let mut line = |name: &str, count: u64| {
        // Writing to memory does not fail.
        let _ = writeln!(out, "{name}  :  {count}");
    };
    for (name, count) in totals(events) {
        line(&format!("event_tracker_{name}"), count);
    }
    for ((event, result), count) in &events.by_name {
        line(&format!("{event} {result}"), *count);
    }
    out
}

/// The counters for the result file.
pub fn to_json(events: &EventCounts) -> Value {
    let mut out: Map<String, Value> =
        totals(events).into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let by_name = events.by_name.iter().map(|((event, result), count)| (format!("{event},{result}"), *count));
    out.insert("counts".to_owned(), by_name.map(|(name, count)| (name, Value::from(count))).collect());
    out.insert("file".to_owned(), json!(events.file));
    Value::Object(out)
}

fn totals(events: &EventCounts) -> [(&'static str, u64); 4] {
    let EventCounts { tracked, written, dropped, lost, .. } = *events;
    [("tracked", tracked), ("written", written), ("dropped", dropped), ("lost", lost)]
}

/// The warning for events that were dropped because the queue was full.
pub fn remark(report: &InstanceReport) -> Option<String> {
    let events = report.events.as_ref().filter(|events| events.dropped > 0)?;
    let (dropped, tracked) = (grouped(events.dropped), grouped(events.tracked));
    Some(format!(
        "{dropped} of {tracked} events arrived faster than they could be written and were dropped: \
         raise eventTrackerSamplingRate to track fewer keys, or eventTrackerQueueSize to queue more"
    ))
}

/// Why events are missing from the file, if writing it failed.
pub fn unwritten(events: &EventCounts) -> Option<String> {
    let text = events.failure.as_ref()?;
    Some(format!("{text}; {} of {} events are missing", grouped(events.lost), grouped(events.tracked)))
}
