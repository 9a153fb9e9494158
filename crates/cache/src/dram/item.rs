//! The header of an item, and the meaning of its state word.
//!
//! ```text
//! chunk   | state u32 | value_len u32 | expiry u32 | touched u32 | key_len u16, tag u16 | key … | value … | unused |
//!           0           4               8            12            16                     20
//! state   | flags, 8 bits | marks, 2 bits | references, 22 bits |
//! ```
//!
//! All fields are atomic, because evictors and statistics read headers while readers change the reference count. Key and value are
//! written while the item is a draft, by its only owner, and never afterwards.

use std::sync::atomic::{AtomicU32, Ordering};

use policy::marks::MOST_HITS;

use crate::sync::step;

/// Bytes in front of the key.
pub const HEADER_BYTES: usize = size_of::<Header>();

const _: () = assert!(HEADER_BYTES == 20, "the drawing above and the memory budget assume 20");

/// The location of an item: slab and chunk in one number. [`super::slab::Arena`] defines the bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemRef(pub(super) u32);

impl ItemRef {
    /// No item; ends a list. The arena never has that many chunks.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// The state word of an item: its reference count and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u32);

impl State {
    /// In the index (a child: in its parent's chain). Changes only under the shard's write lock.
    pub(super) const LINKED: u32 = 1 << 24;
    /// In its class's policy. Changes only under the class lock.
    pub(super) const IN_POLICY: u32 = 1 << 25;
    /// Being filled by the thread that allocated it.
    pub(super) const DRAFT: u32 = 1 << 26;
    /// An evictor handles it. Set under the class lock; cleared by that evictor.
    pub(super) const EVICTING: u32 = 1 << 27;
    /// Flash holds the same value.
    pub(super) const CLEAN: u32 = 1 << 28;
    /// Has a chain of children.
    pub(super) const CHAINED: u32 = 1 << 29;
    /// The item is a child in a chain.
    pub(super) const CHILD: u32 = 1 << 30;
    /// On the class's free list. Changes only under the class lock.
    pub(super) const FREE: u32 = 1 << 31;

    const REFERENCES: u32 = (1 << 22) - 1;
    /// Hits that the policy has not read yet. They share a word with the references, which a hit changes anyway.
    const ONE_MARK: u32 = 1 << 22;
    const MARKS: u32 = Self::ONE_MARK * MOST_HITS as u32;

    /// References: one for the index, one for every handle, one for an evictor.
    pub(super) fn references(self) -> u32 {
        self.0 & Self::REFERENCES
    }

    /// Hits counted since the policy last read them.
    fn marks(self) -> u8 {
        ((self.0 & Self::MARKS) / Self::ONE_MARK) as u8
    }

    /// Whether any of `flags` is set.
    pub(super) fn has(self, flags: u32) -> bool {
        self.0 & flags != 0
    }
}

/// The header of an item, as drawn in the module's comment.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    state: AtomicU32,
    value_len: AtomicU32,
    expiry_seconds: AtomicU32,
    touched_seconds: AtomicU32,
    key_len_and_tag: AtomicU32,
}

impl Header {
    pub(super) fn state(&self) -> State {
        step();
        State(self.state.load(Ordering::Acquire))
    }

    /// Overwrites the state of an item without other references.
    pub(super) fn set_state(&self, flags: u32, references: u32) {
        self.state.store(flags | references, Ordering::Release);
    }

    /// Sets `flags`; returns the previous state.
    pub(super) fn set(&self, flags: u32) -> State {
        step();
        State(self.state.fetch_or(flags, Ordering::AcqRel))
    }

    /// Clears `flags`; returns the previous state.
    pub(super) fn clear(&self, flags: u32) -> State {
        step();
        State(self.state.fetch_and(!flags, Ordering::AcqRel))
    }

