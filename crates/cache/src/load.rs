//! Get, or fetch and insert: one fetch for all concurrent callers of a key, and no late insert.
//!
//! A fetch from the data's source takes even longer than a flash read, and the source may change while it runs. An insert or remove of the
//! key in the meantime *overtakes* the fetch, as in [`crate::in_flight`]: its value is returned to the caller that fetched it, and not
//! stored.
//!
//! Callers that waited look up the cache first. If the key is not there, they take the result that the fetch left: the error, or a value
//! that the cache could not store. If each of them fetched in turn instead, a failing source would receive one request per caller. The
//! result of an overtaken fetch is returned to its own caller only, because others may have started after the key changed. They fetch
//! again, one for all.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Weak};

use device::event_loop;
use futures_util::{FutureExt, TryFutureExt};
use parking_lot::Mutex;

use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::in_flight::{Leader, Role};
use crate::new_item::InsertOptions;
use crate::{Cache, Item, KeyHash, OwnedItem};

/// The result of [`Cache::get_or_insert_with`] and [`Cache::get_or_fetch`]. Both variants deref to the value.
#[derive(Debug)]
pub enum Fetched<'a> {
    /// The value was in the cache.
    Found(Item<'a>),
    /// The value was fetched, by this call or by one that it waited for, and offered to the cache.
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

/// As [`Fetched`], without the borrow of the cache: see [`Cache::keep_fetched`].
#[derive(Debug)]
pub enum OwnedFetched {
    /// The value was in the cache.
    Found(OwnedItem),
    /// The value was fetched, by this call or by one that it waited for, and offered to the cache.
    Made(Arc<Vec<u8>>),
}

impl std::ops::Deref for OwnedFetched {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Found(item) => item,
            Self::Made(value) => value,
        }
    }
}

impl AsRef<[u8]> for OwnedFetched {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Cache {
    /// Converts the value to one that does not borrow the cache, without a copy, to return it or send it to another task or thread.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::{Cache, InsertOptions, OwnedFetched};
    /// async fn body(cache: Arc<Cache>, path: String) -> Result<OwnedFetched, Arc<std::io::Error>> {
    ///     let render = async || Ok(b"page".to_vec());
    ///     let fetched = cache.get_or_insert_with(path.as_bytes(), InsertOptions::default(), render).await?;
    ///     Ok(cache.keep_fetched(fetched))
    /// }
    /// # let cache = Arc::new(Cache::builder().dram_bytes(4 << 20).open().unwrap());
    /// # for _ in 0..2 {
    /// # let page = flashwright_cache::block_on(body(Arc::clone(&cache), "/".to_owned())).unwrap();
    /// # assert_eq!(std::thread::spawn(move || page.to_vec()).join().unwrap(), b"page");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the value is of another cache.
    #[must_use]
    pub fn keep_fetched(&self, fetched: Fetched<'_>) -> OwnedFetched {
        match fetched {
            Fetched::Found(item) => OwnedFetched::Found(self.keep(item)),
            Fetched::Made(value) => OwnedFetched::Made(value),
        }
    }

