//! What the small-object cache counts.

use std::ops::AddAssign;

use super::pending::{BUCKET_OVERHEAD_BYTES, ENTRY_OVERHEAD_BYTES};

/// Counts since the engine was created or restored. `items` and `pending_*` are of the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocStats {
    /// Items in buckets on flash, at most; pending ones are not counted. The items of an unreadable or damaged bucket are lost, but their
    /// number is unknown: they stay counted, also after a restart, until the cache is cleared or starts empty.
    pub items: i64,
    /// Items and tombstones in memory that wait for their bucket to be written.
    pub pending_entries: u64,
    /// The items among them, each readable. One that replaces an item in a bucket counts beside it until it is written.
    pub pending_items: u64,
    /// Buckets that they wait for.
    pub pending_buckets: u64,
    /// Memory that items and tombstones take.
    pub pending_bytes: u64,
    /// Items committed.
    pub inserts: u64,
    /// Keys forgotten that were pending or that the filter let through.
    pub removes: u64,
    /// Lookups.
    pub lookups: u64,
    /// Reads that found a live item.
    pub hits: u64,
    /// Those of them answered from memory, their bucket not being written yet.
    pub hits_pending: u64,
    /// Buckets read for lookups.
    pub bucket_reads: u64,
    /// Buckets read for a lookup in vain: the filter let a key through that is not there.
    pub filter_false_positives: u64,
    /// Lookups that found an item too old to be returned.
    pub expired_lookups: u64,
    /// Lookups that returned a miss because the bucket was rewritten during every attempt.
    pub lookups_given_up: u64,
    /// Items dropped, oldest first, to make room for newer ones.
    pub evictions: u64,
    /// Items dropped from a bucket because they had expired.
    pub evictions_expired: u64,
    /// Bytes of keys and values committed.
    pub logical_written_bytes: u64,
    /// Of these, bytes in buckets that were written: counted with the bucket's own bytes below.
    pub settled_bytes: u64,
    /// Bytes of buckets written to the device.
    pub physical_written_bytes: u64,
    /// Buckets written.
    pub bucket_writes: u64,
    /// Items and tombstones those writes settled.
    pub written_entries: u64,
    /// Device writes: one holds several buckets that lie side by side.
    pub device_writes: u64,
    /// Reads that failed, for lookups or before a write.
    pub read_errors: u64,
    /// Device writes that failed. A failed write of several buckets is repeated bucket by bucket. A bucket that fails again counts as
    /// empty, since its content is unknown.
    pub write_errors: u64,
    /// Buckets whose checksum did not hold or whose content made no sense. They are empty since.
    pub checksum_errors: u64,
    /// Buckets that held an earlier generation though they had been written since: a write the device lost.
    pub stale_buckets: u64,
    /// Items known to be lost to failed writes and unreadable buckets (those in an unreadable bucket cannot be
    /// counted, so only pending ones are).
    pub lost_items: u64,
    /// Keys and values that were replaced, removed or cleared while they waited, before any write contained them.
    pub replaced_bytes: u64,
    /// Keys and values that waited for a write that failed.
    pub unwritten_bytes: u64,
    /// How many items these are.
    pub unwritten_items: u64,
    /// Items of an evicted region that were written again because they had been read; only a log has any.
    pub readmitted_items: u64,
    /// Their keys and values.
    pub readmitted_bytes: u64,
}

impl SocStats {
    /// `hits / lookups`; 0 before the first lookup.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.lookups)
    }

    /// Items that can be read, at most: in buckets, and in memory on their way there.
    #[must_use]
    pub fn stored_items(&self) -> u64 {
        self.items.max(0).cast_unsigned() + self.pending_items
    }

    /// Keys and values that wait in memory for their bucket to be written.
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

    /// `written_entries / bucket_writes`: what batching saves over one rewrite an insert.
    #[must_use]
    pub fn entries_per_bucket_write(&self) -> f64 {
        ratio(self.written_entries, self.bucket_writes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl AddAssign<&Self> for SocStats {
    fn add_assign(&mut self, other: &Self) {
        // Destructured, so that a new field cannot be forgotten here.
        let Self {
            items,
            pending_entries,
            pending_items,
            pending_buckets,
            pending_bytes,
            inserts,
            removes,
            lookups,
            hits,
            hits_pending,
            bucket_reads,
            filter_false_positives,
            expired_lookups,
            lookups_given_up,
            evictions,
            evictions_expired,
            logical_written_bytes,
            settled_bytes,
            physical_written_bytes,
            bucket_writes,
            written_entries,
            device_writes,
            read_errors,
            write_errors,
            checksum_errors,
            stale_buckets,
            lost_items,
            replaced_bytes,
            unwritten_bytes,
            unwritten_items,
            readmitted_items,
            readmitted_bytes,
        } = other;
        self.items += items;
        self.pending_entries += pending_entries;
        self.pending_items += pending_items;
        self.pending_buckets += pending_buckets;
        self.pending_bytes += pending_bytes;
        self.inserts += inserts;
        self.removes += removes;
        self.lookups += lookups;
        self.hits += hits;
        self.hits_pending += hits_pending;
        self.bucket_reads += bucket_reads;
        self.filter_false_positives += filter_false_positives;
        self.expired_lookups += expired_lookups;
        self.lookups_given_up += lookups_given_up;
        self.evictions += evictions;
        self.evictions_expired += evictions_expired;
        self.logical_written_bytes += logical_written_bytes;
        self.settled_bytes += settled_bytes;
        self.physical_written_bytes += physical_written_bytes;
        self.bucket_writes += bucket_writes;
        self.written_entries += written_entries;
        self.device_writes += device_writes;
        self.read_errors += read_errors;
        self.write_errors += write_errors;
        self.checksum_errors += checksum_errors;
        self.stale_buckets += stale_buckets;
        self.lost_items += lost_items;
        self.replaced_bytes += replaced_bytes;
        self.unwritten_bytes += unwritten_bytes;
        self.unwritten_items += unwritten_items;
        self.readmitted_items += readmitted_items;
        self.readmitted_bytes += readmitted_bytes;
    }
}
