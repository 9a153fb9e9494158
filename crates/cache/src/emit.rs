//! Emits the events of an engine: nothing without a sink.

use crate::KeyHash;
use crate::event::{Event, EventKind, NewItemInfo};
use crate::hybrid::Engine;
use crate::new_item::NewItem;

impl Engine {
    /// Saves the properties of a new item, if its events are to be emitted.
    #[inline]
    pub(crate) fn info_of(&self, item: &NewItem<'_>) -> Option<Box<NewItemInfo>> {
        self.events.as_ref().and_then(|events| events.info_of(item))
    }

    /// Emits an event of a new item.
    #[inline]
    pub(crate) fn emit_new_item(&self, kind: EventKind, info: Option<Box<NewItemInfo>>) {
        if let Some(info) = info {
            self.emit_item(kind, &info.key, info.hash, info.value_bytes, info.expiry_seconds);
        }
    }

    /// Emits an event without an item.
    #[inline]
    pub(crate) fn emit(&self, kind: EventKind, key: &[u8], hash: KeyHash) {
        if let Some(events) = &self.events {
            events.emit(&Event::new(kind, key, hash));
        }
    }

    /// Emits an event of an item.
    #[inline]
    pub(crate) fn emit_item(
        &self,
        kind: EventKind,
        key: &[u8],
        hash: KeyHash,
        value: usize,
        expiry_seconds: u32,
    ) {
        if let Some(events) = &self.events {
            events.emit(&Event::new(kind, key, hash).of(value, expiry_seconds));
        }
    }
}
