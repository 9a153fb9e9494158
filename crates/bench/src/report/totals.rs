//! Sums the reports of several instances. Counters and histograms are added; the duration is that of the longest.

use std::collections::BTreeMap;

use workload::trace::ReplayStats;

use crate::config::plan::ArrivalsPlan;
use crate::events::EventCounts;
use crate::run::InstanceReport;
use crate::run::counts::CounterTable;
use crate::run::listed_drives::DriveBytes;
use crate::run::tenants::{Bytes, TenantCounts, Tenants};

/// The sum of all instances. A figure that is unknown in one of them is unknown in the sum.
///
/// # Panics
/// Without instances.
#[must_use]
pub fn totals(instances: &[InstanceReport]) -> InstanceReport {
    let (first, rest) = instances.split_first().expect("a run has instances");
    let mut sum = first.clone();
    for report in rest {
        // Added before the counts, because an instance without tenants contributes its counts unchanged.
        sum.tenants = add_tenants(&sum, report);
        sum.settings.threads += report.settings.threads;
        sum.seconds = sum.seconds.max(report.seconds);
        sum.counts.add(&report.counts);
        sum.latencies.merge(&report.latencies);
        sum.snapshot = sum.snapshot.plus(&report.snapshot);
        sum.largest_refused_bytes = sum.largest_refused_bytes.max(report.largest_refused_bytes);
        sum.inconsistencies.extend(&report.inconsistencies);
        sum.stopped = sum.stopped.or(report.stopped);
        add_arrivals(&mut sum, report);
        add_part(&mut sum.events, report.events.as_ref(), EventCounts::add);
        // All instances end their warm-up at the same time, so its length is not added.
        add_part(&mut sum.warmup, report.warmup.as_ref(), |sum, it| {
            sum.counts.add(&it.counts);
            sum.flash_bytes += it.flash_bytes;
        });
        add_part(&mut sum.trace, report.trace.as_ref(), add_traces);
        add_part(&mut sum.sweeps, report.sweeps.as_ref(), |sum, it| *sum = sum.plus(*it));
        add_part(&mut sum.destructors, report.destructors.as_ref(), |sum, it| *sum = sum.clone().plus(it));
        // Each instance has a file of its own.
        sum.misses = None;
    }
    if let Some(flash) = &mut sum.snapshot.stats.flash {
        flash.device.media_written_bytes = media_bytes(instances);
    }
    sum
}

/// Open loops of one kind are summed; other combinations have no sum.
fn add_arrivals(sum: &mut InstanceReport, report: &InstanceReport) {
    use ArrivalsPlan::{Poisson, Trace, Uniform};
    let together = match (sum.settings.arrivals, report.settings.arrivals) {
        (Uniform { per_second: a }, Uniform { per_second: b }) => {
            Some(Uniform { per_second: a.saturating_add(b) })
        }
        (Poisson { per_second: a }, Poisson { per_second: b }) => {
            Some(Poisson { per_second: a.saturating_add(b) })
        }
        (Trace { speed }, Trace { .. }) => Some(Trace { speed }),
        _ => None,
    };
    sum.punctuality = match (sum.punctuality.take(), &report.punctuality, together) {
        (Some(mut mine), Some(theirs), Some(arrivals)) => {
            mine.merge(theirs);
            sum.settings.arrivals = arrivals;
            Some(mine)
        }
        _ => None,
    };
}

/// A drive that several instances list counts once. If some instances list drives and the flash of others reports media writes itself,
/// both may count the same drive, so the sum is unknown.
fn media_bytes(instances: &[InstanceReport]) -> Option<u64> {
    fn listed(report: &InstanceReport) -> &[DriveBytes] {
        report.snapshot.device.as_ref().map_or(&[], |it| &it.listed_drives)
    }
    let with_flash = instances.iter().filter(|it| it.snapshot.stats.flash.is_some());
    let (listing, reporting): (Vec<_>, Vec<_>) = with_flash.partition(|it| !listed(it).is_empty());
    let drives: BTreeMap<_, _> =
        listing.iter().flat_map(|it| listed(it)).map(|it| (&it.path, it.media_bytes)).collect();
    let reported = reporting.iter().filter_map(|it| it.snapshot.stats.flash.as_ref());
    match (drives.is_empty(), reporting.is_empty()) {
        (true, _) => reported.map(|it| it.device.media_written_bytes).sum(),
        (false, true) => drives.values().copied().sum(),
        (false, false) => None,
    }
}

/// An instance without tenants counts as requests without a tenant.
fn add_tenants(a: &InstanceReport, b: &InstanceReport) -> Option<Tenants> {
    let of = |report: &InstanceReport| {
        let without_tenant = TenantCounts::of(&report.counts, Bytes::default());
        report.tenants.clone().unwrap_or(Tenants { without_tenant, ..Tenants::default() })
    };
    a.tenants.as_ref().or(b.tenants.as_ref())?;
    let mut sum = of(a);
    sum.merge(&of(b));
    Some(sum)
}

/// Adds a part that only some reports have.
fn add_part<T: Clone>(sum: &mut Option<T>, part: Option<&T>, add: impl FnOnce(&mut T, &T)) {
    match (sum, part) {
        (Some(sum), Some(part)) => add(sum, part),
        (sum, part) => *sum = sum.take().or_else(|| part.cloned()),
    }
}

fn add_traces(sum: &mut ReplayStats, b: &ReplayStats) {
    sum.rows += b.rows;
    sum.rejected_rows += b.rejected_rows;
    sum.filtered_rows += b.filtered_rows;
    sum.requests += b.requests;
    sum.read_to_end &= b.read_to_end;
    sum.is_endless &= b.is_endless;
    sum.messages.extend(b.messages.iter().cloned());
    for note in &b.notes {
        if !sum.notes.contains(note) {
            sum.notes.push(note.clone());
        }
    }
    for theirs in &b.rejected {
        match sum.rejected.iter_mut().find(|mine| mine.reason == theirs.reason) {
            Some(mine) => mine.rows += theirs.rows,
            None => sum.rejected.push(theirs.clone()),
        }
    }
    sum.failure = sum.failure.take().or_else(|| b.failure.clone());
}
