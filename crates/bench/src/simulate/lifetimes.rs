//! TTLs in any simulation: a request for an expired object is a miss, and inserts the object again.
//!
//! Expiry follows the engine. A set, and a get that misses, start the TTL; a get that hits does not. Time is counted in whole
//! seconds: an object with a TTL of 1 is expired in the next second. An expired object keeps its space until it is requested or
//! evicted. For clairvoyant policies, a next use after expiry does not count.

use policy::eviction::clairvoyant::NEVER;
use policy::simulate::{Access, Simulator};

use super::Batch;

/// Expiry times of a simulation's objects.
#[derive(Default)]
pub(super) struct Lifetimes {
    /// Expiry time by object number; 0 is never.
    expiry_seconds: Vec<u32>,
}

impl Lifetimes {
    /// Whether no object in the batch or before it has a TTL.
    pub(super) fn have_no_ttl(&self, batch: &Batch) -> bool {
        self.expiry_seconds.is_empty() && batch.ttls.is_empty()
    }

    /// Wraps the simulator for the duration of a batch, so that objects expire.
    pub(super) fn of<'a>(
        &'a mut self,
        simulator: &'a mut dyn Simulator,
        batch: &'a Batch,
    ) -> ExpiringSimulator<'a> {
        let Batch { ttls, next_seconds, .. } = batch;
        ExpiringSimulator { simulator, lifetimes: self, ttls, next_seconds }
    }

    fn end(&self, object: u32) -> u32 {
        self.expiry_seconds.get(object as usize).copied().unwrap_or(0)
    }

    fn set_end(&mut self, object: u32, end: u32) {
        if object as usize >= self.expiry_seconds.len() {
            self.expiry_seconds.resize(object as usize + 1, 0);
        }
        self.expiry_seconds[object as usize] = end;
    }
}

/// A simulator whose objects expire.
pub(super) struct ExpiringSimulator<'a> {
    simulator: &'a mut dyn Simulator,
    lifetimes: &'a mut Lifetimes,
    /// TTLs of the remaining accesses.
    ttls: &'a [u32],
    next_seconds: &'a [u32],
}

impl ExpiringSimulator<'_> {
    /// Expiry time of the object after this access; 0 is never.
    fn end(&mut self, access: &Access, ttl_seconds: u32) -> u32 {
        let (object, now) = (access.object, access.now_seconds);
        let before = self.lifetimes.end(object);
        if before != 0 && before <= now {
            self.simulator.expire(object);
        }
        if before == 0 && ttl_seconds == 0 || !access.is_set && self.simulator.holds(object) {
            return before;
        }
        let end = if ttl_seconds == 0 { 0 } else { now.saturating_add(ttl_seconds) };
        self.lifetimes.set_end(object, end);
        end
    }
}

impl Simulator for ExpiringSimulator<'_> {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        for (place, access) in accesses.iter().enumerate() {
            let mut next_use = next_uses.get(place..=place).unwrap_or(&[]);
            if !access.is_removal {
                let end = self.end(access, self.ttls.get(place).copied().unwrap_or(0));
                if end != 0 && self.next_seconds.get(place).is_some_and(|next| end <= *next) {
                    next_use = &[NEVER];
                }
            }
            self.simulator.run(std::slice::from_ref(access), next_use);
        }
        self.ttls = self.ttls.get(accesses.len()..).unwrap_or(&[]);
        self.next_seconds = self.next_seconds.get(accesses.len()..).unwrap_or(&[]);
    }

    super::forward_simulator!(simulator);
}