    /// Clears some flags and sets others in one step; returns the previous state.
    pub(super) fn exchange(&self, clear: u32, set: u32) -> State {
        step();
        let changed = |state| Some(state & !clear | set);
        State(
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).unwrap_or_else(|same| same),
        )
    }

    /// Adds a reference. The caller ensures that there already is one: it holds the shard's lock on a linked item, or a reference of its
    /// own. Returns the previous state.
    #[inline]
    pub(super) fn pin(&self) -> State {
        step();
        let before = State(self.state.fetch_add(1, Ordering::Relaxed));
        debug_assert!(before.references() > 0, "pinned an item that nothing refers to");
        assert!(before.references() < State::REFERENCES / 2, "handles leak: two million on one item");
        before
    }

    /// Adds a reference and counts a hit for the policy, in one atomic operation. The hit is lost if another thread changes the state
    /// concurrently. Returns the previous state.
    #[inline]
    pub(super) fn pin_marked(&self, at_most: u8) -> State {
        let seen = State(self.state.load(Ordering::Relaxed));
        if seen.marks() < at_most && seen.references() < State::REFERENCES / 2 {
            step();
            let marked = seen.0 + State::ONE_MARK + 1;
            if self.state.compare_exchange(seen.0, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                debug_assert!(seen.references() > 0, "pinned an item that nothing refers to");
                return seen;
            }
        }
        self.pin()
    }

    /// Counts a hit for the policy.
    pub(super) fn mark(&self, at_most: u8) {
        let more = |state| {
            Some(State(state)).filter(|seen| seen.marks() < at_most).map(|seen| seen.0 + State::ONE_MARK)
        };
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Hits counted and not reset.
    #[inline]
    pub(super) fn marks(&self) -> u8 {
        State(self.state.load(Ordering::Relaxed)).marks()
    }

    /// Sets the number of counted hits.
    #[inline]
    pub(super) fn set_marks(&self, count: u8) {
        debug_assert!(count <= MOST_HITS);
        if self.marks() != count {
            self.exchange(State::MARKS, u32::from(count) * State::ONE_MARK);
        }
    }

    /// Drops a reference; returns whether it was the last. Then the caller frees the chunk.
    #[inline]
    pub(super) fn unpin(&self) -> bool {
        step();
        let before = State(self.state.fetch_sub(1, Ordering::AcqRel));
        debug_assert!(before.references() > 0, "unpinned an item that nothing refers to");
        before.references() == 1
    }

    /// Marks a linked item that only the index refers to, and adds the evictor's reference. Called under the class lock.
    pub(super) fn begin_eviction(&self) -> bool {
        self.begin_eviction_of(self.state())
    }

    /// As [`begin_eviction`](Self::begin_eviction), but only if the item's state is still `seen`.
    pub(super) fn begin_eviction_of(&self, seen: State) -> bool {
        let free_to_go = seen.references() == 1 && seen.has(State::LINKED) && !seen.has(State::EVICTING);
        let held = (seen.0 + 1) | State::EVICTING;
        free_to_go && self.state.compare_exchange(seen.0, held, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Turns an item with a single owner into a draft, whether or not a policy still contains it. Its chain was freed or moved.
    pub(super) fn become_draft(&self) {
        debug_assert!(!self.state().has(State::CHAINED), "the chain would never be freed");
        let draft = |state| Some(state & State::IN_POLICY | State::DRAFT | 1);
        let done = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, draft);
        debug_assert!(done.is_ok());
    }

    /// Writes the fields that stay unchanged while the item lives, except expiry and tag.
    pub(super) fn describe(&self, key_len: u16, value_len: u32, expiry_seconds: u32, now_seconds: u32) {
        self.value_len.store(value_len, Ordering::Relaxed);
        self.expiry_seconds.store(expiry_seconds, Ordering::Relaxed);
        self.touched_seconds.store(now_seconds, Ordering::Relaxed);
        self.key_len_and_tag.store(u32::from(key_len), Ordering::Relaxed);
    }

    pub(super) fn key_len(&self) -> usize {
        (self.key_len_and_tag.load(Ordering::Relaxed) & 0xffff) as usize
    }

    pub(super) fn value_len(&self) -> usize {
        self.value_len.load(Ordering::Relaxed) as usize
    }

    /// Size of the item, header included.
    pub(super) fn item_bytes(&self) -> u64 {
        (HEADER_BYTES + self.key_len() + self.value_len()) as u64
    }

    pub(super) fn tag(&self) -> u16 {
        (self.key_len_and_tag.load(Ordering::Relaxed) >> 16) as u16
    }

    pub(super) fn set_tag(&self, tag: u16) {
        let key_len = self.key_len_and_tag.load(Ordering::Relaxed) & 0xffff;
        self.key_len_and_tag.store(u32::from(tag) << 16 | key_len, Ordering::Relaxed);
    }

    pub(super) fn expiry_seconds(&self) -> u32 {
        self.expiry_seconds.load(Ordering::Relaxed)
    }

    pub(super) fn set_expiry_seconds(&self, expiry_seconds: u32) {
        self.expiry_seconds.store(expiry_seconds, Ordering::Relaxed);
    }

    /// Whether the item has expired: from its expiry second on.
    #[inline]
    pub(super) fn is_expired(&self, now_seconds: u32) -> bool {
        let expiry = self.expiry_seconds();
        expiry != 0 && expiry <= now_seconds
    }

    /// The item's last use, with the precision that the hit rule permits.
    pub(super) fn touched_seconds(&self) -> u32 {
        self.touched_seconds.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_touched_seconds(&self, now_seconds: u32) {
        self.touched_seconds.store(now_seconds, Ordering::Relaxed);
    }

    /// The next chunk of the free list. It is stored in the field of the value's length, because a free chunk has no value.
    pub(super) fn next_free(&self) -> ItemRef {
        ItemRef(self.value_len.load(Ordering::Relaxed))
    }

    pub(super) fn set_next_free(&self, next: ItemRef) {
        self.value_len.store(next.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked() -> Header {
        let word = || AtomicU32::new(0);
        let header = Header {
            state: word(),
            value_len: word(),
            expiry_seconds: word(),
            touched_seconds: word(),
            key_len_and_tag: word(),
        };
        header.set_state(State::LINKED | State::CLEAN, 1);
        header
    }

    #[test]
    fn hit_count_saturates_at_its_limit_and_leaves_flags_and_references_unchanged() {
        for at_most in 0..=MOST_HITS {
            let header = linked();
            for hits in 1..=6 {
                header.pin_marked(at_most);
                header.mark(at_most);
                assert_eq!(header.marks(), at_most.min(2 * hits));
                assert_eq!(header.state().references(), u32::from(hits) + 1);
            }
            for count in [0, MOST_HITS, 1] {
                header.set_marks(count);
                assert_eq!((header.marks(), header.state().references()), (count, 7));
            }
            (0..7).for_each(|left| assert_eq!(header.unpin(), left == 6));
            assert_eq!(header.state(), State(State::LINKED | State::CLEAN | State::ONE_MARK));
        }
    }

    #[test]
    fn marked_item_can_be_evicted_and_becomes_a_draft_without_marks() {
        let header = linked();
        header.mark(MOST_HITS);
        assert!(header.begin_eviction(), "only the index refers to it");
        header.become_draft();
        assert_eq!(header.marks(), 0);
    }

    #[test]
    fn concurrent_hits_and_resets_leave_references_and_flags_unchanged() {
        let header = linked();
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..if cfg!(miri) { 50 } else { 50_000 } {
                        header.pin_marked(MOST_HITS);
                        assert!(!header.unpin(), "the index refers to it");
                    }
                });
            }
            (0..if cfg!(miri) { 20 } else { 20_000 }).for_each(|_| header.set_marks(0));
        });
        header.set_marks(0);
        assert_eq!(header.state(), State(State::LINKED | State::CLEAN | 1));
        header.pin_marked(MOST_HITS);
        assert_eq!(header.marks(), 1);
    }
}
