//! How a simulated cache treats requests, beside its eviction policy.

/// The rules of a [`Simulation`](super::Simulation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Objects heavier than this never enter, nor do objects heavier than the cache.
    pub weight_at_most: u64,
    /// The newcomer enters first, then entries leave until all fit: the newcomer may be one of them, and a policy that ages
    /// by what leaves judges it by its age before.
    pub newcomer_first: bool,
    /// What a request for a held object says of its size.
    pub size_on_hit: SizeOnHit,
    /// What will never be asked for again does not enter. Only where the future is known.
    pub only_reused: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            weight_at_most: u64::MAX,
            newcomer_first: false,
            size_on_hit: SizeOnHit::Ignore,
            only_reused: false,
        }
    }
}

/// Whether a held object's size changes when it is asked for with another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SizeOnHit {
    /// It keeps the size that it came in with.
    #[default]
    Ignore,
    /// It has the new size from now on, and others leave if it needs more room. The request is a hit. If it outgrew what may
    /// enter, it leaves.
    Update,
}
