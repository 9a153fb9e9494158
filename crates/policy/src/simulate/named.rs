//! The policies that simulations accept by name, each compiled with the simulation loop.

use super::{Rules, SimulatedAdmission, Simulation, Simulator, SizeOnHit};
use crate::Eviction;
use crate::eviction::gdsf::Cost;
use crate::eviction::{
    AdaptiveReplacement, ArcRules, Clairvoyant, ClairvoyantSized, EvictionConfig, Gdsf, Kind, Merlin, Qdlp,
    Refresh, S3Fifo, S3FifoRules, S4Fifo, Slru, SlruRules, TinyLfu, TwoQ, TwoQRules, Use, WTinyLfu,
    build_for,
};

/// The implementation whose rules apply where simulators differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuleBook {
    /// libCacheSim 0.3.5, from which published miss ratios come. Segmented LRU: [`SlruRules::Reference`], and an object
    /// larger than a segment is never inserted. S3-FIFO: [`S3FifoRules::Reference`], and an object larger than a tenth
    /// of the cache is never inserted; one of exactly a tenth is inserted only if it has a ghost, and evicts others in
    /// any case. GDSF: the new object is inserted before others are evicted.
    #[default]
    Reference,
    /// The rules of the papers, as in this engine.
    Paper,
}

/// The weight of an object that is never inserted, regardless of other limits. If hits update sizes, a cached object
/// with this weight is evicted.
pub const TOO_HEAVY: u32 = u32::MAX;

/// Settings of a simulated policy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Settings {
    /// The applicable rules.
    pub rule_book: RuleBook,
    /// Handling of a request for a cached object with another size.
    pub size_on_hit: SizeOnHit,
    /// LRU, LRU-2Q, TinyLFU: hits within this time after the last counted hit are ignored; in seconds.
    pub refresh_seconds: u32,
    /// Ignores [`Policy::weight_at_most`], so that only [`TOO_HEAVY`] objects are rejected: for callers that check
    /// weights themselves.
    pub any_weight: bool,
    /// Missed objects that are inserted.
    pub admission: SimulatedAdmission,
    /// Seed of policies and admissions that draw random numbers.
    pub seed: u64,
}

/// A policy that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// A policy that does not need future requests.
    Eviction(Kind),
    /// [`Clairvoyant`].
    Clairvoyant,
    /// [`ClairvoyantSized`].
    ClairvoyantSized,
}

impl Settings {
    /// Rules of a cache in which objects of at most `weight_at_most` are inserted.
    #[must_use]
    pub fn rules(&self, weight_at_most: u64) -> Rules {
        let Self { size_on_hit, admission, seed, .. } = *self;
        Rules { size_on_hit, weight_at_most, admission, seed, ..Rules::default() }
    }
}

impl Policy {
    /// Weight of the heaviest object that the rules admit to a cache of `capacity_weight`. Objects heavier than the
    /// cache are never inserted.
    #[must_use]
    pub fn weight_at_most(self, capacity_weight: u64, settings: &Settings) -> u64 {
        match (self, settings.rule_book) {
            (Self::Eviction(Kind::Slru(segments)), RuleBook::Reference) => {
                capacity_weight / u64::from(segments.get())
            }
            (Self::Eviction(Kind::TwoQ), RuleBook::Reference) => capacity_weight / 4,
            (Self::Eviction(Kind::S3Fifo | Kind::Qdlp), RuleBook::Reference) => {
                (capacity_weight / 10).saturating_sub(1)
            }
            (Self::Eviction(Kind::S4Fifo(s4)), RuleBook::Reference) => {
                S4Fifo::small_weight(capacity_weight, s4).saturating_sub(1)
            }
            (Self::Eviction(Kind::Merlin), RuleBook::Reference) => Merlin::weight_at_most(capacity_weight),
            _ => u64::MAX,
        }
    }

