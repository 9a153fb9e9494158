//! The plain twin: for each key, which versions may be found.
//!
//! Each key has one writer, whose versions only grow. An acknowledged write, and a version that was read, set a lower bound for every read
//! that begins later: an older version is never found again. In the other direction, an unexpired key without a write in progress must be
//! found if the cache never has to evict.

/// The twin of a cache.
pub struct Ledger {
    entries: Vec<Entry>,
}

#[derive(Clone, Default)]
struct Entry {
    /// The newest version whose write has begun. Removes have versions too.
    begun: u64,
    /// The newest version acknowledged or seen.
    floor: u64,
    /// Whether a write is under way.
    is_being_written: bool,
    /// Whether everything was dropped since that began.
    is_cleared: bool,
    content: Content,
    /// Second from which on the newest version, if it was put with a time to live, must not be found.
    expired_from: Option<u32>,
    /// Versions whose writers gave up before they were taken.
    never_written: Vec<u64>,
}

/// What the last acknowledged write left.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Nothing,
    /// A version, until this second at least.
    Put { until_seconds: u32 },
    /// Nobody can tell.
    Unknown,
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Stored. With a time to live it may be found before the first second, and must not be found from the second on.
    Stored { lifetime: Option<(u32, u32)> },
    /// Removed, or refused, which leaves nothing either.
    Gone,
    /// Dropped while it waited: neither the new value nor the old one is left.
    Dropped,
}

/// How an item was given another time to live.
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

    /// The key's next version, which may be found from now on.
    pub fn begin_write(&mut self, key: u64) -> u64 {
        let entry = self.entry(key);
        assert!(!entry.is_being_written, "a key has one writer");
        (entry.is_being_written, entry.is_cleared) = (true, false);
        entry.begun += 1;
        entry.begun
    }

    /// The write of the newest version is acknowledged: nothing older may be found by reads that begin now.
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

    /// Everything is dropped, and the keys' sources have newer versions: no read that begins now may find an older one. Of a
    /// key that is being written that is the version begun.
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

    /// The key's newest version is about to be given another time to live, by its writer.
    pub fn begin_lifetime(&mut self, key: u64) {
        let entry = self.entry(key);
        assert!(!entry.is_being_written, "a key has one writer");
        (entry.is_being_written, entry.is_cleared) = (true, false);
    }

    /// It has been, or was not there. Says whether it had to be.
    ///
    /// # Panics
    /// If it must not have been.
    pub fn end_lifetime(&mut self, key: u64, set: LifetimeSet, label: &str) -> bool {
        let LifetimeSet { began_seconds, now_seconds, ttl_seconds, was_there } = set;
        let entry = self.entry(key);
        entry.is_being_written = false;
        let had_to_be = !entry.is_cleared
            && matches!(entry.content, Content::Put { until_seconds } if now_seconds < until_seconds);
        if was_there && !entry.is_cleared {
            assert!(entry.content != Content::Nothing, "{label}: key {key} was removed and lives on");
            let is_over = entry.expired_from.is_some_and(|from| from <= began_seconds);
            assert!(!is_over, "{label}: key {key} lives on at second {began_seconds}, after its time");
            entry.content = Content::Put { until_seconds: began_seconds + ttl_seconds };
            entry.expired_from = Some(now_seconds + ttl_seconds);
        } else {
            (entry.content, entry.expired_from) = (Content::Unknown, None);
        }
        had_to_be
    }

    /// What the key's source would answer now: the newest version.
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

    /// A read found `version`; `None` is nothing.
    ///
    /// # Panics
    /// If it must not have.
    pub fn end_read(&mut self, reading: Reading, version: Option<u64>, label: &str) {
        let Some(version) = version else { return };
        let key = reading.key;
        let Reading { floor, began_seconds, .. } = reading;
        assert!(version >= floor, "{label}: key {key} has version {version} after {floor} was acknowledged");
        let entry = self.entry(key);
        let was_written = version <= entry.begun && !entry.never_written.contains(&version);
        assert!(was_written, "{label}: key {key} has version {version}, which nobody wrote");
        if version == reading.begun && !reading.was_being_written && reading.content != Content::Unknown {
            let was_put = reading.content != Content::Nothing;
            assert!(was_put, "{label}: key {key} is found though version {version} removed it");
            let expired = reading.expired_from.is_some_and(|from| from <= began_seconds);
            assert!(!expired, "{label}: key {key} is found at second {began_seconds} after its time");
        }
        entry.floor = entry.floor.max(version);
    }

    /// Whether a read that ends now had to find the key, if nothing ever has to make room.
    pub fn had_to_be_found(&self, reading: Reading, now_seconds: u32) -> bool {
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
