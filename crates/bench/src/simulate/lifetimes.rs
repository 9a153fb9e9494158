//! Times to live, in any simulation: an object whose time is over when it is asked for is a miss, and comes in anew.
//!
//! As the engine does it. A request that stores the object begins its time: a set, or a get that missed. A get that hits does
//! not. Time is counted in whole seconds, and an object that lives for one is gone in the next second. It keeps its room until
//! then or until it is evicted. Whoever knows the future knows too that an object is not found when it will have expired.

use policy::eviction::clairvoyant::NEVER;
use policy::simulate::{Access, Counts, Simulator};

use super::Batch;

/// When each object of a simulation expires.
#[derive(Default)]
pub(super) struct Lifetimes {
    /// The second from which on an object is gone, by its number; 0 is never.
    ends: Vec<u32>,
}

impl Lifetimes {
    /// Whether nothing in the batch expires, nor anything from before.
    pub(super) fn are_endless(&self, batch: &Batch) -> bool {
        self.ends.is_empty() && batch.ttls.is_empty()
    }

    /// The simulation with times to live, for the length of the batch.
    pub(super) fn of<'a>(&'a mut self, simulator: &'a mut dyn Simulator, batch: &'a Batch) -> Mortal<'a> {
        let Batch { ttls, next_seconds, .. } = batch;
        Mortal { simulator, lifetimes: self, ttls, next_seconds }
    }

    fn end(&self, object: u32) -> u32 {
        self.ends.get(object as usize).copied().unwrap_or(0)
    }

    fn set_end(&mut self, object: u32, end: u32) {
        if object as usize >= self.ends.len() {
            self.ends.resize(object as usize + 1, 0);
        }
        self.ends[object as usize] = end;
    }
}

/// A simulation whose objects expire.
pub(super) struct Mortal<'a> {
    simulator: &'a mut dyn Simulator,
    lifetimes: &'a mut Lifetimes,
    /// Of the accesses to come.
    ttls: &'a [u32],
    next_seconds: &'a [u32],
}

impl Mortal<'_> {
    /// The second at which the object will be gone, after this access; 0 is never.
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

impl Simulator for Mortal<'_> {
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

    fn counts(&self) -> Counts {
        self.simulator.counts()
    }

    fn holds(&self, object: u32) -> bool {
        self.simulator.holds(object)
    }

    fn expire(&mut self, object: u32) {
        self.simulator.expire(object);
    }
}
