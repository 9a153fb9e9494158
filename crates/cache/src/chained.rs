//! Chained items: they are inserted, evicted and promoted with their parent.

use std::ops::Range;

use device::event_loop;

use crate::dram::AllocateError;
use crate::error::Refusal;
use crate::event::EventKind;
use crate::flash::{FlashValue, Waiting};
use crate::hybrid::Engine;
use crate::{Cache, KeyHash};

impl Cache {
    /// Adds a chained item of `value_len` bytes to the item under `key`; `fill` writes it. The item and its chain are pinned meanwhile and
    /// are not evicted for it: if chained items occupy all memory of their size class, the next one is refused as
    /// [`AllPinned`](Refusal::AllPinned).
    ///
    /// # Errors
    /// [`Refusal::NoParent`] if there is no such item, or the reason why the chained item cannot be allocated.
    pub async fn add_chained(
        &self,
        key: &[u8],
        value_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        self.engine.add_chained(key, value_len, fill, Waiting::Task).await
    }

    /// As [`add_chained`](Self::add_chained), on this thread.
    ///
    /// # Errors
    /// As [`add_chained`](Self::add_chained).
    pub fn add_chained_blocking(
        &self,
        key: &[u8],
        value_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        event_loop::wait_for(self.engine.add_chained(key, value_len, fill, Waiting::Thread))
    }
}

impl Engine {
    async fn add_chained(
        &self,
        key: &[u8],
        value_len: usize,
        fill: impl FnOnce(&mut [u8]),
        waiting: Waiting,
    ) -> Result<(), Refusal> {
        self.assert_not_in_callback("insert an item into");
        if self.closing.has_begun() {
            return Err(Refusal::Closed);
        }
        let hash = self.hash_of(key);
        let chained = self.chain(key, hash, value_len, fill, waiting).await;
        self.counters.chained(chained);
        let kind = chained.map_or_else(EventKind::NotChained, |()| EventKind::Chained);
        self.emit_item(kind, key, hash, value_len, 0);
        chained
    }

    async fn chain(
        &self,
        key: &[u8],
        hash: KeyHash,
        value_len: usize,
        fill: impl FnOnce(&mut [u8]),
        waiting: Waiting,
    ) -> Result<(), Refusal> {
        // The parent must be in DRAM and stay there; a get copies it from flash if memory is available immediately.
        let parent = loop {
            let found = self.get(key, waiting).await.ok_or(Refusal::NoParent)?;
            match found.on_flash_alone() {
                Some((value, pieces)) => self.wait_for_room(key, hash, value, pieces).await?,
                None => break found,
            }
        };
        let pool = parent.pool();
        let mut link = loop {
            let crossing = self.crossing();
            let room = self.dram.allocate_child(pool, hash, value_len, &crossing);
            crossing.caught_panic.resume();
            drop(crossing);
            match (room, &self.flash) {
                (Ok(link), _) => break link,
                (Err(AllocateError::Busy), Some(flash)) => flash.wait_ready().await,
                (Err(error), _) => return Err(error.into()),
            }
        };
        fill(&mut link);
        let mut lock = self.dram.lock(hash);
        lock.add_child(key, link).map_err(|_| Refusal::NoParent)?;
        // The copy on flash lacks the new chained item.
        self.displace(hash, key, None);
        drop(lock);
        self.acknowledge();
        Ok(())
    }

    /// Waits until DRAM can allocate memory for an item that was read from flash.
    pub(crate) async fn wait_for_room(
        &self,
        key: &[u8],
        hash: KeyHash,
        value: &FlashValue,
        pieces: &[Range<usize>],
    ) -> Result<(), Refusal> {
        loop {
            match (self.drafts_of(key, hash, value, pieces).map(drop), &self.flash) {
                (Err(AllocateError::Busy), Some(flash)) => flash.wait_ready().await,
                (room, _) => return Ok(room?),
            }
        }
    }
}
