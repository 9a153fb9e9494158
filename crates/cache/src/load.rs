//! Get, or fetch and insert: one fetch for many callers, and no late insert.
//!
//! A fetch from wherever the data comes from takes longer still than a flash read, and its source may change while it runs.
//! Whoever inserts or removes the key meanwhile *overtakes* the fetch, as in [`crate::in_flight`]: its value still
//! serves the caller who fetched it, and does not enter the cache.
//!
//! Those who waited look in the cache first, and take what the fetch left them if it is not there: the error, or a value that the
//! cache could not keep. If each of them asked in turn instead, a source that is down would be asked as often as it is wanted, each
//! time after the last has failed. What an overtaken fetch brought is nobody's but its caller's: who joined it may have begun
//! after the key changed. They fetch anew, again one for all.

use std::sync::Arc;

use device::desk;

use crate::flash::Waiting;
use crate::hybrid::{Engine, InsertOptions};
use crate::in_flight::{Joined, Turn};
use crate::{Cache, Item, KeyHash};

/// What [`Cache::get_or_insert_with`] and [`Cache::get_or_fetch`] returned: both deref to the value.
#[derive(Debug)]
pub enum Fetched<'a> {
    /// It was in the cache.
    Found(Item<'a>),
    /// It was made, by this call or by one that it waited for, and offered to the cache.
    Made(Arc<Vec<u8>>),
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
    /// wait for it: all get what it makes, and if it fails, all get that error. Nothing of it is kept for those who come after it
    /// ended: they try again. A call counts as one get: a hit if the cache had the item, at once or after that wait, else a miss.
    ///
    /// If the key is inserted or removed, or the cache cleared, while `fetch` runs, what it makes is returned but not kept, and those
    /// who wait fetch anew, one for all of them: change the source first and the cache second, and no old value stays behind.
    ///
    /// What the cache does not keep serves all who waited as well: a value that is larger than the
    /// [largest item](crate::Builder::max_item_bytes), expires at once or cannot have room.
    ///
    /// A `fetch` that asks for its own key in this way waits for itself, and two that ask for each other's wait for ever; `get`,
    /// `insert` and `remove` of any key are free to it.
    ///
    /// Dropped before it is ready, or if `fetch` panics, it leaves nothing behind, and the next caller fetches. So does one whose
    /// errors are of another type than those of the fetch that it waited for.
    ///
    /// A function that is given an `F: FnOnce() -> Fut` passes it on as `async || f().await`:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use flashwright_cache::{Cache, Fetched, InsertOptions};
    ///
    /// async fn row<'a, F, Fut>(cache: &'a Cache, key: &[u8], read: F) -> Result<Fetched<'a>, Arc<std::io::Error>>
    /// where
    ///     F: FnOnce() -> Fut,
    ///     Fut: Future<Output = std::io::Result<Vec<u8>>>,
    /// {
    ///     cache.get_or_insert_with(key, &InsertOptions::default(), async || read().await).await
    /// }
    /// # let cache = Cache::builder().dram_bytes(4 << 20).open().unwrap();
    /// # let read = || async { Ok(b"value".to_vec()) };
    /// # assert_eq!(*flashwright_cache::block_on(row(&cache, b"key", read)).unwrap(), *b"value");
    /// ```
    ///
    /// # Errors
    /// What `fetch` returned, shared with all that waited for it.
    pub async fn get_or_insert_with<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        options: &InsertOptions,
        fetch: impl AsyncFnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        let fetch = async || fetch().await.map(|value| (value, *options));
        self.engine.get_or_load(key, Waiting::Task, fetch).await
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), on this thread.
    ///
    /// # Errors
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub fn get_or_insert_with_blocking<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        options: &InsertOptions,
        fetch: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        self.get_or_fetch_blocking(key, || fetch().map(|value| (value, *options)))
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), for a source that says how long its answer holds (HTTP, DNS, tokens):
    /// `fetch` makes the value and how it is to be kept.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # struct Answer { bytes: Vec<u8>, max_age_seconds: u32 }
    /// # async fn ask(_: &[u8]) -> std::io::Result<Answer> { Ok(Answer { bytes: vec![1], max_age_seconds: 60 }) }
    /// # async fn serve(cache: &Cache, name: &[u8]) -> Result<(), std::sync::Arc<std::io::Error>> {
    /// let address = cache.get_or_fetch(name, async || {
    ///     let answer = ask(name).await?;
    ///     let for_its_age = InsertOptions { ttl_seconds: Some(answer.max_age_seconds), ..InsertOptions::default() };
    ///     Ok::<_, std::io::Error>((answer.bytes, for_its_age))
    /// });
    /// assert_eq!(*address.await?, [1]);
    /// # Ok(())
    /// # }
    /// # flashwright_cache::block_on(serve(&Cache::builder().dram_bytes(4 << 20).open().unwrap(), b"localhost")).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub async fn get_or_fetch<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetch: impl AsyncFnOnce() -> Result<(Vec<u8>, InsertOptions), E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        self.engine.get_or_load(key, Waiting::Task, fetch).await
    }

    /// As [`get_or_fetch`](Self::get_or_fetch), on this thread.
    ///
    /// # Errors
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub fn get_or_fetch_blocking<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Result<(Vec<u8>, InsertOptions), E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        desk::wait_for(self.engine.get_or_load(key, Waiting::Thread, async || fetch()))
    }
}

