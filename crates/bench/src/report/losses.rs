//! Warnings about items that a cache refused or lost, if a notable share was lost for one reason, with the setting that would change it.

use cache::stats::FlashStats;
use device::names::noun;

use super::numbers::{counted, grouped, share, was};
use crate::run::InstanceReport;
use crate::run::target::{OutcomeCount, Snapshot};

/// Losses for one reason up to this percentage cause no warning.
const NOTABLE_PERCENT: u64 = 1;

/// The warnings.
pub fn remarks(report: &InstanceReport) -> Vec<String> {
    let snapshot = &report.snapshot;
    let dram = Outcomes { counts: &snapshot.stats.inserts.ends(), to: "into DRAM", one: "insert" };
    let chained = Outcomes { counts: &snapshot.stats.chained.ends(), to: "to chains", one: "addition" };
    let mut remarks = vec![
        // Every such item is notable: DRAM should accept all items of its workload.
        dram.remark("rejected_too_large", 0, || too_large_for_dram(report)),
        dram.remark("rejected_all_pinned", NOTABLE_PERCENT, || {
            "refused because all items that could be evicted were in use: raise cacheSizeMB, or lower numThreads or the number \
             of size classes (allocFactor)"
                .to_owned()
        }),
        dram.remark("rejected_key_length", NOTABLE_PERCENT, || "refused because the key is too long".to_owned()),
        dram.remark("rejected_no_such_pool", NOTABLE_PERCENT, || {
            "refused because the pool does not exist: raise numPools".to_owned()
        }),
        chained.remark("rejected_no_parent", NOTABLE_PERCENT, || {
            "refused because their item was no longer cached: raise cacheSizeMB".to_owned()
        }),
        chained.remark("rejected_too_large", NOTABLE_PERCENT, || {
            "refused as too large for a chunk of DRAM: raise allocSizes if it is set, otherwise maxAllocSize, or lower \
             chainedItemValSizeRange".to_owned()
        }),
        chained.remark("rejected_all_pinned", NOTABLE_PERCENT, || {
            "refused because a chain does not evict its own items, and all other items that could be evicted were in use: raise \
             cacheSizeMB, or lower chainedItemLengthRange or numThreads"
                .to_owned()
        }),
    ];
    if let Some(flash) = &snapshot.stats.flash {
        remarks.extend(of_flash(flash));
    }
    remarks.into_iter().flatten().collect()
}

/// The reason and the remedy for items too large for DRAM, worded as in the warning before the run.
fn too_large_for_dram(report: &InstanceReport) -> String {
    let Some(limit) = &report.snapshot.item_limit else {
        return "refused as too large for a chunk of DRAM, which has at most 4 MiB: raise allocSizes if it is set, otherwise \
                maxAllocSize, or cacheSizeMB if it is small"
            .to_owned();
    };
    let largest = report.largest_refused_bytes.max(limit.largest_chunk_bytes + 1);
    let (key, remedy) = limit.remedy(largest);
    format!(
        "refused as too large for a chunk of DRAM (the largest has {} bytes, and items of up to {} were refused): {}: {remedy}",
        grouped(limit.largest_chunk_bytes),
        counted(largest, "byte"),
        key.trim_start_matches("cache_config."),
    )
}

/// The failure if every insert was refused: the cache stayed empty, so its figures are meaningless.
pub fn failure(snapshot: &Snapshot) -> Option<String> {
    Outcomes { counts: &snapshot.stats.inserts.ends(), to: "into DRAM", one: "insert" }.failure()
}

/// Losses on the way to flash due to the configuration or the drive. Rejections by a policy or a TTL are intended, and cause no warning.
fn of_flash(flash: &FlashStats) -> [Option<String>; 4] {
    let offers = Outcomes { counts: &flash.put_ends(), to: "on their way to flash", one: "item" };
    [
        offers.remark("rejected_too_large", NOTABLE_PERCENT, || {
            let change = if flash.regions.is_none() {
                "flash has no large-object engine: lower navyBigHashSizePct below 100 to add one"
            } else {
                "raise navyRegionSizeMB, or raise nvmCacheSizeMB if a warning says that regions had to be smaller (--scale \
                 divides the size of flash, but not of items)"
            };
            let largest = counted(flash.max_item_bytes, "byte");
            format!("dropped as too large for flash (at most {largest}, chained items included): {change}")
        }),
        offers.remark("rejected_worn_out", NOTABLE_PERCENT, || {
            "dropped because too many regions of flash could not be written: replace the drive".to_owned()
        }),
        offers.remark("rejected_failing", NOTABLE_PERCENT, || {
            "dropped while writes of regions failed: check the first I/O error, and whether the file system is full".to_owned()
        }),
        offers.remark("dropped_write_failed", NOTABLE_PERCENT, || {
            "dropped because their write failed: check the first I/O error, and the drive".to_owned()
        }),
    ]
}

/// Counts of items by outcome, with the terms for a message.
struct Outcomes<'a> {
    counts: &'a [OutcomeCount],
    to: &'static str,
    one: &'static str,
}

impl Outcomes<'_> {
    /// The failure if all items were refused, with the most frequent reason.
    fn failure(&self) -> Option<String> {
        let all: u64 =
            self.counts.iter().filter(|(name, _)| *name != "present").map(|(_, count)| count).sum();
        let refused = self.counts.iter().filter(|(name, _)| name.starts_with("rejected_"));
        let refused_count: u64 = refused.clone().map(|(_, count)| count).sum();
        let (reason, _) = refused.max_by_key(|(_, count)| *count)?;
        let Self { to, one, .. } = self;
        (all > 0 && refused_count == all).then(|| {
            let reason = reason.trim_start_matches("rejected_").replace('_', " ");
            format!("All {} {to} were refused ({reason}): nothing was stored", counted(all, one))
        })
    }

    /// The warning if more than `percent` of the items had this outcome. Items that were already present do not count.
    fn remark(&self, outcome: &str, percent: u64, text: impl FnOnce() -> String) -> Option<String> {
        let count =
            |wanted: &str| self.counts.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, n)| *n);
        let lost = count(outcome);
        let present = count("present") + count("clean");
        let all = self.counts.iter().map(|(_, count)| count).sum::<u64>() - present;
        (lost > 0 && lost.saturating_mul(100) > all.saturating_mul(percent)).then(|| {
            let Self { to, one, .. } = self;
            let (lost_text, of) = (grouped(lost), noun(all, one));
            format!(
                "{lost_text} of {} {of} {to} ({}) {} {}",
                grouped(all),
                share(lost, all),
                was(lost),
                text()
            )
        })
    }
}