    /// Returns the item under `key`, or fetches it. Of several concurrent callers that miss, one fetches and the others wait: all get its
    /// value or its error. An error is not kept: later callers fetch again. A call counts as one get: a hit if the cache had the item, at
    /// first or after the wait, otherwise a miss.
    ///
    /// The fetch outlives its caller. It runs on the [spawner](crate::Builder::spawner) if there is one. Otherwise it is driven by
    /// whichever of its waiting callers is polled, and by a thread of the cache after the last of them is dropped: a fetch that needs the
    /// context of a runtime on every poll, such as tokio's timers and sockets, requires the spawner or the feature `tokio`. A cache
    /// without threads ([`open_stepped`](crate::Builder::open_stepped)) and without a spawner drops the fetch with its last caller. The
    /// cache does not wait for fetches when it closes.
    ///
    /// The value is returned as soon as it is fetched. While flash writes are behind, it is stored later.
    ///
    /// If the key is inserted or removed, or the cache cleared, while `fetch` runs, the fetched value is returned but not stored, and the
    /// other callers fetch again, one for all. So change the source first and the cache second, and no old value is stored.
    ///
    /// A value that the cache does not store is returned to all waiting callers as well: one that is larger than the
    /// [largest item](crate::Builder::max_item_bytes), expires immediately or cannot be allocated.
    ///
    /// A `fetch` that fetches its own key in this way waits for itself, and two that fetch each other's keys wait forever; `get`, `insert`
    /// and `remove` of any key are allowed. It must not block the thread that polls it, and it needs its own time limit: while it runs,
    /// all callers of the key wait.
    ///
    /// If `fetch` panics, so does the call that passed it, and the next caller fetches. A caller whose error type differs from that of the
    /// fetch that it waited for fetches again.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use flashwright_cache::{Cache, Fetched, InsertOptions};
    ///
    /// async fn row<'a, F, Fut>(cache: &'a Cache, key: &[u8], read: F) -> Result<Fetched<'a>, Arc<std::io::Error>>
    /// where
    ///     F: FnOnce() -> Fut,
    ///     Fut: Future<Output = std::io::Result<Vec<u8>>> + Send + 'static,
    /// {
    ///     cache.get_or_insert_with(key, InsertOptions::default(), read).await
    /// }
    /// # let cache = Cache::builder().dram_bytes(4 << 20).open().unwrap();
    /// # let read = async || Ok(b"value".to_vec());
    /// # assert_eq!(*flashwright_cache::block_on(row(&cache, b"key", read)).unwrap(), *b"value");
    /// ```
    ///
    /// # Errors
    /// The error of `fetch`, shared by all callers that waited for it.
    pub async fn get_or_insert_with<E, Fut>(
        &self,
        key: &[u8],
        options: impl Into<InsertOptions>,
        fetch: impl FnOnce() -> Fut,
    ) -> Result<Fetched<'_>, Arc<E>>
    where
        E: Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<u8>, E>> + Send + 'static,
    {
        let options = options.into();
        let fetch = || fetch().map_ok(move |value| (value, options));
        self.engine.get_or_load(key, fetch).await
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), on this thread.
    ///
    /// # Errors
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub fn get_or_insert_with_blocking<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        options: impl Into<InsertOptions>,
        fetch: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        let options = options.into();
        self.get_or_fetch_blocking(key, || fetch().map(|value| (value, options)))
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), for a source that determines how long its answer is valid (HTTP, DNS, tokens):
    /// `fetch` returns the value and the options of its insert.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # struct Answer { bytes: Vec<u8>, max_age_seconds: u32 }
    /// # async fn ask(_: &str) -> std::io::Result<Answer> { Ok(Answer { bytes: vec![1], max_age_seconds: 60 }) }
    /// # async fn serve(cache: &Cache, name: String) -> Result<(), std::sync::Arc<std::io::Error>> {
    /// let key = name.clone().into_bytes();
    /// let address = cache.get_or_fetch(&key, async move || {
    ///     let answer = ask(&name).await?;
    ///     let for_its_age = InsertOptions { ttl_seconds: Some(answer.max_age_seconds), ..InsertOptions::default() };
    ///     Ok::<_, std::io::Error>((answer.bytes, for_its_age))
    /// });
    /// assert_eq!(*address.await?, [1]);
    /// # Ok(())
    /// # }
    /// # flashwright_cache::block_on(serve(&Cache::builder().dram_bytes(4 << 20).open().unwrap(), "localhost".to_owned())).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`get_or_insert_with`](Self::get_or_insert_with).
    pub async fn get_or_fetch<E, Fut>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Fut,
    ) -> Result<Fetched<'_>, Arc<E>>
    where
        E: Send + Sync + 'static,
        Fut: Future<Output = Result<(Vec<u8>, InsertOptions), E>> + Send + 'static,
    {
        self.engine.get_or_load(key, fetch).await
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
        event_loop::wait_for(self.engine.get_or_load_on_thread(key, fetch))
    }
}

/// The result of looking up a key that may have to be loaded.
enum LoadLookup<'a, E> {
    Done(Result<Fetched<'a>, Arc<E>>),
    /// This caller fetches.
    Lead(Leader),
}

