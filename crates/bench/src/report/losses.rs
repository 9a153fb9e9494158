//! Items that a cache did not take: what is to be known of a run that lost a notable share of them for one reason, and what
//! would change it.

use super::text::{counted, grouped, noun, share, was};
use crate::run::InstanceReport;
use crate::run::target::{FlashCounts, OutcomeCount, Snapshot};

/// Losses for one reason below this share, in hundredths, are counted and not remarked on.
const NOTABLE_PERCENT: u64 = 1;

/// A remark on each reason that was notable.
pub fn remarks(report: &InstanceReport) -> Vec<String> {
    let snapshot = &report.snapshot;
    let dram = Offers { ends: &snapshot.insert_ends, to: "into DRAM", one: "insert" };
    let chained = Offers { ends: &snapshot.chain_ends, to: "to chains", one: "addition" };
    let mut remarks = vec![
        // Any: the DRAM that a workload is given is to take all of its items.
        dram.remark("rejected_too_large", 0, || too_large_for_dram(report)),
        dram.remark("rejected_all_pinned", NOTABLE_PERCENT, || {
            "refused because everything that could make room was in use: raise cacheSizeMB, or lower numThreads or the \
             number of size classes (allocFactor)"
                .to_owned()
        }),
        dram.remark("rejected_key_length", NOTABLE_PERCENT, || "refused because the key is too long".to_owned()),
        dram.remark("rejected_no_such_pool", NOTABLE_PERCENT, || {
            "refused because there is no such pool: raise numPools".to_owned()
        }),
        chained.remark("rejected_no_parent", NOTABLE_PERCENT, || {
            "refused because their item was not there any more: raise cacheSizeMB".to_owned()
        }),
        chained.remark("rejected_too_large", NOTABLE_PERCENT, || {
            "refused as too large for a chunk of DRAM: raise allocSizes if they are given, or else maxAllocSize, or lower \
             chainedItemValSizeRange".to_owned()
        }),
        chained.remark("rejected_all_pinned", NOTABLE_PERCENT, || {
            "refused because chains make no room for themselves, and all that could was in use: raise cacheSizeMB, or \
             lower chainedItemLengthRange or numThreads"
                .to_owned()
        }),
    ];
    if let Some(flash) = &snapshot.flash {
        remarks.extend(of_flash(flash));
    }
    remarks.into_iter().flatten().collect()
}

/// The reason and the remedy for items too large for DRAM, in the words of the warning before the run.
fn too_large_for_dram(report: &InstanceReport) -> String {
    let Some(limit) = &report.snapshot.item_limit else {
        return "refused as too large for a chunk of DRAM, which has at most 4 MiB: raise allocSizes if they are given, or else \
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

/// A cache that refused every insert: it holds nothing, and its figures measure nothing.
pub fn failure(snapshot: &Snapshot) -> Option<String> {
    Offers { ends: &snapshot.insert_ends, to: "into DRAM", one: "insert" }.failure()
}

/// What the configuration or the drive kept from flash. What a policy or a time to live kept from it was asked for.
fn of_flash(flash: &FlashCounts) -> [Option<String>; 4] {
    let offers = Offers { ends: &flash.put_ends, to: "on their way to flash", one: "item" };
    [
        offers.remark("rejected_too_large", NOTABLE_PERCENT, || {
            let limit = flash.max_item_bytes.map_or_else(String::new, |bytes| {
                format!(" (at most {}, chained pieces included)", counted(bytes, "byte"))
            });
            let change = match flash.has_regions {
                Some(false) => {
                    "it has no large-object engine: lower navyBigHashSizePct below 100 to have one"
                }
                _ => {
                    "raise navyRegionSizeMB, or nvmCacheSizeMB where a warning says that regions had to be smaller \
                     (--scale divides flash, and no item)"
                }
            };
            format!("dropped as too large for it{limit}: {change}")
        }),
        offers.remark("rejected_worn_out", NOTABLE_PERCENT, || {
            "dropped because too many regions of flash could not be written: replace the drive".to_owned()
        }),
        offers.remark("rejected_failing", NOTABLE_PERCENT, || {
            "dropped while writes of regions failed: see the first failed transfer, and whether the file system is full".to_owned()
        }),
        offers.remark("dropped_write_failed", NOTABLE_PERCENT, || {
            "dropped because their write failed: see the first failed transfer, and the drive".to_owned()
        }),
    ]
}

/// Items that were to go somewhere, and how that ended.
struct Offers<'a> {
    ends: &'a [OutcomeCount],
    to: &'static str,
    one: &'static str,
}

impl Offers<'_> {
    /// Says that all were refused, and for which reason most were.
    fn failure(&self) -> Option<String> {
        let all: u64 = self.ends.iter().filter(|(name, _)| *name != "present").map(|(_, count)| count).sum();
        let refused = self.ends.iter().filter(|(name, _)| name.starts_with("rejected_"));
        let refused_count: u64 = refused.clone().map(|(_, count)| count).sum();
        let (reason, _) = refused.max_by_key(|(_, count)| *count)?;
        let Self { to, one, .. } = self;
        (all > 0 && refused_count == all).then(|| {
            let reason = reason.trim_start_matches("rejected_").replace('_', " ");
            format!("All {} {to} were refused ({reason}): nothing was stored", counted(all, one))
        })
    }

    /// Says that so many ended so, if that is more than `percent` of those that were not there already.
    fn remark(&self, end: &str, percent: u64, words: impl FnOnce() -> String) -> Option<String> {
        let count = |wanted: &str| self.ends.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, n)| *n);
        let lost = count(end);
        let there = count("present") + count("clean");
        let all = self.ends.iter().map(|(_, count)| count).sum::<u64>() - there;
        (lost > 0 && lost.saturating_mul(100) > all.saturating_mul(percent)).then(|| {
            let Self { to, one, .. } = self;
            let (lost_words, of) = (grouped(lost), noun(all, one));
            format!(
                "{lost_words} of {} {of} {to} ({}) {} {}",
                grouped(all),
                share(lost, all),
                was(lost),
                words()
            )
        })
    }
}
