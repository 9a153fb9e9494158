//! Events: reports of each operation on a key.
//!
//! Counters say how often something happens; events say to which key. They are emitted where the counters are incremented, after the
//! key's lock is released: so events of one key from several threads may be emitted in a different order than they happened. Without
//! a sink, an event costs one comparison.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::dram::Handle;
pub use crate::flash::puts::PutEnd;
use crate::item::{Item, Layer};
use crate::listener;
use crate::new_item::NewItem;
use crate::{KeyHash, Refusal};

/// Receives events: see [`Builder::events`](crate::Builder::events).
pub trait EventSink: Send + Sync {
    /// Whether events for keys with this hash are to be emitted. Called first, before an event is created, so that a sink that follows one
    /// key in a thousand costs little. The result must be the same for each call with a hash, and cheap to compute; see
    /// [`KeyHash::one_in`].
    fn wants(&self, hash: KeyHash) -> bool {
        let _ = hash;
        true
    }

    /// Called with each event, on the thread that caused it.
    fn on_event(&self, event: &Event<'_>);
}

/// An event of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The kind of event.
    pub kind: EventKind,
    /// The key.
    pub key: &'a [u8],
    /// The key's hash: [`Cache::key_hash`](crate::Cache::key_hash).
    pub hash: KeyHash,
    /// Bytes of the item's value; for a chained item, of the parent or the chained item alone. `None` if there is no item.
    pub value_bytes: Option<usize>,
    /// Unix second at which the item expires; `None` if it never does, or if there is no item.
    pub expiry_seconds: Option<u32>,
}

/// The kind of an event. Each is emitted as often as [`Stats`](crate::Stats) counts it, except where info.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A get found the item in this tier.
    Found(Layer),
    /// A get missed.
    NotFound,
    /// An item was copied from flash to DRAM.
    Promoted,
    /// An item was inserted; DRAM held none under its key.
    Inserted,
    /// An item was inserted in place of the one that DRAM held.
    Replaced,
    /// A conditional insert was skipped because DRAM held an item under the key.
    Present,
    /// A fetched item was not inserted because the fetch was invalidated.
    Overtaken,
    /// An insert was refused.
    Refused(Refusal),
    /// A chained item was added; the value size is that of the chained item. Not in `Stats`.
    Chained,
    /// A chained item was refused. Not in `Stats`.
    NotChained(Refusal),
    /// A remove found the item in DRAM, or a filter reported that only flash may have it. Not in `Stats`.
    Removed(Layer),
    /// A remove found nothing. Not in `Stats`.
    NotRemoved,
    /// The cache was cleared while the item was in DRAM. Not in `Stats`.
    Cleared,
    /// A get or the reaper removed the expired item from DRAM. `Stats` counts those of the reaper.
    Expired,
    /// The item was evicted from DRAM.
    EvictedFromDram {
        /// Whether the item had expired.
        expired: bool,
    },
    /// An item that DRAM evicts was offered to flash, with this result.
    Offered(PutEnd),
    /// The item was evicted from flash; this includes an older copy of an item in DRAM. Not emitted if the item could not be read, or if a
    /// newer one under the key waits for its bucket to be written.
    EvictedFromFlash {
        /// Whether the item had expired. Only set for items in regions.
        expired: bool,
    },
}

/// Properties of a new item, for an event that is emitted after the item was linked.
pub(crate) struct NewItemInfo {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: KeyHash,
    pub(crate) value_bytes: usize,
    pub(crate) expiry_seconds: u32,
}

/// The sink of one cache.
pub(crate) struct Events {
    sink: Arc<dyn EventSink>,
}

impl Events {
    pub(crate) fn new(sink: Arc<dyn EventSink>) -> Self {
        Self { sink }
    }

    /// Whether events for keys with this hash are to be emitted; `false` if the sink panics.
    pub(crate) fn wants(&self, hash: KeyHash) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.sink.wants(hash))).unwrap_or(false)
    }

    /// Emits an event. Operations of the sink itself emit none. A panic of the sink was printed and is dropped, because the cache may be
    /// in the middle of an operation.
    #[cold]
    #[inline(never)]
    pub(crate) fn emit(&self, event: &Event<'_>) {
        if self.wants(event.hash) && !self.is_running() {
            drop(listener::run_as(self, || self.sink.on_event(event)));
        }
    }

    /// Emits the result of a get.
    #[cold]
    #[inline(never)]
    pub(crate) fn got(&self, key: &[u8], hash: KeyHash, found: Option<&Item<'_>>) {
        self.emit(&match found {
            Some(item) => {
                let event = Event::new(EventKind::Found(item.layer()), key, hash);
                event.of(item.len(), item.expiry_seconds().unwrap_or(0))
            }
            None => Event::new(EventKind::NotFound, key, hash),
        });
    }

    /// Emits the result of a remove.
    #[cold]
    #[inline(never)]
    pub(crate) fn removed(&self, key: &[u8], hash: KeyHash, in_dram: Option<&Handle<'_>>, on_flash: bool) {
        self.emit(&match in_dram {
            Some(item) => {
                let event = Event::new(EventKind::Removed(Layer::Dram), key, hash);
                event.of(item.len(), item.expiry_seconds())
            }
            None if on_flash => Event::new(EventKind::Removed(Layer::Flash), key, hash),
            None => Event::new(EventKind::NotRemoved, key, hash),
        });
    }

    /// Saves the properties of a new item, if its events are to be emitted.
    #[cold]
    #[inline(never)]
    pub(crate) fn info_of(&self, item: &NewItem<'_>) -> Option<Box<NewItemInfo>> {
        let (hash, key) = (item.hash(), item.key());
        let (value_bytes, expiry_seconds) = (item.len(), item.expiry_seconds());
        self.wants(hash).then(|| Box::new(NewItemInfo { key: key.into(), hash, value_bytes, expiry_seconds }))
    }

    /// Whether this thread is in the sink.
    pub(crate) fn is_running(&self) -> bool {
        listener::runs_as(self)
    }
}

impl<'a> Event<'a> {
    /// An event without an item.
    pub(crate) fn new(kind: EventKind, key: &'a [u8], hash: KeyHash) -> Self {
        Self { kind, key, hash, value_bytes: None, expiry_seconds: None }
    }

    /// The event with the properties of an item; `expiry_seconds` 0 means never.
    pub(crate) fn of(self, value_bytes: usize, expiry_seconds: u32) -> Self {
        let expiry_seconds = (expiry_seconds != 0).then_some(expiry_seconds);
        Self { value_bytes: Some(value_bytes), expiry_seconds, ..self }
    }
}
