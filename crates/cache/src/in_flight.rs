//! Work under way for a key: one flash read for many callers, and no late promotion.
//!
//! A flash read takes a thousand times as long as a DRAM access, so the key may be replaced or removed while it
//! runs. Whoever replaces or removes a key *overtakes* the fetch in flight, and an overtaken fetch does not enter
//! DRAM. Both sides decide under the key's lock, so there is no moment in between. Whoever clears the cache overtakes
//! every fetch that is under way or begins before he has done.
//!
//! What a fetch brought can be left for those who waited for it. Of an overtaken one they get nothing: some of them may have come
//! after whoever overtook it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use event_listener::Event;
use parking_lot::Mutex;

use crate::KeyHash;

const SHARD_BITS: u32 = 6;

/// The fetches under way. All methods are called under the lock of the key they name.
pub struct InFlight {
    shards: Box<[Shard]>,
    /// Those who are [overtaking all](Self::overtake_all).
    clearing: AtomicUsize,
}

/// Padded to two cache lines: writers read `count` on every insert.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    count: AtomicUsize,
    fetches: Mutex<Vec<Arc<Fetch>>>,
}

/// One fetch under way.
pub struct Fetch {
    hash: KeyHash,
    overtaken: AtomicBool,
    finished: AtomicBool,
    done: Event,
    left: OnceLock<Left>,
}

/// What a fetch brought, and of which key: another may have the same hash.
struct Left {
    key: Box<[u8]>,
    brought: Brought,
}

/// A value, or an error of whatever type.
type Brought = Result<Arc<Vec<u8>>, Arc<dyn Any + Send + Sync>>;

/// What a caller who wants a key fetched is to do.
pub enum Joined<'a> {
    /// Nobody fetches it yet: fetch it, then drop the turn.
    Lead(Turn<'a>),
    /// Somebody does: wait, then look again.
    Follow(Arc<Fetch>),
}

/// While it lives, every fetch is overtaken from its beginning.
pub struct Clearing<'a>(&'a InFlight);

/// The right and duty to fetch a key. Ends when dropped, however the fetch went.
pub struct Turn<'a> {
    shard: &'a Shard,
    fetch: Arc<Fetch>,
}

impl InFlight {
    /// None under way.
    #[must_use]
    pub fn new() -> Self {
        let shards = std::iter::repeat_with(Shard::default).take(1 << SHARD_BITS).collect();
        Self { shards, clearing: AtomicUsize::new(0) }
    }

    /// The fetch of the key that is under way and will end in DRAM, if there is one: not if it was overtaken.
    pub fn under_way(&self, hash: KeyHash) -> Option<Arc<Fetch>> {
        let shard = self.shard(hash);
        if shard.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let fetches = shard.fetches.lock();
        let counts = |fetch: &&Arc<Fetch>| fetch.hash == hash && !fetch.overtaken.load(Ordering::Acquire);
        fetches.iter().find(counts).cloned()
    }

    /// Asks to fetch the key.
    pub fn join(&self, hash: KeyHash) -> Joined<'_> {
        let shard = self.shard(hash);
        let mut fetches = shard.fetches.lock();
        if let Some(fetch) = fetches.iter().find(|fetch| fetch.hash == hash) {
            return Joined::Follow(Arc::clone(fetch));
        }
        let fetch = Arc::new(Fetch {
            hash,
            overtaken: AtomicBool::new(self.clearing.load(Ordering::Acquire) > 0),
            finished: AtomicBool::new(false),
            done: Event::new(),
            left: OnceLock::new(),
        });
        fetches.push(Arc::clone(&fetch));
        shard.count.fetch_add(1, Ordering::Release);
        Joined::Lead(Turn { shard, fetch })
    }

    /// The key has a new value, or none: what is being fetched is old.
    pub fn overtake(&self, hash: KeyHash) {
        let shard = self.shard(hash);
        // The key's lock orders this load after the `join` of any fetch of this key.
        if shard.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for fetch in shard.fetches.lock().iter().filter(|fetch| fetch.hash == hash) {
            fetch.overtaken.store(true, Ordering::Release);
        }
    }

    /// No key has a value any more: what is being fetched is old, and so is whatever is fetched before the answer is
    /// dropped. Called without any key's lock.
    pub fn overtake_all(&self) -> Clearing<'_> {
        self.clearing.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            // Who joins under this lock later sees the count.
            for fetch in shard.fetches.lock().iter() {
                fetch.overtaken.store(true, Ordering::Release);
            }
        }
        Clearing(self)
    }

    fn shard(&self, hash: KeyHash) -> &Shard {
        &self.shards[hash.shard(SHARD_BITS)]
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        self.0.clearing.fetch_sub(1, Ordering::Release);
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn<'_> {
    /// Whether the key was replaced or removed since the turn began.
    #[must_use]
    pub fn overtaken(&self) -> bool {
        self.fetch.overtaken.load(Ordering::Acquire)
    }

    /// Whether what was fetched is to become visible: not if it was overtaken. From then on nobody joins the fetch or overtakes it,
    /// as the insert that follows would, under the same lock of the key.
    #[must_use]
    pub fn conclude(&self) -> bool {
        let mut fetches = self.shard.fetches.lock();
        if self.overtaken() {
            return false;
        }
        fetches.retain(|fetch| !Arc::ptr_eq(fetch, &self.fetch));
        true
    }

    /// Leaves what was fetched to those who wait for the end of the turn.
    pub fn leave<E: Send + Sync + 'static>(&self, key: &[u8], brought: Result<Arc<Vec<u8>>, Arc<E>>) {
        let brought = brought.map_err(|error| error as Arc<dyn Any + Send + Sync>);
        let first = self.fetch.left.set(Left { key: key.into(), brought }).is_ok();
        debug_assert!(first, "a turn is one fetch");
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shard.fetches.lock().retain(|fetch| !Arc::ptr_eq(fetch, &self.fetch));
        self.shard.count.fetch_sub(1, Ordering::Release);
        self.fetch.finished.store(true, Ordering::Release);
        self.fetch.done.notify(usize::MAX);
    }
}

