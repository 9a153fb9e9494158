//! Why a write cannot proceed now: missing slots, pages or journal space, or blocks in use; and what to wait for.

use super::segment::Part;
use super::slot_queue::SlotDemand;
use super::state::State;
use crate::sets::{Admit, Mode, Word};

/// The event that a segment waits for.
pub(super) enum WaitFor {
    /// A commit that frees pages or journal space.
    Commit(u64),
    /// The destaging of an epoch.
    Order,
    /// Clean slots in a set.
    Slots(SlotDemand),
    /// The end of other requests.
    Requests,
}

/// Why a segment cannot be written now.
pub(super) enum WriteBlocker {
    /// Too few free pages.
    Pages,
    /// Too little journal space for more changes before the next commit.
    Records,
    /// A block that must leave the cache is in use or being cleaned.
    Cleaning,
}

/// What removes the obstacle.
pub(super) fn wait_for(obstacle: &WriteBlocker, state: &State) -> WaitFor {
    match obstacle {
        WriteBlocker::Pages if state.journal.released_pages() > 0 => {
            WaitFor::Commit(state.journal.last_change())
        }
        WriteBlocker::Records => {
            state.journal.space_freeing_change().map_or(WaitFor::Requests, WaitFor::Commit)
        }
        WriteBlocker::Pages if state.epochs.as_ref().is_some_and(|epochs| epochs.len() > 0) => WaitFor::Order,
        WriteBlocker::Pages | WriteBlocker::Cleaning => WaitFor::Requests,
    }
}

/// The first set in which a segment finds too few slots, although cleaning could free some, or earlier writes wait for them.
/// Ordered volumes wait for epochs instead.
pub(super) fn slot_shortage(
    state: &State,
    parts: &[Part],
    admit: Admit,
    queued: Option<u64>,
) -> Option<SlotDemand> {
    let comes_in = admit == Admit::Yes && state.sets.tuning().mode.keeps_dirty();
    let may_wait = state.health.is_healthy()
        && state.epochs.is_none()
        && !queued.is_some_and(|queued| state.slot_queue.is_futile(queued));
    if !comes_in || !may_wait {
        return None;
    }
    let slot_for = |part: &Part| {
        let word = state.sets.find(part.block).map(|slot| state.sets.word(slot));
        // A clean block of the segment may be evicted for another block of the segment before it is written.
        word.is_none_or(Word::can_evict).then(|| (state.sets.set_of(part.block), word.is_none()))
    };
    let mut slots: Vec<(u32, bool)> = parts.iter().filter_map(slot_for).collect();
    slots.sort_unstable();
    let demand = |of_set: &[(u32, bool)]| {
        let demand = SlotDemand { set: of_set[0].0, blocks: of_set.len() as u32 };
        let brings_any = of_set.iter().any(|&(_, is_new)| is_new);
        let has_space = || {
            !state.slot_queue.is_before(queued, demand.set)
                && state.sets.has_slots_for(demand.set, demand.blocks)
        };
        (brings_any && !has_space()).then_some(demand)
    };
    slots.chunk_by(|one, other| one.0 == other.0).find_map(demand)
}

/// Whether a write of the block goes to the disk only.
fn bypasses_cache(state: &State, part: &Part, admit: Admit) -> bool {
    let is_dirty = || state.sets.find(part.block).is_some_and(|slot| state.sets.word(slot).is_dirty());
    (state.sets.tuning().mode == Mode::WriteAround || admit == Admit::Bypass) && !is_dirty()
}

/// Number of blocks whose write needs journal space: all but those that are not cached and stay so, or the dirty ones if recovery
/// restores no clean ones.
pub(super) fn changing_blocks(state: &State, parts: &[Part], admit: Admit) -> usize {
    let changes = |part: &&Part| {
        let cached = state.sets.find(part.block);
        match state.journal.recovers_clean() {
            true => !bypasses_cache(state, part, admit) || cached.is_some(),
            false => cached.is_some_and(|slot| state.sets.word(slot).is_dirty()),
        }
    };
    parts.iter().filter(changes).count()
}

pub(super) fn obstacle(state: &State, parts: &[Part], admit: Admit) -> Option<WriteBlocker> {
    let word = |part: &Part| state.sets.find(part.block).map(|slot| state.sets.word(slot));
    let in_use = |word: Word| word.is_cleaning() || word.pins() > 0;
    if !state.health.is_healthy() {
        // A write that the failed flash permits removes the block from the cache.
        let is_to_leave = |part: &&Part| !state.may_be_recovered(part.block);
        let waits = parts.iter().filter(is_to_leave).any(|part| word(part).is_some_and(in_use));
        return waits.then_some(WriteBlocker::Cleaning);
    }
    if !state.has_space_for_changes(changing_blocks(state, parts, admit)) {
        return Some(WriteBlocker::Records);
    }
    let bypasses_cache = |part: &Part| bypasses_cache(state, part, admit);
    if parts.iter().any(|part| bypasses_cache(part) && word(part).is_some_and(in_use)) {
        return Some(WriteBlocker::Cleaning);
    }
    // A segment falls into few groups, so sorting is the cheapest way to count.
    let to_flash = parts.iter().filter(|part| !bypasses_cache(part));
    let mut groups: Vec<u32> = to_flash.map(|part| state.group_of(part.block)).collect();
    groups.sort_unstable();
    let is_short = |group: &[u32]| (state.pages.free_in(group[0]) as usize) < group.len();
    groups.chunk_by(|one, other| one == other).any(is_short).then_some(WriteBlocker::Pages)
}
