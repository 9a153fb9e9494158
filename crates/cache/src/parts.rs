//! Values of any length, stored and read in parts.
//!
//! Each part is an item of its own. Its key consists of the value's key, a number that is unique to the value, and the number of the
//! part. The last item stored is the head, under the key itself: until then, a reader finds the previous value. Parts are evicted
//! independently, so a reader may find the head but miss a part.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Inserted, Refusal};
use crate::new_item::InsertOptions;
use crate::{Cache, Item, KeyHash};

/// Upper limit of a part's size: large enough that a part costs one transfer, small enough for the size classes of any cache.
const MOST_PART_BYTES: usize = 256 << 10;
/// Bytes of a part's key after the value's key.
const PART_KEY_BYTES: usize = 16;
/// Upper limit of the space for header, length fields and checksums beside key and value, in DRAM and on flash.
const OVERHEAD_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"FWparts\x01";
const HEAD_BYTES: usize = 32;

/// Distinguishes values that a process starts to store within one tick of the clock.
static VALUES: AtomicU64 = AtomicU64::new(0);

/// A value being stored in parts: see [`Cache::insert_parts`]. If it is dropped before it is finished, the cache is unchanged.
pub struct PartsWriter<'a> {
    cache: &'a Cache,
    key: Vec<u8>,
    options: InsertOptions,
    head: Head,
    part: Vec<u8>,
    finished: bool,
}

/// A value being read in parts: see [`Cache::get_parts`].
pub struct PartsReader<'a> {
    cache: &'a Cache,
    key: Vec<u8>,
    head: Head,
    next: u32,
}

/// A part was evicted, or its value replaced or removed: the rest of the value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("part {part} of {parts} of the value is no longer in the cache")]
pub struct PartMissing {
    /// The number of the missing part, from 0.
    pub part: u32,
    /// The number of parts of the value.
    pub parts: u32,
}

/// The item under the key of a value in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    value: u64,
    bytes: u64,
    part_bytes: u32,
    parts: u32,
}

impl Cache {
    /// Stores a value of any length under `key`; it may be larger than DRAM if flash has space for it. The value becomes visible to
    /// [`get_parts`](Self::get_parts) when the writer is [finished](PartsWriter::finish), and replaces the value of the key.
    ///
    /// Parts are evicted independently, so this is useful only for values that are small relative to the cache. A plain
    /// [`get`](Self::get) of the key finds an item of a few bytes that describes the parts. A plain [`remove`](Self::remove) makes the
    /// value unreachable, and its parts are evicted later; [`remove_parts`](Self::remove_parts) removes them as well.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::device::MemoryDevice;
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let flash = Arc::new(MemoryDevice::new(64 << 20));
    /// # let cache = Cache::builder().dram_bytes(4 << 20).flash(flash).open()?;
    /// # flashwright_cache::block_on(async {
    /// let mut writer = cache.insert_parts(b"video", InsertOptions::default());
    /// for _ in 0..20 {
    ///     writer.write(&[7; 1 << 20]).await?;
    /// }
    /// writer.finish().await?;
    ///
    /// let mut reader = cache.get_parts(b"video").await.expect("it was just stored");
    /// assert_eq!(reader.len(), 20 << 20);
    /// while let Some(part) = reader.next().await? {
    ///     assert!(part.iter().all(|&byte| byte == 7));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_parts(&self, key: &[u8], options: impl Into<InsertOptions>) -> PartsWriter<'_> {
        let now_ns = self.engine.clock.monotonic_ns() ^ u64::from(self.engine.clock.unix_seconds()) << 32;
        let number = VALUES.fetch_add(1, Ordering::Relaxed);
        let value = KeyHash(now_ns ^ number.rotate_left(48)).remix();
        let part_bytes = self.part_bytes(key.len());
        let head = Head { value, bytes: 0, part_bytes: part_bytes as u32, parts: 0 };
        let part = Vec::with_capacity(part_bytes);
        PartsWriter { cache: self, key: key.to_vec(), options: options.into(), head, part, finished: false }
    }

    /// Returns a reader of the value that [`insert_parts`](Self::insert_parts) stored under `key`, if there is one.
    pub async fn get_parts(&self, key: &[u8]) -> Option<PartsReader<'_>> {
        let head = self.parts_head(key).await?;
        Some(PartsReader { cache: self, key: key.to_vec(), head, next: 0 })
    }

    /// Removes `key` and the parts of its value; returns whether there may have been any.
    pub async fn remove_parts(&self, key: &[u8]) -> bool {
        let head = self.parts_head(key).await;
        let removed = self.remove(key);
        if let Some(head) = head {
            head.remove_parts(self, key);
        }
        removed
    }

    async fn parts_head(&self, key: &[u8]) -> Option<Head> {
        Head::decode(&self.get(key).await?)
    }

    /// The size of a part that DRAM, and flash if there is any, can hold.
    fn part_bytes(&self, key_bytes: usize) -> usize {
        let flash = self.engine.flash.as_ref().map(|flash| flash.stats().max_item_bytes as usize);
        let most = self.max_item_bytes().min(flash.filter(|&bytes| bytes > 0).unwrap_or(usize::MAX));
        most.saturating_sub(key_bytes + PART_KEY_BYTES + OVERHEAD_BYTES).clamp(1, MOST_PART_BYTES)
    }
}