impl Engine {
    async fn get_or_load<E, Fut>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Fut,
    ) -> Result<Fetched<'_>, Arc<E>>
    where
        E: Send + Sync + 'static,
        Fut: Future<Output = Result<(Vec<u8>, InsertOptions), E>> + Send + 'static,
    {
        let leader = match self.look_or_lead(key, Waiting::Task).await {
            LoadLookup::Done(found) => return found,
            LoadLookup::Lead(leader) => leader,
        };
        let (load, panic) = (leader.fetch(), Arc::new(Mutex::new(None)));
        load.set_work(Box::pin(load_and_store(
            self.me.clone(),
            key.into(),
            fetch(),
            leader,
            Arc::clone(&panic),
        )));
        if let Some(spawn) = self.spawner.at_start() {
            spawn(Box::pin(load.wait(None)));
        }
        load.wait(Some(&self.spawner)).await;
        if let Some(panic) = panic.lock().take() {
            resume_unwind(panic);
        }
        let result = load.leader_result(key);
        result.expect("a fetch whose caller waits ends with a result or a panic").map(Fetched::Made)
    }

    async fn get_or_load_on_thread<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Result<(Vec<u8>, InsertOptions), E>,
    ) -> Result<Fetched<'_>, Arc<E>> {
        match self.look_or_lead(key, Waiting::Thread).await {
            LoadLookup::Done(found) => found,
            LoadLookup::Lead(leader) => self.store_fetched(key, fetch(), leader).await.map(Fetched::Made),
        }
    }

    /// Finds the key, or waits for its running load; otherwise this caller must load it.
    async fn look_or_lead<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        waiting: Waiting,
    ) -> LoadLookup<'_, E> {
        let hash = self.hash_of(key);
        loop {
            if let Some(item) = self.find(key, hash, waiting).await {
                return LoadLookup::Done(Ok(Fetched::Found(item)));
            }
            let load = match self.join_load(key, hash) {
                Some(Role::Lead(leader)) => {
                    self.missed(key, hash);
                    return LoadLookup::Lead(leader);
                }
                Some(Role::Wait(load)) => load,
                None => continue,
            };
            load.wait(Some(&self.spawner)).await;
            if let Some(item) = self.find(key, hash, waiting).await {
                return LoadLookup::Done(Ok(Fetched::Found(item)));
            }
            if let Some(result) = load.result(key) {
                self.missed(key, hash);
                return LoadLookup::Done(result.map(Fetched::Made));
            }
        }
    }

    /// Joins or starts the load of the key; `None` if a load that ended since the caller's miss stored it in DRAM.
    fn join_load(&self, key: &[u8], hash: KeyHash) -> Option<Role> {
        let lock = self.dram.lock(hash);
        if lock.find(key).is_some() { None } else { Some(self.loads.join(hash, key)) }
    }

    /// Provides the fetched result to all callers, and stores it. While flash writes are behind, a task of the spawner stores it later;
    /// without a spawner this call waits.
    async fn store_fetched<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetched: Result<(Vec<u8>, InsertOptions), E>,
        leader: Leader,
    ) -> Result<Arc<Vec<u8>>, Arc<E>> {
        let (value, options) = match fetched {
            Ok((value, options)) => (Arc::new(value), options),
            Err(error) => {
                let error = Arc::new(error);
                leader.set_result(key, Err(Arc::clone(&error)));
                return Err(error);
            }
        };
        leader.set_result::<E>(key, Ok(Arc::clone(&value)));
        if self.store_now(key, &value, options, &leader) {
            return Ok(value);
        }
        leader.answer();
        let store =
            store_when_there_is_room(self.me.clone(), key.into(), Arc::clone(&value), options, leader);
        if self.spawner.runs() {
            self.spawner.spawn(Box::pin(store));
        } else {
            store.await;
        }
        Ok(value)
    }

    /// Stores the loaded value, unless the key was inserted or removed since the load started. Returns whether the load has ended, which is
    /// not the case while flash writes are behind. A refused insert ends it too, as its callers already have the value.
    fn store_now(&self, key: &[u8], value: &[u8], options: InsertOptions, leader: &Leader) -> bool {
        // A closing cache stores nothing.
        let Some(_working) = self.stop.begin() else { return true };
        let mut item = match self.allocate_now(key, value.len(), options) {
            Ok(Some(item)) => item,
            Ok(None) => return leader.overtaken(),
            Err(_) => return true,
        };
        item.copy_from_slice(value);
        self.insert_unless(item, || !leader.conclude());
        true
    }
}

/// A load, from the fetch to the stored item. It does not keep the cache alive while it fetches.
async fn load_and_store<E: Send + Sync + 'static>(
    engine: Weak<Engine>,
    key: Box<[u8]>,
    fetch: impl Future<Output = Result<(Vec<u8>, InsertOptions), E>>,
    leader: Leader,
    panic: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
) {
    let load = async {
        let fetched = fetch.await;
        if let Some(engine) = engine.upgrade() {
            // `store_fetched` has already provided the result to all callers.
            drop(engine.store_fetched(&key, fetched, leader).await);
        }
    };
    if let Err(why) = AssertUnwindSafe(load).catch_unwind().await {
        *panic.lock() = Some(why);
    }
}

/// Stores the loaded value after flash writes caught up, unless the cache closes first.
async fn store_when_there_is_room(
    engine: Weak<Engine>,
    key: Box<[u8]>,
    value: Arc<Vec<u8>>,
    options: InsertOptions,
    leader: Leader,
) {
    while let Some(engine) = engine.upgrade() {
        if engine.store_now(&key, &value, options, &leader) {
            return;
        }
        if let Some(flash) = &engine.flash {
            engine.stop.or(flash.wait_ready()).await;
        }
    }
}