impl Engine {
    async fn get_or_load<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        waiting: Waiting,
        fetch: impl AsyncFnOnce() -> Result<(Vec<u8>, InsertOptions), E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        let hash = KeyHash::of(key);
        loop {
            if let Some(item) = self.find(key, hash, waiting).await {
                return Ok(Fetched::Found(item));
            }
            let load = match self.join_load(key, hash) {
                Some(Joined::Lead(turn)) => {
                    self.missed(key, hash);
                    return self.load(key, fetch().await, turn).await.map(Fetched::Made);
                }
                Some(Joined::Follow(load)) => load,
                None => continue,
            };
            load.ended().await;
            if let Some(item) = self.find(key, hash, waiting).await {
                return Ok(Fetched::Found(item));
            }
            if let Some(left) = load.left(key) {
                self.missed(key, hash);
                return left.map(Fetched::Made);
            }
        }
    }

    /// Asks to load the key; `None` if it is in DRAM by now, where a load that ended since the caller's miss left it.
    fn join_load(&self, key: &[u8], hash: KeyHash) -> Option<Joined<'_>> {
        let lock = self.dram.lock(hash);
        if lock.find(key).is_some() { None } else { Some(self.loads.join(hash)) }
    }

    /// Takes in what was fetched, and leaves it to those who wait until that is done. It is left before there is room for it: if
    /// who fetched is given up while he waits for that, they have it all the same.
    async fn load<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetched: Result<(Vec<u8>, InsertOptions), E>,
        turn: Turn<'_>,
    ) -> Result<Arc<Vec<u8>>, Arc<E>> {
        let (value, options) = match fetched {
            Ok((value, options)) => (Arc::new(value), options),
            Err(error) => {
                let error = Arc::new(error);
                turn.leave(key, Err(Arc::clone(&error)));
                return Err(error);
            }
        };
        turn.leave::<E>(key, Ok(Arc::clone(&value)));
        self.insert_loaded(key, &value, &options, &turn).await;
        Ok(value)
    }

    /// Takes what was loaded in, unless the key was inserted or removed since the load began. If there is no room, the
    /// load has served its callers all the same.
    async fn insert_loaded(&self, key: &[u8], value: &[u8], options: &InsertOptions, turn: &Turn<'_>) {
        let Ok(mut item) = self.allocate(key, value.len(), options).await else { return };
        item.copy_from_slice(value);
        self.insert_unless(item, || !turn.conclude());
    }
}
