//! The part of a get after a DRAM miss: one read of flash for all callers of the key, and its promotion to DRAM.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::KeyHash;
use crate::dram::{AllocateError, Draft, PoolId};
use crate::event::EventKind;
use crate::flash::tag;
use crate::flash::{FlashValue, Waiting, chain};
use crate::hybrid::Engine;
use crate::in_flight::{Leader, Role};
use crate::item::{Item, Layer};
use crate::owned::OwnedItem;

impl Engine {
    /// Looks up a key that DRAM missed.
    pub(crate) async fn find_on_flash(
        &self,
        key: &[u8],
        hash: KeyHash,
        waiting: Waiting,
    ) -> Option<Item<'_>> {
        let flash = self.flash.as_ref()?;
        let leader = loop {
            let fetch = {
                let lock = self.dram.lock(hash);
                if let Some(handle) = lock.find(key) {
                    self.counters.hit_dram();
                    return Some(Item::in_dram(handle, Layer::Dram));
                }
                // A running fetch may promote an item that flash evicts during the read. If this get missed now, a later one would hit
                // without an insert in between.
                let fetch = if self.is_in_callback() { None } else { self.in_flight.find(hash) };
                match fetch {
                    Some(fetch) => fetch,
                    None if !flash.may_contain(hash, key) => return None,
                    // The fetch may wait for the eviction that this thread is in, so this thread must not wait for the fetch.
                    None if self.is_in_callback() => break None,
                    None => match self.in_flight.join(hash, key) {
                        Role::Lead(leader) => break Some(leader),
                        Role::Wait(fetch) => fetch,
                    },
                }
            };
            self.counters.coalesced();
            fetch.wait(None).await;
        };
        let found = match leader {
            Some(leader) if waiting == Waiting::Task => self.read_for_all(key, hash, leader).await?,
            leader => {
                let value = self.read_flash(key, hash, waiting).await?;
                match leader {
                    Some(leader) => self.promote(key, hash, value, &leader),
                    None => {
                        let pieces = pieces_of(&value);
                        Item::from_flash(value, pieces)
                    }
                }
            }
        };
        self.counters.hit_flash();
        Some(found)
    }

    async fn read_flash(&self, key: &[u8], hash: KeyHash, waiting: Waiting) -> Option<FlashValue> {
        let mut value = self.flash.as_ref()?.read(hash, key, waiting).await?;
        if self.removals.contain(key) {
            self.remove(key);
            return None;
        }
        value.tag = tag::within(value.tag, self.pools);
        Some(value)
    }

    /// Reads a value from flash in a task that every caller of the key drives.
    async fn read_for_all(&self, key: &[u8], hash: KeyHash, leader: Leader) -> Option<Item<'_>> {
        let engine = self.me.upgrade()?;
        let (fetch, found) = (leader.fetch(), Arc::new(Mutex::new(None)));
        let (key, result): (Box<[u8]>, _) = (key.into(), Arc::clone(&found));
        fetch.set_work(Box::pin(async move {
            if let Some(value) = engine.read_flash(&key, hash, Waiting::Task).await {
                let item = engine.promote(&key, hash, value, &leader);
                *result.lock() = Some(OwnedItem::new(&engine, item));
            }
        }));
        fetch.wait(None).await;
        let found = found.lock().take()?;
        Some(found.lend(&self.dram))
    }

    /// Copies a value read from flash to DRAM, if memory is available immediately and the fetch was not overtaken. Otherwise only the
    /// caller gets the value.
    fn promote<'a>(&'a self, key: &[u8], hash: KeyHash, value: FlashValue, leader: &Leader) -> Item<'a> {
        let pieces = pieces_of(&value);
        let Ok((draft, links)) = self.drafts_of(key, hash, &value, &pieces) else {
            return Item::from_flash(value, pieces);
        };
        let mut lock = self.dram.lock(hash);
        if leader.overtaken() || lock.find(key).is_some() {
            drop(lock);
            return Item::from_flash(value, pieces);
        }
        let replaced = lock.link(draft);
        debug_assert!(replaced.is_none(), "nothing was linked under this lock");
        for link in links {
            // The parent is linked and locked, so this fails only if it has just expired.
            drop(lock.add_child(key, link));
        }
        let Some(handle) = lock.find(key) else { return Item::from_flash(value, pieces) };
        handle.mark_clean();
        drop(lock);
        self.counters.promoted();
        self.emit_item(EventKind::Promoted, key, hash, handle.len(), handle.expiry_seconds());
        Item::in_dram(handle, Layer::Flash)
    }

    /// Copies an item read from flash to drafts: the item itself and its chained items, oldest first, so that the newest becomes the head.
    pub(crate) fn drafts_of(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &FlashValue,
        pieces: &[Range<usize>],
    ) -> Result<(Draft<'_>, Vec<Draft<'_>>), AllocateError> {
        let crossing = self.crossing();
        let pool = PoolId(tag::pool_of(value.tag));
        let parent = &value[pieces.first().cloned().unwrap_or(0..value.len())];
        let room = self.dram.allocate(pool, key, hash, parent.len(), value.expiry_seconds, &crossing);
        let drafts = room.and_then(|room| {
            let links = pieces.iter().skip(1).rev().map(|link| &value[link.clone()]);
            let links = links.map(|link| {
                let room = self.dram.allocate_child(pool, hash, link.len(), &crossing)?;
                Ok(filled(room, link))
            });
            Ok((filled(room, parent), links.collect::<Result<_, _>>()?))
        });
        crossing.caught_panic.resume();
        drafts
    }
}

fn filled<'a>(mut draft: Draft<'a>, bytes: &[u8]) -> Draft<'a> {
    draft.copy_from_slice(bytes);
    draft
}

/// The ranges of a chain's pieces in its value on flash; none if it is not a chain.
fn pieces_of(value: &FlashValue) -> Vec<Range<usize>> {
    let pieces = if tag::is_chained(value.tag) { chain::pieces(value) } else { None };
    pieces.unwrap_or_default()
}
