//! Counters of the small-object cache.

use device::counters;

use super::pending::{BUCKET_OVERHEAD_BYTES, ENTRY_OVERHEAD_BYTES};

counters! {
    /// Counters since the engine was created or restored. Items and pending ones are current values.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SocStats {
        /// Upper limit of the number of readable items: in buckets, and pending in memory.
        stored_items: state u64 [listed_as "navy_bh_items"],
        /// Pending items, each readable. One that replaces an item in a bucket counts beside it until it is written.
        pending_items: state u64 [listed_as "navy_bh_items_waiting"],
        /// Items committed.
        inserts: sum u64 [listed_as "navy_bh_inserts"],
        /// Lookups.
        lookups: sum u64 [listed_as "navy_bh_lookups"],
        /// Lookups that found a live item.
        hits: sum u64 [listed_as "navy_bh_succ_lookups"],
        /// Items evicted, oldest first, to make space for newer ones.
        evictions: sum u64 [listed_as "navy_bh_evictions"],
        /// Key and value bytes of the committed items.
        logical_written_bytes: sum u64 [listed_as "navy_bh_logical_written"],
        /// Bytes of buckets written to the device.
        physical_written_bytes: sum u64 [listed_as "navy_bh_physical_written"],
        /// Buckets whose checksum did not match or whose content was invalid. They became empty.
        checksum_errors: sum u64 [listed_as "navy_bh_checksum_errors"],
        /// Buckets read needlessly: the filter reported a key that is absent.
        filter_false_positives: sum u64 [listed_as "navy_bh_bf_false_positives"],
        /// Items in buckets on flash, at most; pending ones are not counted. The items of an unreadable or damaged bucket are lost, but
        /// their number is unknown: they stay counted, also after a restart, until the cache is cleared or starts empty.
        items: state i64,
        /// Items and tombstones in memory that wait for their bucket to be written.
        pending_entries: state u64,
        /// Buckets with pending entries.
        pending_buckets: state u64,
        /// Memory of the pending entries.
        pending_bytes: state u64,
        /// Removed keys that were pending or that the filter reported.
        removes: sum u64,
        /// Hits in memory, on pending items.
        hits_pending: sum u64,
        /// Buckets read for lookups.
        bucket_reads: sum u64,
        /// Lookups whose item had expired.
        expired_lookups: sum u64,
        /// Lookups that returned a miss because the bucket was rewritten during every attempt.
        lookups_given_up: sum u64,
        /// Items dropped from a bucket because they had expired.
        evictions_expired: sum u64,
        /// Key and value bytes in written buckets, counted together with `physical_written_bytes`.
        settled_bytes: sum u64,
        /// Buckets written.
        bucket_writes: sum u64,
        /// Items and tombstones in the written buckets.
        written_entries: sum u64,
        /// Device writes: one contains several adjacent buckets.
        device_writes: sum u64,
        /// Failed reads, for lookups or before a write.
        read_errors: sum u64,
        /// Failed device writes. A failed write of several buckets is repeated bucket by bucket. A bucket that fails again counts as
        /// empty, since its content is unknown.
        write_errors: sum u64,
        /// Buckets that held an earlier generation though they had been written since: a write that the device lost.
        stale_buckets: sum u64,
        /// Items known to be lost to failed writes and unreadable buckets. Of an unreadable bucket, only pending items are counted.
        lost_items: sum u64,
        /// Key and value bytes of pending items that were replaced, removed or cleared before a write contained them.
        replaced_bytes: sum u64,
        /// Key and value bytes of pending items whose write failed.
        unwritten_bytes: sum u64,
        /// Pending items whose write failed.
        unwritten_items: sum u64,
        /// Items of an evicted region that were written again because they had been read; only in a log.
        readmitted_items: sum u64,
        /// Key and value bytes of the readmitted items.
        readmitted_bytes: sum u64,
    }
}

impl SocStats {
    /// `hits / lookups`; 0 before the first lookup.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.lookups)
    }

    /// Key and value bytes of pending items.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        let overhead_bytes = self.pending_entries * ENTRY_OVERHEAD_BYTES as u64
            + self.pending_buckets * BUCKET_OVERHEAD_BYTES as u64;
        self.pending_bytes.saturating_sub(overhead_bytes)
    }

    /// `physical_written_bytes / logical_written_bytes`: application-level write amplification.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        ratio(self.physical_written_bytes, self.logical_written_bytes)
    }

    /// `written_entries / bucket_writes`: the entries that share one bucket write.
    #[must_use]
    pub fn entries_per_bucket_write(&self) -> f64 {
        ratio(self.written_entries, self.bucket_writes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
