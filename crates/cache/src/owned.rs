//! Items that do not borrow the cache, and can be returned or sent to another task without a copy.

use std::ops::Deref;
use std::sync::Arc;

use crate::Cache;
use crate::dram::{Dram, Kept, PoolId};
use crate::hybrid::Engine;
use crate::item::{Held, Item, Layer, OnFlash};

/// A found item that does not borrow the cache; derefs to its value. While it lives, the bytes are not moved or freed, as with an
/// [`Item`], even if the cache is dropped or closed. An item in DRAM keeps its whole cache alive, including the flash device: a file
/// stays locked, and cannot be opened again, until the last such item is dropped.
pub struct OwnedItem {
    held: Owned,
    layer: Layer,
}

enum Owned {
    Dram(Kept<Engine>),
    Flash(Box<OnFlash>),
}

impl Cache {
    /// As [`get`](Self::get), for an item that is returned, or sent to another task or thread. It costs two atomic increments more than
    /// `get`, and no copy.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::{Cache, InsertOptions, OwnedItem};
    /// async fn body(cache: Arc<Cache>, path: String) -> Option<OwnedItem> {
    ///     cache.get_owned(path.as_bytes()).await
    /// }
    /// # let cache = Arc::new(Cache::builder().dram_bytes(4 << 20).open().unwrap());
    /// # cache.insert_blocking(b"/", b"page", InsertOptions::default());
    /// # let item = flashwright_cache::block_on(body(Arc::clone(&cache), "/".to_owned())).unwrap();
    /// # drop(cache);
    /// # assert_eq!(std::thread::spawn(move || item.to_vec()).join().unwrap(), b"page");
    /// ```
    pub async fn get_owned(&self, key: &[u8]) -> Option<OwnedItem> {
        self.get(key).await.map(|item| self.keep(item))
    }

    /// As [`get_owned`](Self::get_owned), on this thread.
    #[must_use]
    pub fn get_owned_blocking(&self, key: &[u8]) -> Option<OwnedItem> {
        self.get_blocking(key).map(|item| self.keep(item))
    }

    /// Converts the item to one that does not borrow the cache.
    ///
    /// # Panics
    /// If the item is of another cache.
    #[must_use]
    pub fn keep(&self, item: Item<'_>) -> OwnedItem {
        OwnedItem::new(&self.engine, item)
    }
}

impl AsRef<Dram> for Engine {
    fn as_ref(&self) -> &Dram {
        &self.dram
    }
}

impl OwnedItem {
    pub(crate) fn new(engine: &Arc<Engine>, item: Item<'_>) -> Self {
        let layer = item.layer();
        let held = match item.into_held() {
            Held::Dram(handle) => Owned::Dram(Kept::new(Arc::clone(engine), &handle)),
            Held::Flash(flash) => Owned::Flash(flash),
        };
        Self { held, layer }
    }

    /// Converts the item to one that borrows the cache's `dram`.
    pub(crate) fn lend(self, dram: &Dram) -> Item<'_> {
        match self.held {
            Owned::Dram(kept) => Item::in_dram(kept.lend(dram), self.layer),
            Owned::Flash(flash) => Item::of_flash(flash),
        }
    }

    /// Where the item was found.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The pool of the item.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        match &self.held {
            Owned::Dram(kept) => kept.pool(),
            Owned::Flash(flash) => flash.pool(),
        }
    }

    /// Unix second at which the item expires; `None` means never.
    #[must_use]
    pub fn expiry_seconds(&self) -> Option<u32> {
        let seconds = match &self.held {
            Owned::Dram(kept) => kept.expiry_seconds(),
            Owned::Flash(flash) => flash.value.expiry_seconds,
        };
        (seconds != 0).then_some(seconds)
    }

    /// The items chained to this one, newest first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        let (dram, flash) = match &self.held {
            Owned::Dram(kept) => (Some(kept.chain()), None),
            Owned::Flash(flash) => (None, Some(flash.chain())),
        };
        dram.into_iter().flatten().chain(flash.into_iter().flatten())
    }
}

impl Deref for OwnedItem {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.held {
            Owned::Dram(kept) => kept,
            Owned::Flash(flash) => flash,
        }
    }
}

impl AsRef<[u8]> for OwnedItem {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for OwnedItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedItem({} bytes, {:?})", self.len(), self.layer)
    }
}
