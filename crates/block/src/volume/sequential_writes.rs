//! Sequential writes in a mode that keeps dirty blocks: which of them bypass the cache.
//!
//! A sequential write is cached if its sets stay below their limit of dirty blocks. Otherwise it goes to the disk, which it would
//! share with cleaning, whose head movements make it slower than the disk alone.

use std::ops::Range;
use std::sync::Arc;

use super::inner::Inner;
use super::shared::Shared;
use super::state::{IncomingBlocks, State};

/// A cached sequential write in flight.
pub(super) struct CachedWrite {
    shared: Arc<Shared>,
    blocks: IncomingBlocks,
}

impl Drop for CachedWrite {
    fn drop(&mut self) {
        let coming = &mut self.shared.state.lock().incoming_blocks;
        for (set, blocks) in &self.blocks {
            let left = coming.get_mut(set).map_or(0, |left| {
                *left -= blocks;
                *left
            });
            if left == 0 {
                coming.remove(set);
            }
        }
    }
}

impl Inner {
    /// Decides whether a sequential write of `blocks` is cached. If so, it counts as dirty until the result is dropped; `None` if it
    /// bypasses the cache.
    pub(super) fn cache_sequential(&self, state: &mut State, blocks: Range<u64>) -> Option<CachedWrite> {
        let mut by_set = IncomingBlocks::new();
        for block in blocks {
            let is_dirty = state.sets.find(block).is_some_and(|slot| state.sets.word(slot).is_dirty());
            if !is_dirty {
                *by_set.entry(state.sets.set_of(block)).or_default() += 1;
            }
        }
        let limit = state.sets.dirty_limit();
        let fits = |(set, blocks): (&u32, &u32)| {
            let coming = state.incoming_blocks.get(set).copied().unwrap_or(0);
            state.sets.set(*set).dirty + coming + blocks <= limit
        };
        if !by_set.iter().all(fits) {
            return None;
        }
        for (set, blocks) in &by_set {
            *state.incoming_blocks.entry(*set).or_default() += blocks;
        }
        Some(CachedWrite { shared: Arc::clone(&self.shared), blocks: by_set })
    }
}
