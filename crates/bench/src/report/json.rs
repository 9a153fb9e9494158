//! The result file. Names are stable; ratios range from 0 to 1; unknown values are `null`.

use device::Engine;
use serde_json::{Map, Value, json};

use super::figures::FIGURES;
use super::intervals;
use super::numbers::percentiles;
use super::{RunReport, Steadiness};
use crate::run::InstanceReport;
use crate::run::destructors::DestructorCounts;
use crate::run::latency::{Latencies, Timed};
use crate::run::stop::StopReason;
use crate::run::sweeps::Sweeps;
use crate::run::target::OutcomeCount;
use crate::run::warmup::Warmup;
use crate::run::worker::SAMPLE_EVERY;

/// The result of a run.
#[must_use]
pub fn render(report: &RunReport) -> Value {
    let instances: Vec<Value> = report.instances.iter().map(|it| instance(it, &report.warnings)).collect();
    json!({
        "flashwright": env!("CARGO_PKG_VERSION"),
        "command": "bench",
        "config": report.config,
        "environment": report.environment,
        "seed": report.seed,
        "world": if report.drive.is_some() { "simulated" } else { "real" },
        "drive": report.drive.as_ref().map(super::DriveReport::to_json),
        "instances": instances,
        "totals": instance(&report.totals(), &report.warnings),
        "intervals": report.series.spans().map(|span| intervals::to_json(&span)).collect::<Vec<_>>(),
        "steady": Steadiness::of(report).to_json(filled(report)),
        "verdict": {
            "passed": report.passed(),
            "failures": report.failures(),
            "remarks": report.remarks(),
            "unwritten": report.unwritten.iter().cloned().chain(report.lost_events()).collect::<Vec<_>>(),
            "stopped": report.instances.iter().find_map(|it| it.stopped).map(reason),
        },
    })
}

/// Whether the flash of all instances was filled once; `null` if one of them does not report it or has no flash.
fn filled(report: &RunReport) -> Option<bool> {
    let all: Option<Vec<bool>> = report.instances.iter().map(super::steadiness::was_filled).collect();
    all.map(|all| all.iter().all(|filled| *filled))
}

/// The figures and counters of one instance.
pub(crate) fn instance(report: &InstanceReport, warnings: &[String]) -> Value {
    let mut fields = Map::new();
    for figure in FIGURES {
        let value = (figure.value)(report).map_or(Value::Null, super::figures::Reading::to_json);
        fields.insert(figure.name.to_owned(), value);
    }
    fields.insert("latency_ns".to_owned(), latencies(report));
    fields.insert("arrivals".to_owned(), super::arrivals::to_json(report));
    fields.insert("warmup".to_owned(), report.warmup.map_or(Value::Null, warmup));
    fields.insert("counts".to_owned(), counts(report));
    fields.insert("insert_ends".to_owned(), ends(&report.snapshot.stats.inserts.ends()));
    fields.insert("chain_ends".to_owned(), ends(&report.snapshot.stats.chained.ends()));
    if let Some(flash) = &report.snapshot.stats.flash {
        fields.insert("flash_put_ends".to_owned(), ends(&flash.put_ends()));
        fields.insert("flash_put_waits".to_owned(), flash.puts.held_back.into());
        fields.insert("flash_max_item_bytes".to_owned(), flash.max_item_bytes.into());
        fields.insert("flash_items_lost".to_owned(), flash.lost_items().into());
        fields.insert("flash_recovered".to_owned(), flash.recovered.into());
    }
    if let Some(device) = &report.snapshot.device {
        fields.insert("flash_first_io_error".to_owned(), device.first_error.clone().into());
        fields.insert("flash_buffered".to_owned(), device.buffered.into());
        fields.insert("flash_io".to_owned(), device.engine.map(Engine::name).into());
        let handles = |(consumer, handle): &(String, u16)| json!({ "consumer": consumer, "handle": handle });
        fields.insert("placement".to_owned(), device.placement.iter().map(handles).collect());
    }
    if let Some(trace) = super::trace::to_json(report) {
        fields.insert("trace".to_owned(), trace);
    }
    if let Some(Sweeps { mode, sweeps, items, bytes, ns, last_items }) = report.sweeps {
        let totals = json!({ "mode": mode, "sweeps": sweeps, "items": items, "bytes": bytes, "ns": ns,
            "last_sweep_items": last_items });
        fields.insert("dram_iterator".to_owned(), totals);
    }
    if let Some(stressor) = &report.stressor {
        let mut figures: Map<String, Value> = Map::new();
        figures.insert("name".to_owned(), stressor.name.into());
        figures.extend(stressor.figures.iter().map(|(name, _, value)| ((*name).to_owned(), (*value).into())));
        figures.insert("failed".to_owned(), stressor.failed.into());
        figures.insert("failures".to_owned(), stressor.failures.clone().into());
        fields.insert("stressor".to_owned(), Value::Object(figures));
    }
    if let Some(DestructorCounts { from_dram, from_flash, check }) = &report.destructors {
        let check = check.as_ref().map(|check| {
            json!({ "items": check.items, "invalid": check.invalid, "missing": check.missing,
                "described": check.described })
        });
        let calls = json!({ "from_dram": from_dram, "from_flash": from_flash, "check": check });
        fields.insert("destructors".to_owned(), calls);
    }
    if let Some(misses) = &report.misses {
        let written = json!({ "file": misses.path.display().to_string(), "requests": misses.requests });
        fields.insert("miss_trace".to_owned(), written);
    }
    if let Some(events) = &report.events {
        fields.insert("events".to_owned(), super::events::to_json(events));
    }
    fields.insert("tenants".to_owned(), super::tenants::to_json(report));
    let mut details = Map::new();
    report.snapshot.each_listed_counter(|name, value| {
        details.insert(name.to_owned(), value.into());
    });
    fields.insert("details".to_owned(), Value::Object(details));
    let found = report.inconsistencies.iter().map(ToString::to_string);
    fields.insert("inconsistencies_found".to_owned(), found.collect());
    fields.insert("warnings".to_owned(), json!(warnings));
    Value::Object(fields)
}

