//! Retried requests: the counts of the failed attempt are reverted, and the next attempt counts.
//!
//! A block whose cached copy is corrupt is dropped and requested again, now as a miss. The client made one request, so only its final
//! outcome counts. Side effects of the failed attempt stay counted: evictions for it, and dropped copies. Counters saturate at zero,
//! because they may have been reset, or the mode changed, in between.

use super::{Admit, Mode, Read, SetOperations, Sets, Write};

impl Sets {
    /// Reverts the counts of a read hit of `block`.
    pub fn undo_read_hit(&mut self, block: u64) {
        reduce(&mut self.counters.reads, 1);
        reduce(&mut self.counters.read_hits, 1);
        reduce(&mut self.operations_of(block).hits, 1);
    }

    /// Reverts the counts of a read of `block` that [`read`](Self::read) decided so for `admit`, in the mode of that time.
    pub fn undo_read(&mut self, block: u64, admit: Admit, decided: Read) {
        if let Read::Hit(_) = decided {
            return self.undo_read_hit(block);
        }
        reduce(&mut self.counters.reads, 1);
        reduce(&mut self.operations_of(block).read_misses, 1);
        if decided == Read::Around {
            reduce(&mut self.counters.uncached_reads, 1);
            reduce(&mut self.counters.uncached_sequential_reads, u64::from(admit == Admit::Sequential));
            let had_no_room = self.may_fill(admit) || self.was_rejected_for_space(admit);
            reduce(&mut self.counters.no_room, u64::from(had_no_room));
        }
    }

    /// Reverts the counts of a write of `block` that [`write`](Self::write) decided so for `admit`, in the mode of that time.
    pub fn undo_write(&mut self, block: u64, admit: Admit, decided: Write, was_dirty: bool) {
        reduce(&mut self.counters.writes, 1);
        match decided {
            Write::Hit(_) => {
                reduce(&mut self.counters.write_hits, 1);
                reduce(&mut self.counters.dirty_write_hits, u64::from(was_dirty));
                reduce(&mut self.operations_of(block).hits, 1);
            }
            Write::Taken { .. } => reduce(&mut self.operations_of(block).write_misses, 1),
            Write::Around(_) => {
                reduce(&mut self.counters.uncached_writes, 1);
                if admit == Admit::Bypass {
                    reduce(&mut self.counters.uncached_sequential_writes, 1);
                } else if self.tuning.mode != Mode::WriteAround {
                    reduce(&mut self.operations_of(block).write_misses, 1);
                    reduce(
                        &mut self.counters.uncached_sequential_writes,
                        u64::from(admit == Admit::Sequential),
                    );
                    reduce(&mut self.counters.no_room, u64::from(admit == Admit::Yes));
                }
            }
        }
    }

    /// Reverts the counts of a write to the disk on which the sets did not decide.
    pub fn undo_bypassing_write(&mut self) {
        reduce(&mut self.counters.writes, 1);
        reduce(&mut self.counters.uncached_writes, 1);
    }

    fn operations_of(&mut self, block: u64) -> &mut SetOperations {
        let set = self.set_of(block);
        &mut self.states[set as usize].operations
    }
}

fn reduce(count: &mut u64, by: u64) {
    *count = count.saturating_sub(by);
}
