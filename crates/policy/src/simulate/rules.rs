//! Rules of a simulated cache besides its eviction policy.

use super::SimulatedAdmission;

/// The rules of a [`Simulation`](super::Simulation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Objects heavier than this, or than the cache, are not inserted.
    pub weight_at_most: u64,
    /// Before an object of exactly this weight, others are evicted as for an insert, but it is inserted only if it has
    /// a ghost.
    pub ghost_only_weight: Option<u64>,
    /// The new object is inserted first, then entries are evicted until all fit: the new one can be the victim, and a policy that ages by
    /// evictions sees its age before them.
    pub candidate_first: bool,
    /// Handling of another size in a request for a cached object.
    pub size_on_hit: SizeOnHit,
    /// Objects without a next use are not inserted. Only if the future is known.
    pub only_reused: bool,
    /// Missed objects that are inserted if the other rules permit them too.
    pub admission: SimulatedAdmission,
    /// Seed of the admission's draws.
    pub seed: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            weight_at_most: u64::MAX,
            ghost_only_weight: None,
            candidate_first: false,
            size_on_hit: SizeOnHit::Ignore,
            only_reused: false,
            admission: SimulatedAdmission::Always,
            seed: 1,
        }
    }
}

/// Handling of another size in a request for a cached object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SizeOnHit {
    /// The size at insertion is kept.
    #[default]
    Ignore,
    /// The new size applies, and others are evicted if it needs more space. The request is a hit. An object that exceeds the limits is
    /// evicted.
    Update,
}
