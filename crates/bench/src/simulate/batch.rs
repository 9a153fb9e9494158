//! Batches of requests, the input of simulations.

use policy::simulate::Access;

use super::SimulateError;

/// A batch of accesses with optional columns.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) accesses: Vec<Access>,
    pub(super) next_uses: Vec<u64>,
    /// Tenant of each access: 0 is none, then tenants by index plus 1; empty if tenants are not distinguished.
    pub(super) tenants: Vec<u32>,
    /// TTL in seconds if the access stores the object; 0 is no TTL. Empty if no access has one.
    pub(crate) ttls: Vec<u32>,
    /// Time of each next use in seconds; empty if nothing expires or next uses are not known.
    pub(super) next_seconds: Vec<u32>,
}

/// A source of batches.
pub(crate) trait Batches {
    /// Reads the next batch into `batch`. At the end it returns false and an empty batch.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SimulateError>;
}

/// Accesses in a batch; at 16 bytes each, a batch fits in the L2 cache.
pub(crate) const BATCH_ACCESSES: usize = 1 << 15;

impl Batch {
    pub(super) fn clear(&mut self) {
        let Self { accesses, next_uses, tenants, ttls, next_seconds } = self;
        accesses.clear();
        next_uses.clear();
        [tenants, ttls, next_seconds].into_iter().for_each(Vec::clear);
    }

    /// Appends an access and the TTL with which it stores its object; 0 is no TTL.
    #[inline]
    pub(super) fn push(&mut self, access: Access, ttl_seconds: u32) {
        self.accesses.push(access);
        // The column is allocated at the first TTL, since most traces have none.
        if ttl_seconds > 0 || !self.ttls.is_empty() {
            self.ttls.resize(self.accesses.len() - 1, 0);
            self.ttls.push(ttl_seconds);
        }
    }

    pub(super) fn ttl_seconds(&self, place: usize) -> u32 {
        self.ttls.get(place).copied().unwrap_or(0)
    }
}
