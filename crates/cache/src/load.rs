//! Get, or fetch and insert: one fetch for many callers, and no late insert.
//!
//! A fetch from wherever the data comes from takes longer still than a flash read, and its source may change while it runs.
//! Whoever inserts or removes the key meanwhile *overtakes* the fetch, as in [`crate::in_flight`]: its value still
//! serves the caller who fetched it, and does not enter the cache.

use crate::flash::Waiting;
use crate::hybrid::{Engine, InsertOptions};
use crate::in_flight::{Joined, Turn};
use crate::{Cache, Item, KeyHash};

/// What [`Cache::get_or_insert_with`] returned: both deref to the value.
#[derive(Debug)]
pub enum Fetched<'a> {
    /// It was in the cache.
    Found(Item<'a>),
    /// It was made, and offered to the cache.
    Made(Vec<u8>),
}

impl std::ops::Deref for Fetched<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Found(item) => item,
            Self::Made(value) => value,
        }
    }
}

impl Cache {
    /// The item under `key`, or the one that `fetch` makes. Of many callers that miss at once one fetches and the others
    /// wait for it. An error of `fetch` is the caller's; the next one tries again. A call counts as one get: a hit if the
    /// cache had the item, at once or after that wait, and a miss if `fetch` was called.
    ///
    /// If the key is inserted or removed, or the cache cleared, while `fetch` runs, what it makes is returned but not kept: change the source
    /// first and the cache second, and no old value stays behind.
    ///
    /// Callers that wait are served from the cache. What it does not keep serves nobody but its caller: if the value is larger
    /// than the [largest item](crate::Builder::max_item_bytes), expires at once or cannot have room, each of those who wait
    /// fetches in turn, one after the other.
    ///
    /// A `fetch` that asks for its own key in this way waits for itself, and two that ask for each other's wait for ever; `get`,
    /// `insert` and `remove` of any key are free to it.
    ///
    /// Dropped before it is ready, or if `fetch` panics, it leaves nothing behind, and the next caller fetches.
    ///
    /// # Errors
    /// What `fetch` returned.
    pub async fn get_or_insert_with<E>(
        &self,
        key: &[u8],
        options: &InsertOptions,
        fetch: impl AsyncFnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Fetched<'_>, E> {
        let hash = KeyHash::of(key);
        loop {
            if let Some(item) = self.engine.find(key, hash, Waiting::Task).await {
                return Ok(Fetched::Found(item));
            }
            match self.engine.join_load(key, hash) {
                Some(Joined::Lead(turn)) => {
                    self.engine.missed(key, hash);
                    let value = fetch().await?;
                    self.engine.insert_loaded(key, &value, options, &turn).await;
                    return Ok(Fetched::Made(value));
                }
                Some(Joined::Follow(load)) => load.ended().await,
                None => {}
            }
        }
    }
}

impl Engine {
    /// Asks to load the key; `None` if it is in DRAM by now, where a load that ended since the caller's miss left it.
    fn join_load(&self, key: &[u8], hash: KeyHash) -> Option<Joined<'_>> {
        let lock = self.dram.lock(hash);
        if lock.find(key).is_some() { None } else { Some(self.loads.join(hash)) }
    }

    /// Takes what was loaded in, unless the key was inserted or removed since the load began. If there is no room, the
    /// load has served its caller all the same.
    async fn insert_loaded(&self, key: &[u8], value: &[u8], options: &InsertOptions, turn: &Turn<'_>) {
        let Ok(mut item) = self.allocate(key, value.len(), options).await else { return };
        item.copy_from_slice(value);
        self.insert_unless(item, || turn.overtaken());
    }
}