impl Fetch {
    /// Waits, as a task, until the fetch has ended.
    pub async fn ended(&self) {
        while !self.finished.load(Ordering::Acquire) {
            let listener = self.done.listen();
            if !self.finished.load(Ordering::Acquire) {
                listener.await;
            }
        }
    }

    /// What a fetch of `key` that has ended left to those who joined it. Nothing if it was given up or overtaken, or if its
    /// error is none of type `E`.
    #[must_use]
    pub fn left<E: Send + Sync + 'static>(&self, key: &[u8]) -> Option<Result<Arc<Vec<u8>>, Arc<E>>> {
        let left = self.left.get().filter(|left| *left.key == *key)?;
        // Who joined after it was overtaken did so under the key's lock, or after the clear: this sees it.
        if self.overtaken.load(Ordering::Acquire) {
            return None;
        }
        match &left.brought {
            Ok(value) => Some(Ok(Arc::clone(value))),
            Err(error) => Arc::clone(error).downcast().ok().map(Err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash(7);

    fn lead(in_flight: &InFlight) -> Turn<'_> {
        match in_flight.join(KEY) {
            Joined::Lead(turn) => turn,
            Joined::Follow(_) => panic!("nobody else fetches the key"),
        }
    }

    #[test]
    fn the_second_caller_follows_and_is_told_when_the_first_is_done() {
        let in_flight = InFlight::new();
        let turn = lead(&in_flight);
        let Joined::Follow(fetch) = in_flight.join(KEY) else { panic!("the key is being fetched") };
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| pollster::block_on(fetch.ended()));
            drop(turn);
            follower.join().unwrap();
        });
        drop(lead(&in_flight));
    }

    #[test]
    fn a_fetch_is_overtaken_by_its_own_key_only() {
        let in_flight = InFlight::new();
        let turn = lead(&in_flight);
        in_flight.overtake(KeyHash(KEY.0 + 1));
        assert!(!turn.overtaken());
        in_flight.overtake(KEY);
        assert!(turn.overtaken());
    }

    #[test]
    fn an_overtaken_fetch_brings_nothing_to_wait_for() {
        let in_flight = InFlight::new();
        assert!(in_flight.under_way(KEY).is_none());
        let turn = lead(&in_flight);
        assert!(in_flight.under_way(KEY).is_some() && in_flight.under_way(KeyHash(8)).is_none());
        in_flight.overtake(KEY);
        assert!(in_flight.under_way(KEY).is_none());
        drop(turn);
    }

    #[test]
    fn whoever_overtakes_all_overtakes_those_who_come_before_he_has_done() {
        let in_flight = InFlight::new();
        let before = lead(&in_flight);
        let clearing = in_flight.overtake_all();
        let Joined::Lead(meanwhile) = in_flight.join(KeyHash(8)) else { panic!("nobody fetches it") };
        assert!(before.overtaken() && meanwhile.overtaken());
        drop((before, clearing));
        assert!(meanwhile.overtaken() && !lead(&in_flight).overtaken());
    }

    #[test]
    fn what_a_fetch_left_is_for_its_key_its_type_of_error_and_those_before_it_was_overtaken() {
        let in_flight = InFlight::new();
        let turn = lead(&in_flight);
        let Joined::Follow(fetch) = in_flight.join(KEY) else { panic!("the key is being fetched") };
        assert!(fetch.left::<String>(b"key").is_none());
        turn.leave(b"key", Err(Arc::new("down".to_owned())));
        assert_eq!(**fetch.left::<String>(b"key").unwrap().as_ref().unwrap_err(), "down");
        assert!(fetch.left::<String>(b"another of the same hash").is_none());
        assert!(fetch.left::<u8>(b"key").is_none());
        in_flight.overtake(KEY);
        assert!(fetch.left::<String>(b"key").is_none());
        drop(turn);
    }

    /// A loaded value that became visible overtook its own fetch, and who waited for that got nothing of it.
    #[test]
    fn a_fetch_that_is_concluded_is_neither_joined_nor_overtaken() {
        let in_flight = InFlight::new();
        let turn = lead(&in_flight);
        assert!(turn.conclude());
        in_flight.overtake(KEY);
        assert!(!turn.overtaken() && in_flight.under_way(KEY).is_none());
        let next = lead(&in_flight);
        drop(turn);
        in_flight.overtake(KEY);
        assert!(next.overtaken() && !next.conclude());
    }

    #[test]
    fn a_turn_after_an_overtaken_one_starts_clean() {
        let in_flight = InFlight::new();
        let turn = lead(&in_flight);
        in_flight.overtake(KEY);
        drop(turn);
        assert!(!lead(&in_flight).overtaken());
    }
}
