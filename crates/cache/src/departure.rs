//! Items that leave the cache: calls of the item destructor, and reports of items evicted from flash.

use crate::config::{Destroyed, Removal};
use crate::dram::{Handle, KeyLock};
use crate::event::{Event, EventKind};
use crate::flash::FlashItem;
use crate::flash::tier::FlashTier;
use crate::hybrid::{Engine, own_value};
use crate::item::Layer;
use crate::listener::CaughtPanic;

impl Engine {
    /// The reason to call the destructor for the copy on flash when a key is removed or replaced. `None` if DRAM holds the item too:
    /// the destructor is then called with the copy in DRAM.
    pub(crate) fn destructor_reason(&self, lock: &KeyLock<'_>, key: &[u8], why: Removal) -> Option<Removal> {
        (self.destructor.is_some() && lock.find_even_expired(key).is_none()).then_some(why)
    }

    /// Calls the destructor for an item that left DRAM and the cache, and for items dropped on their way to flash.
    #[inline]
    pub(crate) fn destroy(&self, item: Option<&Handle<'_>>, reason: Removal) {
        let Some(destructor) = &self.destructor else { return };
        if let Some(item) = item {
            destructor.call(&Destroyed { key: item.key(), value: item, reason, layer: Layer::Dram });
        }
        self.flash.iter().for_each(FlashTier::destroy_dropped);
    }

    /// Calls the destructor for an item that left the cache and was on flash only.
    pub(crate) fn destroy_on_flash(&self, item: &FlashItem<'_>, reason: Removal) {
        if let Some(destructor) = &self.destructor {
            let (key, value) = (item.key, own_value(item));
            destructor.call(&Destroyed { key, value, reason, layer: Layer::Flash });
        }
    }

    /// Handles an item that is evicted from flash or has expired there; `take_out` removes it. If DRAM also holds the item, it stays in
    /// the cache and is marked dirty: otherwise DRAM would drop it without writing it, because a filter may still claim that flash has
    /// a copy.
    pub(crate) fn left_flash(&self, item: &FlashItem<'_>, take_out: &mut dyn FnMut() -> bool) {
        let Some(has_left) = self.take_out_of_flash(item, take_out) else { return };
        let expired = item.expiry_seconds != 0 && item.expiry_seconds <= self.clock.unix_seconds();
        if has_left {
            let reason = if expired { Removal::Expired } else { Removal::EvictedFromFlash };
            self.destroy_on_flash(item, reason);
        }
        if let Some(events) = &self.events {
            let event = Event::new(EventKind::EvictedFromFlash { expired }, item.key, item.hash);
            events.emit(&event.of(own_value(item).len(), item.expiry_seconds));
        }
        if expired {
            return;
        }
        if let Some(held) = self.dram.peek(item.key, item.hash) {
            return held.mark_dirty();
        }
        let Some(on_evict) = &self.on_evict else { return };
        // The panic was already printed by the panic hook, and there is no caller to pass it to.
        on_evict.notify(item.key, own_value(item), Removal::EvictedFromFlash, &CaughtPanic::default());
    }

    /// Removes an evicted item from flash; `None` if it was removed or stored again in the meantime. Returns whether its destructor must
    /// be called. That is decided under the key's lock: an item in DRAM stays in the cache, and a concurrent read of the item is
    /// prevented from copying it to DRAM.
    fn take_out_of_flash(&self, item: &FlashItem<'_>, take_out: &mut dyn FnMut() -> bool) -> Option<bool> {
        if self.destructor.is_none() {
            return take_out().then_some(false);
        }
        let lock = self.dram.lock(item.hash);
        if !take_out() {
            return None;
        }
        let held = lock.find_even_expired(item.key);
        match &held {
            Some(held) => held.mark_dirty(),
            None => self.in_flight.overtake(item.hash),
        }
        drop(lock);
        Some(held.is_none())
    }
}
