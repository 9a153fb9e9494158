//! A cache as it was found on flash.

use policy::Slot;

use super::{ConfigError, MAX_DISK_BLOCKS, Sets, SetsConfig};

/// One slot as found on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Where.
    pub slot: Slot,
    /// Which block of the disk.
    pub block: u64,
    /// Whether it is newer than the disk's.
    pub dirty: bool,
}

/// Why what was found makes no cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The settings are wrong by themselves.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A slot that the cache does not have.
    #[error("slot {} is beyond the cache's {slots}", slot.0)]
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// Slots of the cache.
        slots: u32,
    },
    /// A block beyond any disk.
    #[error("slot {} says it holds block {block}, beyond the largest disk", slot.0)]
    NoSuchBlock {
        /// The slot.
        slot: Slot,
        /// The block.
        block: u64,
    },
    /// A slot outside of the set that its block belongs to: another shape, key or placement version.
    #[error("slot {} holds block {block}, which belongs to set {set}", slot.0)]
    WrongSet {
        /// The slot.
        slot: Slot,
        /// The block.
        block: u64,
        /// Where the block belongs.
        set: u32,
    },
    /// Two slots say they hold one block, or two entries are of one slot.
    #[error("slot {} and slot {} both hold block {block}", slot.0, other.0)]
    Twice {
        /// The slot that came second.
        slot: Slot,
        /// The slot that came first; the same, where one slot was named twice.
        other: Slot,
        /// The block of the first.
        block: u64,
    },
}

impl Sets {
    /// A cache that holds what was found on flash. Blocks count as used in the order given, the oldest first.
    ///
    /// # Errors
    /// The first entry that contradicts the settings or another entry.
    pub fn restore(config: SetsConfig, found: impl IntoIterator<Item = Held>) -> Result<Self, RestoreError> {
        let mut sets = Self::new(config)?;
        for held in found {
            sets.take_found(held)?;
        }
        Ok(sets)
    }

    fn take_found(&mut self, Held { slot, block, dirty }: Held) -> Result<(), RestoreError> {
        let slots = self.geometry.slots();
        if slot.0 >= slots {
            return Err(RestoreError::NoSuchSlot { slot, slots });
        }
        if block >= MAX_DISK_BLOCKS {
            return Err(RestoreError::NoSuchBlock { slot, block });
        }
        let set = self.set_of(block);
        if set != self.set_of_slot(slot) {
            return Err(RestoreError::WrongSet { slot, block, set });
        }
        if let Some(earlier) = self.table.word(slot).block() {
            return Err(RestoreError::Twice { slot, other: slot, block: earlier });
        }
        if let Some(other) = self.table.find(set, block) {
            return Err(RestoreError::Twice { slot, other, block });
        }
        self.table.take(slot, block);
        self.queues.insert(slot);
        self.held += 1;
        self.states[set as usize].held += 1;
        if dirty {
            self.mark_dirty(slot);
        }
        Ok(())
    }
}
