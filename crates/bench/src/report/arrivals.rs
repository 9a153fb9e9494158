//! Figures of an open loop: the offered rate, whether it was reached, and the lateness of requests.

use serde_json::{Value, json};

use super::numbers::{grouped, line};
use crate::config::plan::ArrivalsPlan;
use crate::run::InstanceReport;
use crate::run::latency::{Histogram, Timed};
use crate::run::punctuality::Punctuality;

/// The open loop's figures for the result file; `null` in a closed loop.
#[must_use]
pub fn to_json(report: &InstanceReport) -> Value {
    let Some(punctuality) = &report.punctuality else { return Value::Null };
    json!({
        "mode": mode(report.settings.arrivals),
        "offered_ops_per_second": offered(report, punctuality),
        "done_ops_per_second": done(report),
        "kept_up": punctuality.kept_up(),
        "lateness_ns": super::numbers::percentiles(&punctuality.lateness),
        "behind_seconds": punctuality.behind.as_secs_f64(),
        "backlog_ops": punctuality.backlog,
    })
}

/// The figures as text; empty in a closed loop.
#[must_use]
pub fn to_text(report: &InstanceReport) -> String {
    let Some(punctuality) = &report.punctuality else { return String::new() };
    let mut out = String::from("\n== Arrivals ==\n");
    let mode = mode(report.settings.arrivals);
    line(&mut out, format_args!("Offered       : {:>9}/s, {mode}", rate(offered(report, punctuality))));
    line(&mut out, format_args!("Done          : {:>9}/s", rate(done(report))));
    let backlog = punctuality.backlog.map_or_else(|| "an unknown number of".to_owned(), grouped);
    let behind_ms = punctuality.behind.as_secs_f64() * 1e3;
    let at_the_end = format!("{behind_ms:.3} ms behind at the end, {backlog} requests not started");
    line(&mut out, format_args!("Lateness      : {}; {at_the_end}", spread(&punctuality.lateness)));
    let both = [
        ("Get", report.latencies.gets(), punctuality.service.gets()),
        ("Set", report.latencies.of(Timed::Set), punctuality.service.of(Timed::Set)),
    ];
    for (name, from_due, service) in both.iter().filter(|(_, from_due, _)| from_due.count() > 0) {
        let (from_due, service) = (spread(from_due), spread(service));
        line(&mut out, format_args!("{name} latency   : {from_due} from due time; service alone {service}"));
    }
    out
}

/// The warning for a run that did not keep up.
#[must_use]
pub fn remark(report: &InstanceReport) -> Option<String> {
    let punctuality = report.punctuality.as_ref().filter(|it| !it.kept_up())?;
    let (offered, done) = (rate(offered(report, punctuality)), rate(done(report)));
    let behind = punctuality.behind.as_secs_f64();
    Some(format!(
        "The run fell behind: {offered} requests/s were due and {done} were completed; at the end it was {behind:.3} s late"
    ))
}

fn mode(arrivals: ArrivalsPlan) -> &'static str {
    match arrivals {
        ArrivalsPlan::Closed => "closed",
        ArrivalsPlan::Uniform { .. } => "uniform",
        ArrivalsPlan::Poisson { .. } => "poisson",
        ArrivalsPlan::Trace { .. } => "trace",
    }
}

/// The configured rate; for a trace, the rate of its due times.
fn offered(report: &InstanceReport, punctuality: &Punctuality) -> Option<f64> {
    match report.settings.arrivals {
        ArrivalsPlan::Uniform { per_second } | ArrivalsPlan::Poisson { per_second } => {
            Some(per_second as f64)
        }
        ArrivalsPlan::Closed | ArrivalsPlan::Trace { .. } => {
            let seconds = punctuality.last_due.as_secs_f64();
            (seconds > 0.0).then(|| punctuality.lateness.count() as f64 / seconds)
        }
    }
}

fn done(report: &InstanceReport) -> Option<f64> {
    (report.seconds > 0.0).then(|| report.counts.ops as f64 / report.seconds)
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| "unknown".to_owned(), |rate| grouped(rate.round() as u64))
}

fn spread(histogram: &Histogram) -> String {
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "unknown".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3));
    let mean = histogram.mean_ns().map(|ns| ns.round() as u64);
    let (p50, p99) = (histogram.quantile_ns(0.5), histogram.quantile_ns(0.99));
    format!("mean {} p50 {} p99 {} max {} us", us(mean), us(p50), us(p99), us(histogram.max_ns()))
}
