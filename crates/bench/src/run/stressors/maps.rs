//! `cachelib_map` and `cachelib_range_map`: a hundred maps that grow to thousands of entries, shrink, are compacted and removed, while
//! memory moves between size classes and whole maps are evicted.
//!
//! CacheLib has map types on top of its chained items. Here a map has the simplest form: a parent item with its generation, and chained
//! items with entries, which are only appended. A later entry of a key replaces the earlier one, and one without a value erases it.
//! Compaction rewrites the map. The test keeps the expected entries of each map: a map that is found must hold exactly those, because
//! an item and its chain are evicted together.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use async_lock::RwLock;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use workload::payload::Payload;

use super::failures::Failures;
use crate::run::target::{Found, Layer, SetHow, SetOutcome, Target};
use crate::run::worker::{Shared, WorkerStats};

const MAPS: usize = 100;
/// A map with more entries than this is shrunk or removed.
const MOST_ENTRIES: usize = 10_000;
/// One in this many maps above the limit is removed instead of shrunk.
const REMOVED_ONE_IN: u32 = 5;
/// Approximate number of entries that are erased when a map shrinks.
const ERASED: usize = 100;
const VALUE_BYTES: std::ops::Range<u32> = 1000..2000;
const BATCH: std::ops::Range<u32> = 1000..2000;
/// Maximum size of a chained item.
const PIECE_BYTES: usize = 48 << 10;
/// A parent's value consists of this number and the map's generation.
const MAGIC: u64 = 0x7061_6d66_6c77_6872;
const PARENT_BYTES: usize = 16;
/// Size of an entry's header: key, version, and length of the value.
const ENTRY_BYTES: usize = 16;
/// Length field of an erased entry.
const ERASED_LEN: u32 = u32::MAX;

pub(super) struct Maps {
    seed: u64,
    /// Whether entries are read through an ordered index, by ranges of keys.
    is_ordered: bool,
    maps: Box<[RwLock<Expected>]>,
    most_entries: AtomicU64,
    compactions: AtomicU64,
}

/// Expected contents of a map, if it is in the cache.
#[derive(Default)]
struct Expected {
    generation: u64,
    pieces: usize,
    /// Version and length of the value of each key.
    entries: BTreeMap<u32, (u64, u32)>,
    next_version: u64,
}

/// An entry to be written: key, version, and length of the value; `None` erases the key.
type Change = (u32, u64, Option<u32>);

/// An entry that was read: its key, with version and value, or `None` if it was erased.
type Entry<'a> = (u32, Option<(u64, &'a [u8])>);

/// The state of one worker.
struct Worker<'a, T> {
    maps: &'a Maps,
    shared: &'a Shared<T>,
    stats: &'a WorkerStats,
    failures: &'a Failures,
    random: Xoshiro256PlusPlus,
}

impl Maps {
    pub(super) fn new(seed: u64, is_ordered: bool) -> Self {
        let maps = std::iter::repeat_with(RwLock::default).take(MAPS).collect();
        Self { seed, is_ordered, maps, most_entries: AtomicU64::new(0), compactions: AtomicU64::new(0) }
    }

    pub(super) async fn work<T: Target>(
        &self,
        shared: &Shared<T>,
        stats: &WorkerStats,
        number: usize,
        failures: &Failures,
    ) {
        let random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ (number as u64).rotate_left(32));
        let mut worker = Worker { maps: self, shared, stats, failures, random };
        for _ in 0..shared.settings.ops_per_thread {
            if shared.stop.is_set() {
                return;
            }
            worker.step().await;
            stats.counting.ops.one();
        }
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("most_entries", "Entries of a map, at most", read(&self.most_entries)),
            ("compactions", "Compactions", read(&self.compactions)),
        ]
    }
}

