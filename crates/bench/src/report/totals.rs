//! Several instances as one: counters and histograms added up, the time that of the longest.

use std::collections::BTreeMap;

use workload::trace::ReplayStats;

use crate::run::InstanceReport;
use crate::run::course::Warmup;
use crate::run::target::{DramCounts, End, FlashCounts, Snapshot};

/// All instances together. What one of them does not know, the sum does not know either.
///
/// # Panics
/// Without instances.
#[must_use]
pub fn totals(instances: &[InstanceReport]) -> InstanceReport {
    let (first, rest) = instances.split_first().expect("a run has instances");
    let mut sum = first.clone();
    for report in rest {
        sum.settings.threads += report.settings.threads;
        sum.seconds = sum.seconds.max(report.seconds);
        sum.counts.add(&report.counts);
        sum.latencies.merge(&report.latencies);
        sum.snapshot = add_snapshots(&sum.snapshot, &report.snapshot);
        sum.inconsistencies.extend(&report.inconsistencies);
        sum.stopped = sum.stopped.or(report.stopped);
        if let (Some(mine), Some(theirs)) = (&mut sum.punctuality, &report.punctuality) {
            mine.merge(theirs);
        }
        sum.warmup = add_warmups(sum.warmup, report.warmup);
        sum.trace = add_traces(sum.trace.take(), report.trace.as_ref());
    }
    if let Some(flash) = &mut sum.snapshot.flash {
        flash.media_bytes = media_bytes(instances);
    }
    sum
}

/// A drive that several instances list counts once. Where one lists a drive and another's flash tells by itself, it may be
/// the same drive: then nobody knows.
fn media_bytes(instances: &[InstanceReport]) -> Option<u64> {
    let flash = instances.iter().filter_map(|it| it.snapshot.flash.as_ref());
    let (listing, telling): (Vec<_>, Vec<_>) = flash.partition(|it| !it.listed_drives.is_empty());
    let drives: BTreeMap<_, _> =
        listing.iter().flat_map(|it| &it.listed_drives).map(|it| (&it.path, it.media_bytes)).collect();
    match (drives.is_empty(), telling.is_empty()) {
        (true, _) => telling.iter().map(|it| it.media_bytes).sum(),
        (false, true) => drives.values().copied().sum(),
        (false, false) => None,
    }
}

/// It ends for all at the same time.
fn add_warmups(a: Option<Warmup>, b: Option<Warmup>) -> Option<Warmup> {
    let (Some(mut sum), Some(b)) = (a, b) else { return a.or(b) };
    sum.counts.add(&b.counts);
    sum.flash_bytes += b.flash_bytes;
    Some(sum)
}

fn add_traces(a: Option<ReplayStats>, b: Option<&ReplayStats>) -> Option<ReplayStats> {
    let (Some(mut sum), Some(b)) = (a.clone(), b) else { return a.or_else(|| b.cloned()) };
    sum.rows += b.rows;
    sum.rejected_rows += b.rejected_rows;
    sum.messages.extend(b.messages.iter().cloned());
    sum.failure = sum.failure.or_else(|| b.failure.clone());
    Some(sum)
}

fn add_snapshots(a: &Snapshot, b: &Snapshot) -> Snapshot {
    let flash = match (&a.flash, &b.flash) {
        (Some(a), Some(b)) => Some(add_flash(a, b)),
        (one, other) => one.clone().or_else(|| other.clone()),
    };
    // Details and usage by pool belong to one cache.
    let insert_ends = add_ends(&a.insert_ends, &b.insert_ends);
    Snapshot { dram: add_dram(&a.dram, &b.dram), flash, insert_ends, details: Vec::new() }
}

fn add_dram(a: &DramCounts, b: &DramCounts) -> DramCounts {
    DramCounts {
        items: add(a.items, b.items),
        alloc_attempts: add(a.alloc_attempts, b.alloc_attempts),
        alloc_failures: add(a.alloc_failures, b.alloc_failures),
        evict_attempts: add(a.evict_attempts, b.evict_attempts),
        evictions: add(a.evictions, b.evictions),
        pool_usage: Vec::new(),
        classes: Vec::new(),
        slabs_released: add(a.slabs_released, b.slabs_released),
        slab_moves: add_pairs(a.slab_moves, b.slab_moves),
        slab_evictions: add_pairs(a.slab_evictions, b.slab_evictions),
    }
}

fn add_flash(a: &FlashCounts, b: &FlashCounts) -> FlashCounts {
    FlashCounts {
        items: add(a.items, b.items),
        gets: add(a.gets, b.gets),
        gets_coalesced: add(a.gets_coalesced, b.gets_coalesced),
        puts: add(a.puts, b.puts),
        puts_stored: add(a.puts_stored, b.puts_stored),
        puts_clean: add(a.puts_clean, b.puts_clean),
        puts_overtaken: add(a.puts_overtaken, b.puts_overtaken),
        puts_expired: add(a.puts_expired, b.puts_expired),
        put_ends: add_ends(&a.put_ends, &b.put_ends),
        lost: add(a.lost, b.lost),
        evictions: add(a.evictions, b.evictions),
        deletes: add(a.deletes, b.deletes),
        logical_bytes: add(a.logical_bytes, b.logical_bytes),
        waiting_bytes: add(a.waiting_bytes, b.waiting_bytes),
        capacity_bytes: add(a.capacity_bytes, b.capacity_bytes),
        host_bytes: add(a.host_bytes, b.host_bytes),
        host_read_bytes: add(a.host_read_bytes, b.host_read_bytes),
        // Of all instances at once.
        media_bytes: None,
        listed_drives: Vec::new(),
        io_errors: add(a.io_errors, b.io_errors),
        first_io_error: a.first_io_error.clone().or_else(|| b.first_io_error.clone()),
        checksum_errors: add(a.checksum_errors, b.checksum_errors),
        buffered: a.buffered || b.buffered,
        // A handle is its instance's: the same number is another handle in another namespace.
        placement: Vec::new(),
        recovered: a.recovered && b.recovered,
        device_latency: match (&a.device_latency, &b.device_latency) {
            (Some((reads, writes)), Some(other)) => {
                let (mut reads, mut writes) = (reads.clone(), writes.clone());
                reads.merge(&other.0);
                writes.merge(&other.1);
                Some((reads, writes))
            }
            _ => None,
        },
    }
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

/// Ends that one of them does not tell, the sum does not tell either.
fn add_ends(a: &[End], b: &[End]) -> Vec<End> {
    let in_b = |name: &str| b.iter().find(|(of, _)| *of == name).map(|(_, count)| *count);
    a.iter().filter_map(|(name, count)| Some((*name, count + in_b(name)?))).collect()
}

fn add_pairs(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let ((a, b), (c, d)) = (a?, b?);
    Some((a + c, b + d))
}
