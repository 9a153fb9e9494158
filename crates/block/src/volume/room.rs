//! Room for a write where all is dirty.
//!
//! A write that finds nothing clean in its set could go to the disk past the cache, as Flashcache's did. Then it is as slow as
//! the disk all the same, and takes the disk from the cleaning: the next write finds no room either, and the cache, full of
//! what was written long ago, is of no use any more to what is written now. So the write waits for the cleaning: the disk gets
//! neighbours together, and what is written often comes in.
//!
//! Who waits stands in a queue, lest others who come when something is clean take it first; and one of them cleans for all.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Shared;
use super::error::Result;
use super::writeback::Batch;

/// How long it waits when what is in the way is in use, and soon will not be.
const IN_USE_NS: u64 = 100_000;

/// Writes that wait for something to be cleaned, in the order they came.
#[derive(Default)]
pub(super) struct RoomQueue {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// One of them cleans.
    is_being_made: bool,
}

struct Waiting {
    number: u64,
    set: u32,
}

impl RoomQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Where they wait for it: the set of who came first is first, and one of which several wait is there as often.
    pub(super) fn sets(&self) -> Vec<u32> {
        self.waiting.iter().map(|waiting| waiting.set).collect()
    }

    /// Whether somebody waits for room in `set` who came before whoever has `place`, or who has none.
    pub(super) fn is_before(&self, place: Option<&Place>, set: u32) -> bool {
        let is_earlier = |waiting: &&Waiting| place.is_none_or(|place| waiting.number < place.number);
        self.waiting.iter().take_while(is_earlier).any(|waiting| waiting.set == set)
    }
}

/// A place in the queue.
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
    is_in_vain: bool,
}

impl Place {
    /// The last one, for somebody who waits for room in `set`.
    pub(super) fn at_end(shared: &Arc<Shared>, set: u32) -> Self {
        let number = {
            let mut state = shared.state.lock();
            state.io.room_waits += 1;
            let queue = &mut state.room;
            queue.next_number += 1;
            queue.waiting.push_back(Waiting { number: queue.next_number, set });
            queue.next_number
        };
        Self { shared: Arc::clone(shared), number, is_in_vain: false }
    }

    /// Whether nothing is gained by waiting: the disk takes nothing of what is dirty.
    pub(super) fn is_in_vain(&self) -> bool {
        self.is_in_vain
    }

    /// Waits until something may be clean in `set`.
    pub(super) async fn wait(&mut self, set: u32) -> Result<()> {
        let shared = &self.shared;
        let made_by_others = shared.room.listen();
        let makes_it = {
            let queue = &mut shared.state.lock().room;
            if let Some(waiting) = queue.waiting.iter_mut().find(|waiting| waiting.number == self.number) {
                waiting.set = set;
            }
            !std::mem::replace(&mut queue.is_being_made, true)
        };
        if !makes_it {
            made_by_others.await;
            return Ok(());
        }
        let _making = Making(shared);
        let Batch { cleaned, failed } = shared.clean_batch().await?;
        self.is_in_vain = cleaned == 0 && failed.is_some();
        if cleaned > 0 || self.is_in_vain {
            return Ok(());
        }
        // The upkeep may have as many under way as there may be. All of them end.
        if shared.state.lock().sets.cleanings_under_way() > 0 {
            made_by_others.await;
        } else {
            device::timer::sleep(&*shared.timer, IN_USE_NS).await;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.state.lock().room.waiting.retain(|waiting| waiting.number != self.number);
        // Whoever it was before may be the first now.
        self.shared.room.notify(usize::MAX);
    }
}

/// Somebody makes room; when he ends, others may.
struct Making<'a>(&'a Arc<Shared>);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.state.lock().room.is_being_made = false;
        self.0.room.notify(usize::MAX);
    }
}
