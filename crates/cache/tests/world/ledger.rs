//! The reference model: for each key, the versions that a read may find.
//!
//! Each key has one writer, whose versions only grow. An acknowledged write, and a version that was read, set a lower
//! bound for every read that begins later: an older version is never found again. In the other direction, an unexpired
//! key without a write in progress must be found if the cache never has to evict.

/// Reference model of a cache.
pub struct Ledger {
    entries: Vec<Entry>,
}

#[derive(Clone, Default)]
struct Entry {
    /// The newest version whose write has begun. Removes have versions too.
    begun: u64,
    /// The newest version that was acknowledged or read.
    floor: u64,
    /// Whether a write is in progress.
    is_being_written: bool,
    /// Whether a clear happened since that write began.
    is_cleared: bool,
    content: Content,
    /// Second from which the newest version, if it has a TTL, must not be found.
    expired_from: Option<u32>,
    /// Versions whose inserts were dropped before completion.
    never_written: Vec<u64>,
}

/// State of a key after the last acknowledged write.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Nothing,
    /// The key has an item until this second at least.
    Put { until_seconds: u32 },
    /// The key may have an item or not.
    Unknown,
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Stored. With a TTL the item must be found before the first second, if nothing is evicted, and must not be found
    /// from the second one on.
    Stored { lifetime: Option<(u32, u32)> },
    /// Removed. A refused insert also removes the key.
    Gone,
    /// The insert was dropped while it waited: neither the new value nor the old one is found.
    Dropped,
}

/// A change of an item's TTL.
#[derive(Clone, Copy)]
pub struct LifetimeSet {
    pub began_seconds: u32,
    pub now_seconds: u32,
    pub ttl_seconds: u32,
    pub was_there: bool,
}

/// The state of a key when a read began.
#[derive(Clone, Copy)]
pub struct Reading {
    key: u64,
    floor: u64,
    begun: u64,
    content: Content,
    expired_from: Option<u32>,
    was_being_written: bool,
    began_seconds: u32,
}

impl Ledger {
    pub fn new(keys: u64) -> Self {
        Self { entries: vec![Entry::default(); keys as usize] }
    }

    /// Begins a write and returns its version, which reads may find from now on.
    pub fn begin_write(&mut self, key: u64) -> u64 {
        let entry = self.entry(key);
        assert!(!entry.is_being_written, "a key has one writer");
        (entry.is_being_written, entry.is_cleared) = (true, false);
        entry.begun += 1;
        entry.begun
    }

    /// The write of the newest version is acknowledged: reads that begin now may not find an older one.
    pub fn end_write(&mut self, key: u64, ended: Ended) {
        let entry = self.entry(key);
        entry.is_being_written = false;
        if ended == Ended::Dropped {
            entry.never_written.push(entry.begun);
        }
        entry.floor = entry.begun;
        (entry.content, entry.expired_from) = match ended {
            Ended::Stored { lifetime: None } => (Content::Put { until_seconds: u32::MAX }, None),
            Ended::Stored { lifetime: Some((until_seconds, from)) } => {
                (Content::Put { until_seconds }, Some(from))
            }
            Ended::Gone | Ended::Dropped => (Content::Nothing, None),
        };
    }

    /// All items are removed, and the sources of the keys have newer versions: a read that begins now may not find an
    /// older one. For a key that is being written, the newer version is the one being written.
    pub fn clear(&mut self) {
        for entry in &mut self.entries {
            if !entry.is_being_written {
                entry.begun += 1;
                let is_loaded = entry.content == Content::Unknown;
                entry.content = if is_loaded { Content::Unknown } else { Content::Nothing };
                entry.expired_from = None;
            }
            entry.floor = entry.begun;
            entry.is_cleared = true;
        }
    }

    /// The writer of the key begins to change the TTL of its newest version.
    pub fn begin_lifetime(&mut self, key: u64) {
        let entry = self.entry(key);
        assert!(!entry.is_being_written, "a key has one writer");
        (entry.is_being_written, entry.is_cleared) = (true, false);
    }

    /// The TTL has been changed, or the key had no item. Returns whether it must have had one.
    ///
    /// # Panics
    /// If the key must not have had an item.
    pub fn end_lifetime(&mut self, key: u64, set: LifetimeSet, label: &str) -> bool {
        let LifetimeSet { began_seconds, now_seconds, ttl_seconds, was_there } = set;
        let entry = self.entry(key);
        entry.is_being_written = false;
        let had_to_be = !entry.is_cleared
            && matches!(entry.content, Content::Put { until_seconds } if now_seconds < until_seconds);
        if was_there && !entry.is_cleared {
            assert!(entry.content != Content::Nothing, "{label}: key {key} was removed but is found");
            let is_over = entry.expired_from.is_some_and(|from| from <= began_seconds);
            assert!(!is_over, "{label}: key {key} is found at second {began_seconds}, after its time");
            entry.content = Content::Put { until_seconds: began_seconds + ttl_seconds };
            entry.expired_from = Some(now_seconds + ttl_seconds);
        } else {
            (entry.content, entry.expired_from) = (Content::Unknown, None);
        }
        had_to_be
    }

    /// The newest version, which the source of the key returns.
    pub fn newest(&self, key: u64) -> u64 {
        self.entries[key as usize].begun
    }

    /// The key may be present or absent, because another reader may have loaded it.
    pub fn may_have_been_loaded(&mut self, key: u64) {
        self.entry(key).content = Content::Unknown;
    }

    pub fn begin_read(&self, key: u64, now_seconds: u32) -> Reading {
        let entry = &self.entries[key as usize];
        Reading {
            key,
            floor: entry.floor,
            begun: entry.begun,
            content: entry.content,
            expired_from: entry.expired_from,
            was_being_written: entry.is_being_written,
            began_seconds: now_seconds,
        }
    }

    /// A read returned `version`; `None` is a miss.
    ///
    /// # Panics
    /// If the read must not return this version.
    pub fn end_read(&mut self, reading: Reading, version: Option<u64>, label: &str) {
        let Some(version) = version else { return };
        let key = reading.key;
        let Reading { floor, began_seconds, .. } = reading;
        assert!(version >= floor, "{label}: key {key} has version {version} after {floor} was acknowledged");
        let entry = self.entry(key);
        let was_written = version <= entry.begun && !entry.never_written.contains(&version);
        assert!(was_written, "{label}: key {key} has version {version}, which was never written");
        if version == reading.begun && !reading.was_being_written && reading.content != Content::Unknown {
            let was_put = reading.content != Content::Nothing;
            assert!(was_put, "{label}: key {key} is found though version {version} removed it");
            let expired = reading.expired_from.is_some_and(|from| from <= began_seconds);
            assert!(!expired, "{label}: key {key} is found at second {began_seconds} after its time");
        }
        entry.floor = entry.floor.max(version);
    }

    /// Whether a read that ends now must find the key, provided that nothing is evicted.
    pub fn must_be_found(&self, reading: Reading, now_seconds: u32) -> bool {
        let entry = &self.entries[reading.key as usize];
        let undisturbed = !reading.was_being_written && entry.begun == reading.begun;
        let in_time =
            matches!(reading.content, Content::Put { until_seconds } if now_seconds < until_seconds);
        undisturbed && in_time
    }

    fn entry(&mut self, key: u64) -> &mut Entry {
        &mut self.entries[key as usize]
    }
}