impl PartsWriter<'_> {
    /// Appends bytes to the value. Waits while flash writes are behind.
    ///
    /// # Errors
    /// The reason for which the cache refused a part. Dropping the writer removes the parts written so far.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let room = self.head.part_bytes as usize - self.part.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == self.head.part_bytes as usize {
                self.store_part().await?;
            }
        }
        Ok(())
    }

    /// Makes the value visible in place of the key's previous one, and removes the previous parts.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn finish(mut self) -> Result<(), Refusal> {
        if !self.part.is_empty() {
            self.store_part().await?;
        }
        let before = self.cache.parts_head(&self.key).await;
        stored(self.cache.insert(&self.key, &self.head.encode(), self.options).await)?;
        self.finished = true;
        if let Some(before) = before {
            before.remove_parts(self.cache, &self.key);
        }
        Ok(())
    }

    async fn store_part(&mut self) -> Result<(), Refusal> {
        let key = self.head.part_key(&self.key, self.head.parts);
        // Counted first, so that a part whose insert is cancelled is removed as well.
        self.head.parts = self.head.parts.checked_add(1).ok_or(Refusal::AllPinned)?;
        stored(self.cache.insert(&key, &self.part, self.options).await)?;
        self.head.bytes += self.part.len() as u64;
        self.part.clear();
        Ok(())
    }
}

impl Drop for PartsWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.head.remove_parts(self.cache, &self.key);
        }
    }
}

impl<'a> PartsReader<'a> {
    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.head.bytes
    }

    /// Whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.bytes == 0
    }

    /// The next part; `None` after the last. Parts follow each other without gaps.
    ///
    /// # Errors
    /// [`PartMissing`] if it is no longer in the cache.
    pub async fn next(&mut self) -> Result<Option<Item<'a>>, PartMissing> {
        let (part, parts) = (self.next, self.head.parts);
        if part == parts {
            return Ok(None);
        }
        let key = self.head.part_key(&self.key, part);
        let item = self.cache.get(&key).await.filter(|item| item.len() == self.head.len_of(part));
        self.next += u32::from(item.is_some());
        item.map(Some).ok_or(PartMissing { part, parts })
    }
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut encoded = [0; HEAD_BYTES];
        encoded[..8].copy_from_slice(&MAGIC);
        encoded[8..16].copy_from_slice(&self.value.to_le_bytes());
        encoded[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        encoded[24..28].copy_from_slice(&self.part_bytes.to_le_bytes());
        encoded[28..].copy_from_slice(&self.parts.to_le_bytes());
        encoded
    }

    /// `None` if the item is not a head: the key may hold any other value.
    fn decode(item: &[u8]) -> Option<Self> {
        let encoded: &[u8; HEAD_BYTES] = item.try_into().ok()?;
        let long = |at: usize| encoded[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let short = |at: usize| encoded[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let head = Self { value: long(8)?, bytes: long(16)?, part_bytes: short(24)?, parts: short(28)? };
        let is_whole =
            head.part_bytes > 0 && head.bytes.div_ceil(head.part_bytes.into()) == head.parts.into();
        (encoded[..8] == MAGIC && is_whole).then_some(head)
    }

    fn part_key(&self, key: &[u8], part: u32) -> Vec<u8> {
        [key, b"\0/p\0", &self.value.to_le_bytes(), &part.to_le_bytes()].concat()
    }

    fn len_of(&self, part: u32) -> usize {
        let start = u64::from(part) * u64::from(self.part_bytes);
        (self.bytes - start).min(self.part_bytes.into()) as usize
    }

    fn remove_parts(&self, cache: &Cache, key: &[u8]) {
        for part in 0..self.parts {
            cache.remove(&self.part_key(key, part));
        }
    }
}

fn stored(inserted: Inserted) -> Result<(), Refusal> {
    match inserted {
        Inserted::Stored => Ok(()),
        Inserted::Rejected(refusal) => Err(refusal),
    }
}