    /// Share of the cache, in percent, of a queue for new objects; `None` if the policy has none, or a larger one.
    #[must_use]
    pub fn waiting_percent(self) -> Option<u8> {
        match self {
            Self::Eviction(Kind::TinyLfu) => Some(TinyLfu::WAITING_PERCENT),
            Self::Eviction(Kind::WTinyLfu) => Some(WTinyLfu::WAITING_PERCENT),
            Self::Eviction(Kind::S3Fifo) => Some(S3Fifo::WAITING_PERCENT),
            Self::Eviction(Kind::Qdlp) => Some(Qdlp::WAITING_PERCENT),
            Self::Eviction(Kind::Merlin) => Some(Merlin::WAITING_PERCENT),
            Self::Eviction(Kind::S4Fifo(s4)) => Some(s4.small_percent),
            _ => None,
        }
    }

    /// Creates an empty cache of `capacity_weight` with this policy.
    #[must_use]
    pub fn simulator(self, capacity_weight: u64, settings: &Settings) -> Box<dyn Simulator> {
        let Settings { rule_book, refresh_seconds, seed, .. } = *settings;
        let weight_at_most = match settings.any_weight {
            true => u64::from(TOO_HEAVY) - 1,
            false => self.weight_at_most(capacity_weight, settings),
        };
        let rules = settings.rules(weight_at_most);
        let refresh = Refresh { seconds: refresh_seconds, ratio: 0.0, tune_every_seconds: 0 };
        let kind = match self {
            Self::Eviction(kind) => kind,
            Self::Clairvoyant => {
                let (policy, future) = Clairvoyant::new();
                let simulation = Simulation::new(policy, capacity_weight).with_future(future);
                return Box::new(simulation.with_rules(rules));
            }
            Self::ClairvoyantSized => {
                let (policy, future) = ClairvoyantSized::new(seed);
                let simulation = Simulation::new(policy, capacity_weight).with_future(future);
                return Box::new(simulation.with_rules(Rules { only_reused: true, ..rules }));
            }
        };
        let simulated = Simulated { capacity_weight, rules };
        let ghost_only = |weight: u64| Rules {
            ghost_only_weight: Some(weight).filter(|weight| *weight > 0 && !settings.any_weight),
            ..rules
        };
        match (kind, rule_book) {
            (Kind::Slru(segments), RuleBook::Reference) => {
                simulated.with(Slru::with_rules(segments.get(), capacity_weight, SlruRules::Reference))
            }
            (Kind::S3Fifo, RuleBook::Reference) => {
                let policy = S3Fifo::with_rules(capacity_weight, S3FifoRules::Reference);
                simulated.by(ghost_only(capacity_weight / 10)).with(policy)
            }
            (Kind::S4Fifo(s4), RuleBook::Reference) => {
                let small_weight = S4Fifo::small_weight(capacity_weight, s4);
                simulated.by(ghost_only(small_weight)).with(S4Fifo::new(capacity_weight, s4))
            }
            (Kind::Gdsf, RuleBook::Reference) => {
                simulated.by(Rules { candidate_first: true, ..rules }).with(Gdsf::new(Cost::Equal))
            }
            (Kind::Arc, RuleBook::Reference) => {
                simulated.with(AdaptiveReplacement::new(capacity_weight, ArcRules::Reference))
            }
            (Kind::TwoQ, RuleBook::Reference) => {
                simulated.with(TwoQ::new(capacity_weight, TwoQRules::Reference))
            }
            (kind, _) => {
                let config = EvictionConfig { refresh, ..EvictionConfig::new(kind) };
                build_for(&config, capacity_weight, seed, simulated)
            }
        }
    }
}

/// Compiles the simulation loop for a policy.
struct Simulated {
    capacity_weight: u64,
    rules: Rules,
}

impl Simulated {
    fn by(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }
}

impl Use for Simulated {
    type Output = Box<dyn Simulator>;

    fn with(self, policy: impl Eviction + 'static) -> Self::Output {
        Box::new(Simulation::new(policy, self.capacity_weight).with_rules(self.rules))
    }
}