impl<T: Target> Worker<'_, T> {
    /// One operation of CacheBench on a random map: read it, then grow, shrink, remove or create it.
    async fn step(&mut self) {
        let number = self.random.random_range(0..MAPS);
        let key = format!("map_key_{number}").into_bytes();
        let maps = self.maps;
        let found = {
            let expected = maps.maps[number].read().await;
            self.read(number, &key, &expected).await
        };
        let mut expected = maps.maps[number].write().await;
        match found {
            None => self.create(number, &key, &mut expected).await,
            Some(entries) if entries > MOST_ENTRIES && self.random.random_range(0..REMOVED_ONE_IN) == 0 => {
                self.stats.counting.deletes.one();
                if !self.shared.target.delete(&key) {
                    self.stats.counting.delete_misses.one();
                }
                *expected = Expected { next_version: expected.next_version, ..Expected::default() };
            }
            Some(entries) if entries > MOST_ENTRIES => self.shrink(number, &key, &mut expected).await,
            Some(_) => self.grow(number, &key, &mut expected).await,
        }
    }

    /// Reads and checks a map. Returns its number of entries, or `None` if it is absent.
    async fn read(&mut self, number: usize, key: &[u8], expected: &Expected) -> Option<usize> {
        self.stats.counting.gets.one();
        let Some(item) = self.shared.target.get(key).await else {
            self.stats.counting.get_misses.one();
            return None;
        };
        match item.layer() {
            Layer::Dram => self.stats.counting.get_hits_dram.one(),
            Layer::Flash => self.stats.counting.get_hits_flash.one(),
        }
        let range = if self.maps.is_ordered { self.draw_range(expected) } else { None };
        if let Err(message) = self.check(number, &item, expected, range) {
            self.failures.add(|| format!("map {number}: {message}"));
        }
        let entries = expected.entries.len();
        self.maps.most_entries.fetch_max(entries as u64, Ordering::Relaxed);
        Some(entries)
    }

    fn draw_range(&mut self, expected: &Expected) -> Option<std::ops::RangeInclusive<u32>> {
        let entries = u32::try_from(expected.entries.len()).ok().filter(|entries| *entries > 0)?;
        let first = self.random.random_range(0..entries.div_ceil(100));
        Some(first..=first + self.random.random_range(0..entries - first))
    }

    fn check(
        &self,
        number: usize,
        item: &T::Item<'_>,
        expected: &Expected,
        range: Option<std::ops::RangeInclusive<u32>>,
    ) -> Result<(), String> {
        let parent = [MAGIC, expected.generation];
        let found = [0, 8].map(|at| item.get(at..at + 8).map_or(0, word));
        if found != parent || item.len() != PARENT_BYTES {
            return Err(format!("the parent holds {found:x?}, expected {parent:x?}"));
        }
        let mut pieces = Vec::new();
        // Chained items are returned newest first, and entries apply in the order of writing.
        item.each_link(&mut |piece| pieces.push(piece.to_vec()));
        if pieces.len() != expected.pieces {
            return Err(format!("{} of {} chained items were found", pieces.len(), expected.pieces));
        }
        pieces.reverse();
        let entries = pieces.iter().map(|piece| entries_of(piece)).collect::<Result<Vec<_>, _>>()?;
        let mut values = HashMap::new();
        for (key, entry) in entries.into_iter().flatten() {
            match entry {
                Some(entry) => _ = values.insert(key, entry),
                None => _ = values.remove(&key),
            }
        }
        if values.len() != expected.entries.len() {
            return Err(format!("{} entries were found, expected {}", values.len(), expected.entries.len()));
        }
        match range {
            None => expected.entries.iter().try_for_each(|(key, entry)| {
                self.check_value(number, *key, values.get(key).copied(), *entry)
            }),
            Some(range) => {
                let ordered: BTreeMap<u32, (u64, &[u8])> = values.into_iter().collect();
                expected.entries.iter().try_for_each(|(key, entry)| {
                    self.check_value(number, *key, ordered.get(key).copied(), *entry)
                })?;
                let keys = |found: usize, of: usize| {
                    format!("{found} entries were found in {range:?}, expected {of}")
                };
                let (found, of) =
                    (ordered.range(range.clone()).count(), expected.entries.range(range.clone()).count());
                if found == of { Ok(()) } else { Err(keys(found, of)) }
            }
        }
    }

    fn check_value(
        &self,
        number: usize,
        key: u32,
        found: Option<(u64, &[u8])>,
        (version, len): (u64, u32),
    ) -> Result<(), String> {
        let Some((found, value)) = found else { return Err(format!("key {key} has disappeared")) };
        let is_whole = self.shared.payload.verify(value, value_id(number, key)).is_ok();
        if found == version && value.len() == len as usize && is_whole {
            return Ok(());
        }
        let whole = if is_whole { "" } else { ", damaged" };
        Err(format!("key {key} has version {found} of {} bytes{whole}, not {version} of {len}", value.len()))
    }

    async fn create(&mut self, number: usize, key: &[u8], expected: &mut Expected) {
        if self.begin(key, expected).await {
            self.grow(number, key, expected).await;
        }
    }

    /// Replaces the map by an empty one; `false` if memory is lacking.
    async fn begin(&mut self, key: &[u8], expected: &mut Expected) -> bool {
        let generation = expected.generation + 1;
        let how = SetHow { pool: 0, ttl_seconds: None, only_if_absent: false };
        let fill = |value: &mut [u8]| {
            value[..8].copy_from_slice(&MAGIC.to_le_bytes());
            value[8..].copy_from_slice(&generation.to_le_bytes());
        };
        self.stats.counting.sets.one();
        if self.shared.target.set(key, PARENT_BYTES, how, fill).await != SetOutcome::Stored {
            self.stats.counting.set_failures.one();
            return false;
        }
        *expected = Expected { generation, next_version: expected.next_version, ..Expected::default() };
        true
    }

    /// Appends a batch of new entries.
    async fn grow(&mut self, number: usize, key: &[u8], expected: &mut Expected) {
        let first = expected.entries.len() as u32;
        let count = self.random.random_range(BATCH);
        let mut changes = Vec::with_capacity(count as usize);
        for entry in first..first + count {
            expected.next_version += 1;
            changes.push((entry, expected.next_version, Some(self.random.random_range(VALUE_BYTES))));
        }
        self.write(number, key, expected, &changes).await;
    }

    /// Erases about a hundred entries, then compacts the map.
    async fn shrink(&mut self, number: usize, key: &[u8], expected: &mut Expected) {
        let one_in = (expected.entries.len() / ERASED).max(1);
        let keys: Vec<u32> = expected.entries.keys().copied().collect();
        let erased = keys.into_iter().filter(|_| self.random.random_range(0..one_in) == 0);
        let changes: Vec<Change> = erased.map(|key| (key, 0, None)).collect();
        self.write(number, key, expected, &changes).await;
        let rest: Vec<Change> =
            expected.entries.iter().map(|(key, (version, len))| (*key, *version, Some(*len))).collect();
        if self.begin(key, expected).await {
            self.maps.compactions.fetch_add(1, Ordering::Relaxed);
            self.write(number, key, expected, &rest).await;
        }
    }

    /// Appends chained items with entries, until memory is lacking or the map is absent.
    async fn write(&mut self, number: usize, key: &[u8], expected: &mut Expected, changes: &[Change]) {
        let payload = &self.shared.payload;
        for piece in pieces(changes) {
            self.stats.counting.add_chained.one();
            let bytes = piece.iter().map(|(_, _, len)| ENTRY_BYTES + len.unwrap_or(0) as usize).sum();
            let fill = |bytes: &mut [u8]| write_piece(bytes, piece, number, payload);
            if !self.shared.target.chain(key, bytes, fill).await {
                self.stats.counting.add_chained_failures.one();
                return;
            }
            expected.pieces += 1;
            for (key, version, len) in piece {
                match len {
                    Some(len) => _ = expected.entries.insert(*key, (*version, *len)),
                    None => _ = expected.entries.remove(key),
                }
            }
        }
    }
}