fn ends(outcomes: &[OutcomeCount]) -> Value {
    outcomes.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect()
}

/// Renders a whole number as an integer: scripts that read counters expect that.
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) {
        Value::from(value as u64)
    } else {
        Value::from(value)
    }
}

/// The warm-up, which the figures exclude.
fn warmup(warmup: Warmup) -> Value {
    let Warmup { ended, seconds, counts, flash_bytes } = warmup;
    json!({ "ended": ended, "seconds": seconds, "ops": counts.ops, "flash_bytes_host": flash_bytes })
}

fn counts(report: &InstanceReport) -> Value {
    let counts = &report.counts;
    json!({
        "get_misses": counts.get_misses,
        "get_hits_dram": counts.get_hits_dram,
        "get_hits_flash": counts.get_hits_flash,
        "set_failures": counts.set_failures,
        "sets_skipped": counts.sets_skipped,
        "delete_misses": counts.delete_misses,
        "add_chained": counts.add_chained,
        "add_chained_failures": counts.add_chained_failures,
        "updates": counts.updates,
        "update_misses": counts.update_misses,
        "could_exist": counts.could_exist,
        "could_exist_misses": counts.could_exist_misses,
        "object_hits": counts.object_hits,
        "object_partial_hits": counts.object_partial_hits,
        "egress_bytes_found": counts.egress_bytes_found,
    })
}

fn latencies(report: &InstanceReport) -> Value {
    let device = report.snapshot.device_latency();
    let device =
        device.map(|(reads, writes)| json!({ "read": percentiles(reads), "write": percentiles(writes) }));
    let sampled = if report.timed_all { 1 } else { SAMPLE_EVERY };
    let service = report.punctuality.as_ref().map(|it| by_operation(&it.service));
    let from = if service.is_some() { "due" } else { "begun" };
    let cache = by_operation(&report.latencies);
    json!({ "timed_one_in": sampled, "from": from, "cache": cache, "service": service, "device": device })
}

fn by_operation(latencies: &Latencies) -> Value {
    let mut all = Map::new();
    all.insert("get".to_owned(), percentiles(&latencies.gets()));
    for timed in Timed::ALL {
        let histogram = latencies.of(timed);
        if histogram.count() > 0 {
            all.insert(timed.name().to_owned(), percentiles(&histogram));
        }
    }
    Value::Object(all)
}

fn reason(stopped: StopReason) -> &'static str {
    match stopped {
        StopReason::Interrupt => "interrupt",
        StopReason::Timeout => "timeout",
        StopReason::Inconsistencies => "inconsistencies",
        StopReason::FlashWritten => "flash_written",
        StopReason::Steady => "steady",
    }
}
