//! Inserts that wait for a limited time while flash writes are behind, and cancelled inserts.

use std::time::Duration;

use device::event_loop;

use crate::Cache;
use crate::close::within;
use crate::error::{Inserted, Refusal};
use crate::hybrid::Engine;
use crate::new_item::InsertOptions;

impl Cache {
    /// As [`insert`](Self::insert), but does not wait: if DRAM is full and flash writes are behind, the item is refused as
    /// [`FlashBehind`](Refusal::FlashBehind), and the old value is removed.
    pub fn try_insert(&self, key: &[u8], value: &[u8], options: impl Into<InsertOptions>) -> Inserted {
        let options = options.into();
        let room = self.engine.allocate_now(key, value.len(), options);
        let room = room.and_then(|room| room.ok_or_else(|| self.engine.refused(key, Refusal::FlashBehind)));
        self.fill(room, key, value)
    }

    /// As [`insert`](Self::insert), but it waits for at most `limit` by the machine's clock, and then refuses the item as
    /// [`FlashBehind`](Refusal::FlashBehind).
    pub async fn insert_within(
        &self,
        key: &[u8],
        value: &[u8],
        options: impl Into<InsertOptions>,
        limit: Duration,
    ) -> Inserted {
        let options = options.into();
        let cancelled = RemoveOnDrop::new(&self.engine, key);
        let room = match self.engine.allocate_now(key, value.len(), options) {
            Ok(None) => within(limit, self.engine.allocate(key, value.len(), options)).await,
            Ok(Some(room)) => Some(Ok(room)),
            Err(refusal) => Some(Err(refusal)),
        };
        cancelled.disarm();
        let room = room.unwrap_or_else(|| Err(self.engine.refused(key, Refusal::FlashBehind)));
        self.fill(room, key, value)
    }

    /// As [`insert_within`](Self::insert_within), on this thread.
    pub fn insert_within_blocking(
        &self,
        key: &[u8],
        value: &[u8],
        options: impl Into<InsertOptions>,
        limit: Duration,
    ) -> Inserted {
        event_loop::wait_for(self.insert_within(key, value, options, limit))
    }
}

/// Removes the key of an insert that is dropped while it waits, so that its caller does not find the old value, which it meant to
/// replace.
pub(crate) struct RemoveOnDrop<'a> {
    /// `None` after the insert ended.
    pending: Option<(&'a Engine, &'a [u8])>,
}

impl<'a> RemoveOnDrop<'a> {
    pub(crate) fn new(engine: &'a Engine, key: &'a [u8]) -> Self {
        Self { pending: Some((engine, key)) }
    }

    pub(crate) fn disarm(mut self) {
        self.pending = None;
    }
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((engine, key)) = self.pending {
            engine.remove(key);
        }
    }
}
