//! Room for a write where all is dirty.
//!
//! A write that finds nothing clean in its set could go to the disk past the cache, as Flashcache's did. Then it is as slow as
//! the disk all the same, and takes the disk from the cleaning: the next write finds no room either, and the cache, full of
//! what was written long ago, is of no use any more to what is written now. So the write waits for the cleaning: the disk gets
//! neighbours together, and what is written often comes in.
//!
//! Who waits stands in a queue, lest others who come when something is clean take it first; and one or two of them clean for all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Shared;
use super::error::{Result, VolumeErrorKind};
use super::state::State;
use super::writeback::Batch;
use crate::sets::Cleaning;

/// How long it waits when what is in the way is in use, and soon will not be.
const IN_USE_NS: u64 = 100_000;

/// So many of them clean at once: what one has written is flushed, and what the next will write committed, while the disk is busy
/// with another's. With one, it stood idle for a quarter of the time.
const MAKERS: u32 = 2;

/// A set without room, and how many slots a write needs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) set: u32,
    pub(super) blocks: u32,
}

/// Writes that wait for something to be cleaned, in the order they came.
#[derive(Default)]
pub(super) struct RoomQueue {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// Of them, so many clean.
    makers: u32,
}

struct Waiting {
    number: u64,
    lack: Lack,
    /// Nothing is gained by waiting: the disk takes nothing of what is dirty there.
    is_in_vain: bool,
}

impl RoomQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What they wait for, in the order they came, each with what those before him need in his set.
    pub(super) fn lacks(&self) -> Vec<Lack> {
        let mut needed: HashMap<u32, u32> = HashMap::new();
        let sum = |&Waiting { lack: Lack { set, blocks }, .. }: &Waiting| {
            let sum = needed.entry(set).or_default();
            *sum += blocks;
            Lack { set, blocks: *sum }
        };
        self.waiting.iter().map(sum).collect()
    }

    /// In these sets nothing can be cleaned for now.
    pub(super) fn give_up(&mut self, is_hopeless: impl Fn(u32) -> bool) {
        for waiting in self.waiting.iter_mut().filter(|waiting| is_hopeless(waiting.lack.set)) {
            waiting.is_in_vain = true;
        }
    }

    /// Whether somebody waits for room in `set` who came before whoever has `place`, or who has none.
    pub(super) fn is_before(&self, place: Option<&Place>, set: u32) -> bool {
        let is_earlier = |waiting: &&Waiting| place.is_none_or(|place| waiting.number < place.number);
        self.waiting.iter().take_while(is_earlier).any(|waiting| waiting.lack.set == set)
    }
}

/// A place in the queue.
pub(super) struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Place {
    /// The last one.
    pub(super) fn at_end(shared: &Arc<Shared>, lack: Lack) -> Self {
        let number = {
            let mut state = shared.state.lock();
            state.io.room_waits += 1;
            let queue = &mut state.room;
            queue.next_number += 1;
            queue.waiting.push_back(Waiting { number: queue.next_number, lack, is_in_vain: false });
            queue.next_number
        };
        Self { shared: Arc::clone(shared), number }
    }

    /// Whether nothing is gained by waiting.
    pub(super) fn is_in_vain(&self, state: &State) -> bool {
        state.room.waiting.iter().any(|waiting| waiting.number == self.number && waiting.is_in_vain)
    }

    /// Waits until something may be clean where it is lacking.
    pub(super) async fn wait(&self, lack: Lack) -> Result<()> {
        let set = lack.set;
        let shared = &self.shared;
        let made_by_others = shared.room.listen();
        let makes_it = {
            let queue = &mut shared.state.lock().room;
            if let Some(waiting) = queue.waiting.iter_mut().find(|waiting| waiting.number == self.number) {
                waiting.lack = lack;
            }
            let makes_it = queue.makers < MAKERS;
            queue.makers += u32::from(makes_it);
            makes_it
        };
        if !makes_it {
            made_by_others.await;
            return Ok(());
        }
        let making = Making(shared);
        let has_failed = match shared.clean_batch().await {
            Ok(Batch { cleaned: 1.., .. }) => return Ok(()),
            Ok(Batch { failed, .. }) => failed.is_some(),
            // It is not the error of what is to be written, which may go past the cache and find out.
            Err(error) if error.kind() == VolumeErrorKind::Disk => true,
            Err(error) => return Err(error),
        };
        if has_failed {
            shared.state.lock().room.give_up(|_| true);
            return Ok(());
        }
        let are_under_way = {
            let mut state = shared.state.lock();
            if state.sets.is_hopeless(set) {
                state.room.give_up(|given_up| given_up == set);
                return Ok(());
            }
            state.sets.cleanings_under_way() > 0
        };
        // Others need not be told: they would find as little to clean, and tell this one.
        making.end();
        // The upkeep may have as many under way as there may be. All of them end.
        if are_under_way {
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

impl State {
    /// The next runs for those who wait, in the order they came, and nothing else as long as one of them gains by it: each
    /// waits until all of them are flushed. Not more than leave the [others](MAKERS) some.
    pub(super) fn next_for_room(&mut self) -> Vec<Cleaning> {
        let most = (self.sets.tuning().cleanings_total / MAKERS).max(1) as usize;
        self.sets.forget_lack_of_room();
        let mut runs = Vec::new();
        for Lack { set, blocks } in self.room.lacks() {
            while runs.len() < most && self.sets.ask_for_room(set, blocks) {
                let Some(cleaning) = self.next_cleaning() else { return runs };
                runs.push(cleaning);
            }
        }
        if runs.is_empty() {
            runs.extend(self.next_cleaning());
        }
        runs
    }
}

/// Somebody makes room; when he ends or goes away, others are told that they may.
struct Making<'a>(&'a Arc<Shared>);

impl Making<'_> {
    /// It ends without telling anybody.
    fn end(self) {
        self.0.state.lock().room.makers -= 1;
        std::mem::forget(self);
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.state.lock().room.makers -= 1;
        self.0.room.notify(usize::MAX);
    }
}
