//! What happens to keys, for whoever wants to be told.
//!
//! Counters say how often something happens; events say to whom. They are told where the counters are counted, once the
//! lock of the key has been let go of: so the events of a key by several threads may be told in another order than they
//! happened. Where nobody listens, an event is one comparison.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::dram::Handle;
pub use crate::flash::tier::PutEnd;
use crate::hybrid::{Engine, NewItem};
use crate::item::{Item, Layer};
use crate::listener;
use crate::{KeyHash, Refusal};

/// Told of what happens to keys: see [`Builder::events`](crate::Builder::events).
pub trait EventSink: Send + Sync {
    /// Whether it is to be told of keys with this hash. Asked first, before anything is worked out for an event, so that whoever
    /// follows one key in a thousand pays for one in a thousand. The answer is always the same for a hash, and costs next to
    /// nothing: [`KeyHash::one_in`] is made for it.
    fn wants(&self, hash: KeyHash) -> bool {
        let _ = hash;
        true
    }

    /// Something has happened, on this thread.
    fn tell(&self, event: &Event<'_>);
}

/// Something that happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// What.
    pub kind: EventKind,
    /// To whom.
    pub key: &'a [u8],
    /// The key's hash: [`Cache::key_hash`](crate::Cache::key_hash).
    pub hash: KeyHash,
    /// Bytes of the item's value, of a chained item its own; `None` where there is no item.
    pub value_bytes: Option<usize>,
    /// Unix second at which the item expires; `None` is never, or that there is no item.
    pub expiry_seconds: Option<u32>,
}

/// What happened. Each is told for as often as [`Stats`](crate::Stats) counts it, but for what is said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A get found the item there.
    Found(Layer),
    /// A get found nothing.
    NotFound,
    /// An item was brought back from flash to DRAM.
    Promoted,
    /// An item was inserted; DRAM held none under its key.
    Inserted,
    /// An item was inserted in place of the one that DRAM held.
    Replaced,
    /// An item was to be inserted only where there was none, and DRAM held one.
    Present,
    /// An item that was loaded was not inserted, because the load was overtaken.
    Overtaken,
    /// There was no room for an item.
    Refused(Refusal),
    /// A piece was chained to the item: the value is the piece's. Not in `Stats`.
    Chained,
    /// A piece could not be chained. Not in `Stats`.
    NotChained(Refusal),
    /// A remove found the item in DRAM, or that flash alone may have held it, as far as a filter tells. Not in `Stats`.
    Removed(Layer),
    /// A remove found nothing. Not in `Stats`.
    NotRemoved,
    /// The cache was cleared while the item was in DRAM. Not in `Stats`.
    Cleared,
    /// The item in DRAM had expired and was taken out, by a get or by the reaper. `Stats` has those of the reaper.
    Expired,
    /// The item made room in DRAM.
    EvictedFromDram {
        /// Its time was over.
        expired: bool,
    },
    /// Flash was offered an item that DRAM gives up, and this is what became of it.
    Offered(PutEnd),
    /// The item made room on flash: an older copy of one that is in DRAM, too. Not told where the item could not be
    /// read, or where a newer one under the key already waits for its bucket to be written.
    EvictedFromFlash {
        /// Its time was over. Told of items in regions alone.
        expired: bool,
    },
}

/// What is told of a new item once it is an item like others.
pub(crate) struct Noted {
    key: Box<[u8]>,
    hash: KeyHash,
    value_bytes: usize,
    expiry_seconds: u32,
}

/// Who is told, of one cache.
pub(crate) struct Events {
    sink: Arc<dyn EventSink>,
}

impl Events {
    pub(crate) fn new(sink: Arc<dyn EventSink>) -> Self {
        Self { sink }
    }

    /// Whether anybody wants to be told of keys with this hash. Who panics at the question does not.
    pub(crate) fn wants(&self, hash: KeyHash) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.sink.wants(hash))).unwrap_or(false)
    }

    /// Tells of an event. What the sink itself does in the cache is not told, and its panic has been printed and ends here:
    /// the cache may be in the middle of something.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if self.wants(event.hash) && !self.is_being_told() {
            drop(listener::run_as(self, || self.sink.tell(event)));
        }
    }

    /// Tells how a get ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn got(&self, key: &[u8], hash: KeyHash, found: Option<&Item<'_>>) {
        self.tell(&match found {
            Some(item) => {
                let event = Event::new(EventKind::Found(item.layer()), key, hash);
                event.of(item.len(), item.expiry_seconds().unwrap_or(0))
            }
            None => Event::new(EventKind::NotFound, key, hash),
        });
    }

    /// Tells how a remove ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn removed(&self, key: &[u8], hash: KeyHash, in_dram: Option<&Handle<'_>>, on_flash: bool) {
        self.tell(&match in_dram {
            Some(item) => {
                let event = Event::new(EventKind::Removed(Layer::Dram), key, hash);
                event.of(item.len(), item.expiry_seconds())
            }
            None if on_flash => Event::new(EventKind::Removed(Layer::Flash), key, hash),
            None => Event::new(EventKind::NotRemoved, key, hash),
        });
    }

    /// Notes what a new item is, if anybody wants to be told of it.
    #[cold]
    #[inline(never)]
    fn note(&self, item: &NewItem<'_>) -> Option<Box<Noted>> {
        let (hash, key) = (item.hash(), item.key());
        let (value_bytes, expiry_seconds) = (item.len(), item.expiry_seconds());
        self.wants(hash).then(|| Box::new(Noted { key: key.into(), hash, value_bytes, expiry_seconds }))
    }

    /// Whether this thread is in the sink.
    pub(crate) fn is_being_told(&self) -> bool {
        listener::runs_as(self)
    }
}

impl<'a> Event<'a> {
    /// An event without an item.
    pub(crate) fn new(kind: EventKind, key: &'a [u8], hash: KeyHash) -> Self {
        Self { kind, key, hash, value_bytes: None, expiry_seconds: None }
    }

    /// The same of an item; it expires in second 0 if it never does.
    pub(crate) fn of(self, value_bytes: usize, expiry_seconds: u32) -> Self {
        let expiry_seconds = (expiry_seconds != 0).then_some(expiry_seconds);
        Self { value_bytes: Some(value_bytes), expiry_seconds, ..self }
    }
}

impl Engine {
    /// Notes what a new item is, if anybody wants to be told of it.
    #[inline]
    pub(crate) fn note(&self, item: &NewItem<'_>) -> Option<Box<Noted>> {
        self.events.as_ref().and_then(|events| events.note(item))
    }

    /// Tells what became of a new item.
    #[inline]
    pub(crate) fn tell_noted(&self, kind: EventKind, noted: Option<Box<Noted>>) {
        if let Some(noted) = noted {
            self.tell_of(kind, &noted.key, noted.hash, noted.value_bytes, noted.expiry_seconds);
        }
    }

    /// Tells of something that happened where there is no item.
    #[inline]
    pub(crate) fn tell(&self, kind: EventKind, key: &[u8], hash: KeyHash) {
        if let Some(events) = &self.events {
            events.tell(&Event::new(kind, key, hash));
        }
    }

    /// Tells of something that happened to an item.
    #[inline]
    pub(crate) fn tell_of(
        &self,
        kind: EventKind,
        key: &[u8],
        hash: KeyHash,
        value: usize,
        expiry_seconds: u32,
    ) {
        if let Some(events) = &self.events {
            events.tell(&Event::new(kind, key, hash).of(value, expiry_seconds));
        }
    }
}