/// Divides changes into chained items.
fn pieces(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    let mut rest = changes;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(_, _, len): &&Change| {
            bytes += ENTRY_BYTES + len.unwrap_or(0) as usize;
            bytes <= PIECE_BYTES
        };
        let (piece, others) = rest.split_at(rest.iter().take_while(fits).count());
        rest = others;
        (!piece.is_empty()).then_some(piece)
    })
}

fn write_piece(mut bytes: &mut [u8], changes: &[Change], number: usize, payload: &Payload) {
    for (key, version, len) in changes {
        let (header, rest) = bytes.split_at_mut(ENTRY_BYTES);
        header[..4].copy_from_slice(&key.to_le_bytes());
        header[4..12].copy_from_slice(&version.to_le_bytes());
        header[12..].copy_from_slice(&len.unwrap_or(ERASED_LEN).to_le_bytes());
        let (value, rest) = rest.split_at_mut(len.unwrap_or(0) as usize);
        if len.is_some() {
            payload.fill(value, value_id(number, *key), *version);
        }
        bytes = rest;
    }
}

/// The entries of a chained item: each key with version and value, or `None` if it was erased.
fn entries_of(mut piece: &[u8]) -> Result<Vec<Entry<'_>>, String> {
    let mut entries = Vec::new();
    while !piece.is_empty() {
        let cut_short = || format!("a chained item ends with {} bytes that are not an entry", piece.len());
        let (header, rest) = piece.split_at_checked(ENTRY_BYTES).ok_or_else(cut_short)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let len = number(12);
        if len == ERASED_LEN {
            entries.push((number(0), None));
            piece = rest;
            continue;
        }
        let (value, rest) = rest.split_at_checked(len as usize).ok_or_else(cut_short)?;
        entries.push((number(0), Some((word(&header[4..12]), value))));
        piece = rest;
    }
    Ok(entries)
}

/// The identity of an entry's value in its payload.
fn value_id(number: usize, key: u32) -> u64 {
    (number as u64) << 32 | u64::from(key)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}
