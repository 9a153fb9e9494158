//! Reports the items that have left the cache to its callbacks.

use super::Soc;
use super::bucket::BucketId;
use super::change::Left;
use super::leaving::LeavingState;
use crate::config::Removal;
use crate::flash::DestructorCallback;

impl Soc {
    /// Calls `on_destructor` with each item that is [forgotten for a reason](Self::forget_with_destructor), and reports expired items to
    /// the eviction callback too.
    #[must_use]
    pub fn with_destructor(mut self, on_destructor: DestructorCallback) -> Self {
        self.on_destructor = Some(on_destructor);
        self
    }

    /// Calls the destructors of items that were forgotten before their buckets were written. The caller holds no key's lock.
    pub fn destroy_dropped(&self) {
        let Some(on_destructor) = &self.on_destructor else { return };
        let dropped = std::mem::take(&mut *self.dropped.lock());
        for (waiter, why) in dropped {
            let Some(left) = Left::of_waiter(&waiter) else { continue };
            on_destructor(&left.item(self.config.hash_seed, &[&left.value]), why);
        }
    }

    /// Whether an item that is no longer in its bucket has left the cache; `false` if it was stored again or removed. If removed,
    /// `reason` is set to the reason for its destructor call, if any.
    pub(super) fn take_out(&self, id: BucketId, left: &Left, reason: &mut Option<Removal>) -> bool {
        let mut shard = self.shard(id).lock();
        if self.on_destructor.is_none() {
            return shard.waits(id, left.fingerprint).is_none();
        }
        match shard.end_leaving(id, left.fingerprint) {
            Some(LeavingState::Leaves) => true,
            Some(LeavingState::Forgotten(why)) => {
                *reason = why;
                false
            }
            Some(LeavingState::StoredAgain) | None => false,
        }
    }

    /// Reports the items that have left the cache.
    pub(super) fn report_left(&self, id: BucketId, left: &[Left]) {
        for left in left {
            let mut destructor_reason = left.destructor_reason;
            let value: &[&[u8]] = &[&left.value];
            if destructor_reason.is_none()
                && let Some(on_eviction) = &self.on_eviction
            {
                on_eviction(&left.item(self.config.hash_seed, value), &mut || {
                    self.take_out(id, left, &mut destructor_reason)
                });
            }
            if let (Some(why), Some(on_destructor)) = (destructor_reason, &self.on_destructor) {
                on_destructor(&left.item(self.config.hash_seed, value), why);
            }
        }
    }
}
