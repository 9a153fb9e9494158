//! What simulations are fed with: requests in batches, and what is known of each besides.

use policy::simulate::Access;

use super::SimulateError;

/// Requests to be made, and when each object is asked for next where that is known.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) accesses: Vec<Access>,
    pub(super) next_uses: Vec<u64>,
    /// Whose each access is: 0 is nobody's, then tenants by index; empty where they are not told apart.
    pub(super) tenants: Vec<u32>,
    /// Seconds that the object lives if this access stores it, 0 is for ever; empty where all do.
    pub(crate) ttls: Vec<u32>,
    /// The second of each next use; empty where nothing expires or no next use is known.
    pub(super) next_seconds: Vec<u32>,
}

/// Something that hands out the trace in batches.
pub(crate) trait Batches {
    /// The next batch in place of what is there; false at the end, with an empty batch.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError>;
}

/// Accesses in a batch: 16 bytes each, so that a batch stays in the processor's second cache.
pub(crate) const BATCH_ACCESSES: usize = 1 << 15;

impl Batch {
    pub(super) fn clear(&mut self) {
        let Self { accesses, next_uses, tenants, ttls, next_seconds } = self;
        accesses.clear();
        next_uses.clear();
        [tenants, ttls, next_seconds].into_iter().for_each(Vec::clear);
    }

    /// Another access, whose object lives so long if it stores it; 0 is for ever.
    #[inline]
    pub(super) fn push(&mut self, access: Access, ttl_seconds: u32) {
        self.accesses.push(access);
        // Most traces have no times to live, and cost nothing for them.
        if ttl_seconds > 0 || !self.ttls.is_empty() {
            self.ttls.resize(self.accesses.len() - 1, 0);
            self.ttls.push(ttl_seconds);
        }
    }

    pub(super) fn ttl_seconds(&self, place: usize) -> u32 {
        self.ttls.get(place).copied().unwrap_or(0)
    }
}
