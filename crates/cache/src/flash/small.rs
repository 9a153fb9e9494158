//! The engine for small items of a pair: sets or a log, by configuration.

use super::log::{self, HashLog};
use super::soc::{self, NotStaged, Progress, Soc, SocStats};
use super::{DestructorCallback, FlashItem, FlashValue, Waiting};
use crate::KeyHash;
use crate::config::Removal;

/// An engine for small items.
pub(crate) enum SmallEngine {
    Sets(Box<Soc>),
    Log(Box<HashLog>),
}

/// An item copied to the engine's memory, not visible yet.
pub(crate) enum StagedSmall<'a> {
    Sets(soc::Staged<'a>),
    Log(log::Staged),
}

/// Calls the same method of either engine.
macro_rules! either {
    ($engine:expr, $it:ident => $call:expr) => {
        match $engine {
            SmallEngine::Sets($it) => $call,
            SmallEngine::Log($it) => $call,
        }
    };
}

impl SmallEngine {
    pub(crate) fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        either!(self, it => it.fits(key_bytes, value_bytes))
    }

    pub(crate) fn max_item_bytes(&self) -> usize {
        either!(self, it => it.max_item_bytes())
    }

    pub(crate) fn stage(&self, item: &FlashItem<'_>) -> Result<StagedSmall<'_>, NotStaged> {
        match self {
            Self::Sets(sets) => sets.stage(item).map(StagedSmall::Sets),
            Self::Log(log) => log.stage(item).map(StagedSmall::Log),
        }
    }

    /// Makes an item visible that this engine staged.
    pub(crate) fn commit(&self, staged: StagedSmall<'_>) {
        match (self, staged) {
            (Self::Sets(sets), StagedSmall::Sets(staged)) => sets.commit(staged),
            (Self::Log(log), StagedSmall::Log(staged)) => log.commit(staged),
            _ => unreachable!("an item is committed to the engine that staged it"),
        }
    }

    /// Removes a key. `reason` is the reason to call the item's destructor, if it must be called.
    pub(crate) fn forget_with_destructor(&self, hash: KeyHash, key: &[u8], reason: Option<Removal>) -> bool {
        either!(self, it => it.forget_with_destructor(hash, key, reason))
    }

    /// Calls the destructors of items that were removed before they were written.
    pub(crate) fn destroy_dropped(&self) {
        either!(self, it => it.destroy_dropped());
    }

    /// Calls the destructors of removed items that can be read without a write.
    pub(crate) async fn destroy_removed(&self, waiting: Waiting) {
        match self {
            Self::Sets(sets) => sets.destroy_dropped(),
            Self::Log(log) => log.destroy_removed(waiting).await,
        }
    }

    /// Calls `on_destructor` for removed items that have a destructor.
    pub(crate) fn with_destructor(self, on_destructor: DestructorCallback) -> Self {
        match self {
            Self::Sets(sets) => Self::Sets(Box::new(sets.with_destructor(on_destructor))),
            Self::Log(log) => Self::Log(Box::new(log.with_destructor(on_destructor))),
        }
    }

    /// Waits until all removals so far are recorded, if the cache is recovered after a kill.
    pub(crate) fn acknowledge(&self) {
        either!(self, it => it.acknowledge());
    }

    pub(crate) fn clear(&self) {
        either!(self, it => it.clear());
    }

    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        either!(self, it => it.may_contain(hash))
    }

    pub(crate) async fn read(
        &self,
        hash: KeyHash,
        key: &[u8],
        waiting: Waiting,
        now_seconds: u32,
    ) -> Option<FlashValue> {
        either!(self, it => it.read(hash, key, waiting, now_seconds).await)
    }

    pub(crate) async fn wait_ready(&self, waiting: Waiting) {
        either!(self, it => it.wait_ready(waiting).await);
    }

    pub(crate) fn wants_step(&self) -> bool {
        either!(self, it => it.wants_step())
    }

    pub(crate) async fn wait_work(&self, waiting: Waiting) {
        either!(self, it => it.wait_work(waiting).await);
    }

    pub(crate) async fn step(&self, waiting: Waiting, now_seconds: u32) -> Progress {
        either!(self, it => it.step(waiting, now_seconds).await)
    }

    pub(crate) async fn settle(&self) {
        either!(self, it => it.settle().await);
    }

    pub(crate) async fn drain(&self, waiting: Waiting, now_seconds: u32) {
        either!(self, it => it.drain(waiting, now_seconds).await);
    }

    pub(crate) async fn visit_keys(&self, waiting: Waiting, visit: &mut impl FnMut(&[u8])) {
        either!(self, it => it.visit_keys(waiting, visit).await);
    }

    pub(crate) fn is_failing(&self) -> bool {
        either!(self, it => it.is_failing())
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        either!(self, it => it.last_error())
    }

    pub(crate) fn wake_if_due(&self, now_ns: u64) -> Option<u64> {
        either!(self, it => it.wake_if_due(now_ns))
    }

    pub(crate) fn stats(&self) -> SocStats {
        either!(self, it => it.stats())
    }

    pub(crate) fn room_bytes(&self) -> (u64, u64) {
        either!(self, it => it.room_bytes())
    }

    /// Upper limit of the memory for items that wait to be written.
    pub(crate) fn buffer_limit_bytes(&self) -> usize {
        match self {
            Self::Sets(sets) => sets.config().pending_limit_bytes,
            Self::Log(log) => log.buffer_limit_bytes(),
        }
    }

    /// Memory of filters or index.
    pub(crate) fn index_bytes(&self) -> usize {
        match self {
            Self::Sets(sets) => sets.memory_bytes() - sets.config().pending_limit_bytes,
            Self::Log(log) => log.index_bytes(),
        }
    }

    /// Bytes of the snapshot.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        match self {
            Self::Sets(sets) => sets.config().snapshot_bytes(),
            Self::Log(log) => log::snapshot_bytes(log.config()),
        }
    }

    /// The snapshot, in pieces. The engine must be drained.
    pub(crate) fn snapshot(&self) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        match self {
            Self::Sets(sets) => Box::new(sets.snapshot()),
            Self::Log(log) => Box::new(log.snapshot()),
        }
    }
}
