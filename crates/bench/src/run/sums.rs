//! Arithmetic on a target's counters: the sum over several instances, and the difference between two readings.

use super::listed_drives::DriveBytes;
use super::target::{Detail, DramCounts, FlashCounts, OutcomeCount, Snapshot};

impl Snapshot {
    /// The sum of both. A figure that is unknown in either is unknown in the sum; details are dropped, as they describe one cache.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            dram: self.dram.plus(&other.dram),
            flash: match (&self.flash, &other.flash) {
                (Some(mine), Some(theirs)) => Some(mine.plus(theirs)),
                (one, other) => one.clone().or_else(|| other.clone()),
            },
            insert_ends: add_ends(&self.insert_ends, &other.insert_ends),
            chain_ends: add_ends(&self.chain_ends, &other.chain_ends),
            item_limit: self.item_limit.filter(|_| self.item_limit == other.item_limit),
            details: Vec::new(),
        }
    }

    /// The difference to `earlier`, a previous reading. Gauges (items, memory, pending bytes) keep their current value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let detail = |now: &Detail| {
            let before = earlier.details.iter().find(|it| it.name == now.name && !now.is_state);
            Detail { value: now.value - before.map_or(0.0, |it| it.value), ..now.clone() }
        };
        Self {
            dram: self.dram.since(&earlier.dram),
            flash: match (&self.flash, &earlier.flash) {
                (Some(now), Some(before)) => Some(now.since(before)),
                (now, _) => now.clone(),
            },
            insert_ends: ends_since(&self.insert_ends, &earlier.insert_ends),
            chain_ends: ends_since(&self.chain_ends, &earlier.chain_ends),
            item_limit: self.item_limit,
            details: self.details.iter().map(detail).collect(),
        }
    }
}

impl DramCounts {
    fn plus(&self, other: &Self) -> Self {
        Self {
            items: add(self.items, other.items),
            alloc_attempts: add(self.alloc_attempts, other.alloc_attempts),
            alloc_failures: add(self.alloc_failures, other.alloc_failures),
            evict_attempts: add(self.evict_attempts, other.evict_attempts),
            evictions: add(self.evictions, other.evictions),
            // Usage describes one cache.
            pool_usage: Vec::new(),
            classes: Vec::new(),
            slabs_released: add(self.slabs_released, other.slabs_released),
            slab_moves: add_pairs(self.slab_moves, other.slab_moves),
            slab_evictions: add_pairs(self.slab_evictions, other.slab_evictions),
        }
    }

    /// The difference to `earlier`, a previous reading. Every field is listed, so that a new counter is not copied as a gauge by
    /// mistake.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            alloc_attempts: grown(self.alloc_attempts, earlier.alloc_attempts),
            alloc_failures: grown(self.alloc_failures, earlier.alloc_failures),
            evict_attempts: grown(self.evict_attempts, earlier.evict_attempts),
            evictions: grown(self.evictions, earlier.evictions),
            slabs_released: grown(self.slabs_released, earlier.slabs_released),
            slab_moves: both_grown(self.slab_moves, earlier.slab_moves),
            slab_evictions: both_grown(self.slab_evictions, earlier.slab_evictions),
            items: self.items,
            pool_usage: self.pool_usage.clone(),
            classes: self.classes.clone(),
        }
    }
}

