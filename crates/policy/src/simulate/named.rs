//! The policies that simulations accept by name, each compiled with the simulation loop.

use super::{Rules, SimulatedAdmission, Simulation, Simulator, SizeOnHit};
use crate::eviction::gdsf::Cost;
use crate::eviction::{
    AdaptiveReplacement, ArcRules, Cacheus, Clairvoyant, ClairvoyantSized, Clock, Fifo, Gdsf, Hyperbolic,
    Kind, LeCaR, Lhd, Lirs, Lru, Lru2q, Lru2qConfig, LruConfig, LruK, Merlin, Qdlp, Random, Refresh, S3Fifo,
    S3FifoRules, S4Fifo, Sieve, Slru, SlruRules, TinyLfu, TwoQ, TwoQRules, WTinyLfu,
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
        let is_reference = rule_book == RuleBook::Reference;
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
        macro_rules! simulate {
            ($policy:expr) => {
                Box::new(Simulation::new($policy, capacity_weight).with_rules(rules))
            };
            ($policy:expr, $rules:expr) => {
                Box::new(Simulation::new($policy, capacity_weight).with_rules($rules))
            };
        }
        match kind {
            Kind::Fifo => simulate!(Fifo::new()),
            Kind::Lru => simulate!(Lru::new(LruConfig { refresh, insertion_point: 0 })),
            Kind::ExactLru => simulate!(Lru::exact()),
            Kind::Lru2q => simulate!(Lru2q::new(Lru2qConfig { refresh, ..Lru2qConfig::default() })),
            Kind::Slru(segments) if is_reference => {
                simulate!(Slru::with_rules(segments.get(), capacity_weight, SlruRules::Reference))
            }
            Kind::Slru(segments) => simulate!(Slru::new(segments.get(), capacity_weight)),
            Kind::TinyLfu => simulate!(TinyLfu::new(refresh)),
            Kind::WTinyLfu => simulate!(WTinyLfu::new(capacity_weight)),
            Kind::S3Fifo if is_reference => {
                let tenth = Some(capacity_weight / 10).filter(|tenth| *tenth > 0 && !settings.any_weight);
                let rules = Rules { ghost_only_weight: tenth, ..rules };
                simulate!(S3Fifo::with_rules(capacity_weight, S3FifoRules::Reference), rules)
            }
            Kind::S3Fifo => simulate!(S3Fifo::new(capacity_weight)),
            Kind::Sieve => simulate!(Sieve::new()),
            Kind::Gdsf => {
                simulate!(Gdsf::new(Cost::Equal), Rules { candidate_first: is_reference, ..rules })
            }
            Kind::LfuDa => simulate!(Gdsf::new(Cost::Size)),
            Kind::Lfu => simulate!(Gdsf::lfu()),
            Kind::Clock => simulate!(Clock::new()),
            Kind::Arc => {
                let rules = if is_reference { ArcRules::Reference } else { ArcRules::Paper };
                simulate!(AdaptiveReplacement::new(capacity_weight, rules))
            }
            Kind::Lirs => simulate!(Lirs::new(capacity_weight)),
            Kind::Random => simulate!(Random::new(seed)),
            Kind::LruK => simulate!(LruK::new()),
            Kind::LeCaR => simulate!(LeCaR::new(capacity_weight, seed)),
            Kind::Lhd => simulate!(Lhd::new(capacity_weight, seed)),
            Kind::Hyperbolic => simulate!(Hyperbolic::new(seed)),
            Kind::Qdlp => simulate!(Qdlp::new(capacity_weight)),
            Kind::Cacheus => simulate!(Cacheus::new(capacity_weight, seed)),
            Kind::Merlin => simulate!(Merlin::new(capacity_weight)),
            Kind::S4Fifo(s4) => {
                let small = S4Fifo::small_weight(capacity_weight, s4);
                let ghost_only =
                    Some(small).filter(|small| *small > 0 && is_reference && !settings.any_weight);
                simulate!(S4Fifo::new(capacity_weight, s4), Rules { ghost_only_weight: ghost_only, ..rules })
            }
            Kind::TwoQ => {
                let rules = if is_reference { TwoQRules::Reference } else { TwoQRules::Paper };
                simulate!(TwoQ::new(capacity_weight, rules))
            }
        }
    }
}