impl FlashCounts {
    fn plus(&self, other: &Self) -> Self {
        Self {
            items: add(self.items, other.items),
            gets: add(self.gets, other.gets),
            gets_coalesced: add(self.gets_coalesced, other.gets_coalesced),
            puts: add(self.puts, other.puts),
            puts_stored: add(self.puts_stored, other.puts_stored),
            puts_clean: add(self.puts_clean, other.puts_clean),
            puts_overtaken: add(self.puts_overtaken, other.puts_overtaken),
            puts_stayed: add(self.puts_stayed, other.puts_stayed),
            puts_expired: add(self.puts_expired, other.puts_expired),
            put_ends: add_ends(&self.put_ends, &other.put_ends),
            put_waits: add(self.put_waits, other.put_waits),
            // The limits of two caches have no sum.
            max_item_bytes: None,
            has_regions: None,
            lost: add(self.lost, other.lost),
            evictions: add(self.evictions, other.evictions),
            deletes: add(self.deletes, other.deletes),
            logical_bytes: add(self.logical_bytes, other.logical_bytes),
            waiting_bytes: add(self.waiting_bytes, other.waiting_bytes),
            capacity_bytes: add(self.capacity_bytes, other.capacity_bytes),
            host_bytes: add(self.host_bytes, other.host_bytes),
            host_read_bytes: add(self.host_read_bytes, other.host_read_bytes),
            settled: self.settled.zip(other.settled).map(|(mine, theirs)| mine.plus(theirs)),
            // One of them may be unknown, and a drive that both list would be counted twice. The report reads all drives together.
            media_bytes: None,
            listed_drives: Vec::new(),
            io_errors: add(self.io_errors, other.io_errors),
            first_io_error: self.first_io_error.clone().or_else(|| other.first_io_error.clone()),
            checksum_errors: add(self.checksum_errors, other.checksum_errors),
            buffered: self.buffered || other.buffered,
            engine: self.engine.max(other.engine),
            // Handles are numbered per namespace: equal numbers may be different handles.
            placement: Vec::new(),
            recovered: self.recovered && other.recovered,
            loss: self.loss.or(other.loss),
            device_latency: match (&self.device_latency, &other.device_latency) {
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

    /// The difference to `earlier`, a previous reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let drive = |now: &DriveBytes| {
            let before = earlier.listed_drives.iter().find(|it| it.path == now.path);
            DriveBytes {
                media_bytes: grown(now.media_bytes, before.and_then(|it| it.media_bytes)),
                ..now.clone()
            }
        };
        Self {
            gets: grown(self.gets, earlier.gets),
            gets_coalesced: grown(self.gets_coalesced, earlier.gets_coalesced),
            puts: grown(self.puts, earlier.puts),
            puts_stored: grown(self.puts_stored, earlier.puts_stored),
            puts_clean: grown(self.puts_clean, earlier.puts_clean),
            puts_overtaken: grown(self.puts_overtaken, earlier.puts_overtaken),
            puts_stayed: grown(self.puts_stayed, earlier.puts_stayed),
            puts_expired: grown(self.puts_expired, earlier.puts_expired),
            put_ends: ends_since(&self.put_ends, &earlier.put_ends),
            put_waits: grown(self.put_waits, earlier.put_waits),
            lost: grown(self.lost, earlier.lost),
            evictions: grown(self.evictions, earlier.evictions),
            deletes: grown(self.deletes, earlier.deletes),
            // Bytes that were pending in `earlier` were written later, or are pending now.
            logical_bytes: grown(self.logical_bytes, earlier.settled_bytes()),
            host_bytes: grown(self.host_bytes, earlier.host_bytes),
            host_read_bytes: grown(self.host_read_bytes, earlier.host_read_bytes),
            settled: self.settled.zip(earlier.settled).map(|(now, then)| now.since(then)),
            media_bytes: grown(self.media_bytes, earlier.media_bytes),
            listed_drives: self.listed_drives.iter().map(drive).collect(),
            io_errors: grown(self.io_errors, earlier.io_errors),
            checksum_errors: grown(self.checksum_errors, earlier.checksum_errors),
            device_latency: match (&self.device_latency, &earlier.device_latency) {
                (Some((reads, writes)), Some(before)) => {
                    Some((reads.since(&before.0), writes.since(&before.1)))
                }
                (now, _) => now.clone(),
            },
            items: self.items,
            max_item_bytes: self.max_item_bytes,
            has_regions: self.has_regions,
            waiting_bytes: self.waiting_bytes,
            capacity_bytes: self.capacity_bytes,
            first_io_error: self.first_io_error.clone(),
            buffered: self.buffered,
            engine: self.engine,
            placement: self.placement.clone(),
            recovered: self.recovered,
            loss: self.loss,
        }
    }
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

fn add_pairs(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let ((a, b), (c, d)) = (a?, b?);
    Some((a + c, b + d))
}

/// Outcomes that are missing from either input are omitted from the sum.
fn add_ends(a: &[OutcomeCount], b: &[OutcomeCount]) -> Vec<OutcomeCount> {
    let in_b = |name: &str| b.iter().find(|(of, _)| *of == name).map(|(_, count)| *count);
    a.iter().filter_map(|(name, count)| Some((*name, count + in_b(name)?))).collect()
}

/// Counters only grow; a smaller value becomes 0.
fn grown(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

fn both_grown(now: Option<(u64, u64)>, before: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let ((a, b), (c, d)) = (now?, before?);
    Some((a.saturating_sub(c), b.saturating_sub(d)))
}

fn ends_since(now: &[OutcomeCount], before: &[OutcomeCount]) -> Vec<OutcomeCount> {
    let had = |name: &str| before.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    now.iter().map(|(name, count)| (*name, count.saturating_sub(had(name)))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::run::latency::Histogram;

    fn flash(logical: u64, waiting: u64, host: u64) -> FlashCounts {
        FlashCounts {
            logical_bytes: Some(logical),
            waiting_bytes: Some(waiting),
            host_bytes: Some(host),
            ..FlashCounts::default()
        }
    }

    #[test]
    fn since_counts_bytes_written_in_the_interval() {
        for (then, now, settled) in [
            (flash(100, 10, 100), flash(300, 30, 400), 180),
            (flash(100, 90, 100), flash(200, 10, 400), 180),
            (flash(100, 90, 100), flash(110, 10, 400), 90),
        ] {
            let part = now.since(&then);
            assert_eq!((part.settled_bytes(), part.host_bytes), (Some(settled), Some(300)));
            assert_eq!(part.media_bytes, None, "unknown stays unknown");
        }
    }

    /// A reading in which each counter is `count` or twice that, and each gauge is `state`.
    fn at(count: u64, state: u64) -> Snapshot {
        let (once, twice, pair) = (Some(count), Some(2 * count), Some((count, 2 * count)));
        let ends = vec![("rejected", 2 * count), ("stored", count)];
        let dram = DramCounts {
            items: Some(state),
            alloc_attempts: twice,
            alloc_failures: once,
            evict_attempts: twice,
            evictions: once,
            slabs_released: once,
            slab_moves: pair,
            slab_evictions: pair,
            ..DramCounts::default()
        };
        let flash = FlashCounts {
            items: Some(state),
            gets: twice,
            gets_coalesced: once,
            puts: twice,
            puts_stored: once,
            puts_clean: once,
            puts_overtaken: once,
            puts_stayed: once,
            puts_expired: once,
            put_ends: ends.clone(),
            put_waits: once,
            lost: once,
            evictions: once,
            deletes: once,
            logical_bytes: twice,
            waiting_bytes: Some(0),
            capacity_bytes: Some(state),
            host_bytes: twice,
            host_read_bytes: once,
            media_bytes: twice,
            listed_drives: vec![drive("/dev/a", count), drive("/dev/b", 2 * count)],
            io_errors: once,
            checksum_errors: once,
            device_latency: Some((times(count), times(2 * count))),
            ..FlashCounts::default()
        };
        let details = vec![Detail::state("navy_bh_items_waiting", state), Detail::count("reaped", count)];
        Snapshot {
            dram,
            flash: Some(flash),
            insert_ends: ends.clone(),
            chain_ends: ends,
            item_limit: None,
            details,
        }
    }

    fn drive(path: &str, bytes: u64) -> DriveBytes {
        DriveBytes { path: path.into(), media_bytes: Some(bytes), is_shared: false }
    }

    fn times(count: u64) -> Histogram {
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(1000));
        histogram
    }

    #[test]
    fn since_subtracts_counters_and_keeps_gauges() {
        assert_eq!(at(10, 7).since(&at(4, 9)), at(6, 7));
    }

    #[test]
    fn plus_adds_counters_and_drops_figures_of_one_cache() {
        let mut both = at(7, 12);
        both.details.clear();
        both.flash.iter_mut().for_each(|flash| {
            flash.media_bytes = None;
            flash.listed_drives.clear();
        });
        assert_eq!(at(3, 4).plus(&at(4, 8)), both);
    }

    #[test]
    fn plus_of_known_and_unknown_is_unknown() {
        let known = at(3, 4);
        let mut less = at(4, 8);
        (less.dram.slab_moves, less.insert_ends) = (None, vec![("stored", 4)]);
        less.flash.as_mut().unwrap().device_latency = None;
        for both in [known.plus(&less), less.plus(&known)] {
            assert_eq!((both.dram.slab_moves, both.insert_ends), (None, vec![("stored", 7)]));
            assert_eq!(both.flash.unwrap().device_latency, None);
        }
        let without_flash = Snapshot { flash: None, ..at(4, 8) };
        assert_eq!(without_flash.plus(&known).flash, known.flash, "no flash counts as zero");
    }

    #[test]
    fn plus_is_recovered_if_both_are_and_buffered_if_either_is() {
        let flash = |recovered, buffered| FlashCounts { recovered, buffered, ..FlashCounts::default() };
        for (mine, theirs) in [(true, false), (false, true)] {
            let both = flash(mine, mine).plus(&flash(theirs, theirs));
            assert_eq!((both.recovered, both.buffered), (false, true));
        }
        assert!(flash(true, true).plus(&flash(true, true)).recovered);
    }
}
