//! Names of the policies and flash caches that can be simulated.

use std::fmt;
use std::str::FromStr;

use policy::UnknownName;
use policy::eviction::Kind;
use policy::simulate::{Policy, Simulator};

use super::Plan;
use super::custom::CustomPolicy;
use super::designs::Design;

/// A policy, with its canonical name and the name as given, which may be an alias.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    name: String,
    as_given: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A policy simulated exactly, one object at a time.
    Policy(Policy),
    /// A flash cache.
    Design(Design),
    /// A policy of the calling program.
    Custom(CustomPolicy),
}

/// A row of the table of policies.
pub struct About {
    /// Canonical name.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// One-line description.
    pub about: &'static str,
}

const fn about(name: &'static str, aliases: &'static [&'static str], about: &'static str) -> About {
    About { name, aliases, about }
}

/// All policies and flash caches. `slruK` stands for any number of segments.
pub static POLICIES: &[About] = &[
    about("fifo", &[], "first in, first out"),
    about("lru", &[], "least recently used"),
    about("exact-lru", &[], "LRU that counts every hit, also with --refresh"),
    about("slru4", &["slru", "s4lru"], "segmented LRU of four segments; slruK for K"),
    about("lru2q", &[], "CacheLib's LRU-2Q: hot, warm and cold queues"),
    about("tinylfu", &[], "TinyLFU as in CacheLib: a tiny queue in front of the main one, and a sketch"),
    about("wtinylfu", &["w-tinylfu"], "Window-TinyLFU"),
    about("s3fifo", &["s3-fifo"], "small, main and ghost FIFO queues"),
    about("sieve", &[], "a FIFO queue with a hand that spares objects that were hit"),
    about("gdsf", &[], "Greedy-Dual-Size-Frequency"),
    about("lfuda", &["lfu-da"], "least frequently used with dynamic ageing"),
    about(
        "lfu",
        &[],
        "least frequently used, the least recently used of equals first; counts end with eviction",
    ),
    about(
        "clock",
        &["fifo-reinsertion", "second-chance"],
        "a FIFO queue that spares objects hit since the last round",
    ),
    about("lirs", &[], "LIRS: evicts by the distance between an object's last two requests"),
    about("arc", &[], "ARC: recency and frequency queues with ghosts that move their boundary"),
    about("random", &["rand"], "any object, each with the same probability"),
    about("lru-k", &["lruk", "lru-2"], "LRU-2: by the time of the second last request"),
    about("lecar", &[], "LeCaR: LRU or LFU at random, with weights learned from their mistakes"),
    about("lhd", &[], "LHD: the fewest expected hits per byte and time, from a sample"),
    about("hyperbolic", &[], "the fewest requests per time in the cache, from a sample of 64"),
    about("qdlp", &["qdlp-fifo"], "a small FIFO queue with ghosts in front of a clock with two bits"),
    about(
        "cacheus",
        &[],
        "Cacheus: scan-resistant LRU or churn-resistant LFU, with weights learned from their mistakes",
    ),
    about("merlin", &[], "Merlin: filter, staging and core queues with a learned bar for the core"),
    about(
        "s4fifo-s20-g300-k25-p1-r0",
        &[],
        "S4-FIFO without its model: S3-FIFO with other settings, see docs/simulate.md",
    ),
    about(
        "2q",
        &["twoq"],
        "2Q as published: FIFO of new objects, their ghosts, and an LRU of those that return",
    ),
    about(
        "clairvoyant",
        &["belady", "min", "opt"],
        "Belady: evicts the object used farthest in the future; a bound for hits if sizes are equal",
    ),
    about(
        "clairvoyant-size",
        &["beladysize"],
        "evicts the largest size x next-use distance of 128: near the most hits if sizes differ",
    ),
    about("mcdipper", &[], "flash: FIFO of large blocks; mcdipper-lru rewrites objects that were hit"),
    about(
        "blockcache",
        &["block-cache"],
        "flash: segmented LRU of large blocks: a hit promotes the whole block",
    ),
    about("ripq", &[], "flash: RIPQ with S4LRU; also ripqK (K insertion points), ripq-gdsf, ripqK-lru"),
    about("sipq", &[], "flash: SIPQ, RIPQ with a single insertion point"),
    about("log", &["log-structured"], "flash: log of small blocks behind DRAM"),
    about("hash-log", &[], "flash: log in hash order behind DRAM that readmits objects that were hit"),
    about("hash-log-fifo", &[], "flash: the same without readmission"),
    about("set-associative", &["sets"], "flash: sets written as a whole, behind DRAM"),
    about("kangaroo", &[], "flash: a log of 5 % in front of sets, behind DRAM"),
];

impl Named {
    /// Whether it needs the next use of each object.
    #[must_use]
    pub fn needs_future(&self) -> bool {
        matches!(self.what, What::Policy(Policy::Clairvoyant | Policy::ClairvoyantSized))
    }

    /// Whether the policy is LRU in which every hit moves its object. [`Kind::Lru`] ignores hits within `refresh_seconds` of the last one.
    pub(super) fn is_lru(&self, refresh_seconds: u32) -> bool {
        match self.what {
            What::Policy(Policy::Eviction(Kind::ExactLru)) => true,
            What::Policy(Policy::Eviction(Kind::Lru)) => refresh_seconds == 0,
            _ => false,
        }
    }

    /// Whether it models a flash cache, whose writes are counted.
    #[must_use]
    pub fn is_flash(&self) -> bool {
        matches!(self.what, What::Design(_))
    }

    /// Whether [`Plan::settings`] apply to it.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        !self.is_flash()
    }

    /// Whether it draws random numbers.
    #[must_use]
    pub fn is_random(&self) -> bool {
        use Kind::{Cacheus, Hyperbolic, LeCaR, Lhd, Random};
        matches!(
            self.what,
            What::Policy(
                Policy::ClairvoyantSized | Policy::Eviction(Cacheus | Hyperbolic | LeCaR | Lhd | Random)
            )
        )
    }

    /// Whether a hit soon after another may be ignored: see [`Settings::refresh_seconds`](super::Settings).
    #[must_use]
    pub fn refreshes(&self) -> bool {
        matches!(self.what, What::Policy(Policy::Eviction(Kind::Lru | Kind::Lru2q | Kind::TinyLfu)))
    }

    /// Whether it is a flash cache with a DRAM cache in front.
    #[must_use]
    pub fn is_behind_dram(&self) -> bool {
        self.is_log() || self.has_sets()
    }

    /// Whether it is the log with an index in DRAM.
    #[must_use]
    pub fn is_log(&self) -> bool {
        matches!(self.what, What::Design(Design::Log | Design::HashLog { .. }))
    }

    /// Whether it is set-associative.
    #[must_use]
    pub fn has_sets(&self) -> bool {
        matches!(self.what, What::Design(Design::SetAssociative | Design::Kangaroo))
    }

    /// Whether it writes flash in blocks.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.is_flash() && !self.has_sets()
    }

    /// Block size in a cache of `size_bytes` if `requested_bytes` is requested; `None` if it has no blocks.
    #[must_use]
    pub fn block_bytes(&self, size_bytes: u64, requested_bytes: u64) -> Option<u64> {
        match &self.what {
            What::Design(design) => design.block_bytes(size_bytes, requested_bytes),
            _ => None,
        }
    }

    /// Name as given, in lower case.
    #[must_use]
    pub fn as_given(&self) -> &str {
        &self.as_given
    }

    /// Whether both names are equal except for case and dashes.
    #[must_use]
    pub fn is_asked_as(&self, other: &Self) -> bool {
        plain(&self.as_given) == plain(&other.as_given)
    }

    /// A policy of the calling program.
    #[must_use]
    pub fn custom(policy: CustomPolicy) -> Self {
        let name = policy.name().to_owned();
        Self { as_given: name.to_lowercase(), name, what: What::Custom(policy) }
    }

    /// The built-in exact policy; `None` for flash caches and custom policies.
    pub(super) fn exact(&self) -> Option<Policy> {
        match &self.what {
            What::Policy(policy) => Some(*policy),
            What::Design(_) | What::Custom(_) => None,
        }
    }

    /// Creates an empty cache.
    pub(super) fn simulator(&self, size_bytes: u64, plan: &Plan) -> Box<dyn Simulator> {
        match &self.what {
            What::Policy(policy) => policy.simulator(size_bytes, &plan.settings),
            What::Design(design) => design.simulator(size_bytes, &plan.flash),
            What::Custom(custom) => custom.simulator(size_bytes, plan.settings.rules(u64::MAX)),
        }
    }

    /// Approximate cost of a request in nanoseconds, for dividing work among threads.
    pub(super) fn cost(&self) -> u32 {
        let kind = match self.what {
            // Calls into Python take about this long.
            What::Custom(_) => return 1000,
            What::Policy(Policy::ClairvoyantSized) => return 500,
            What::Policy(Policy::Clairvoyant) | What::Design(_) => return 60,
            What::Policy(Policy::Eviction(kind)) => kind,
        };
        match kind {
            Kind::Fifo => 15,
            Kind::Sieve => 20,
            Kind::Lru | Kind::ExactLru => 25,
            Kind::Slru(_) | Kind::Lru2q => 40,
            _ => 60,
        }
    }
}

impl FromStr for Named {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let name_plain = plain(name);
        let known = POLICIES.iter().find(|about| {
            std::iter::once(&about.name).chain(about.aliases).any(|known| plain(known) == name_plain)
        });
        let what = match known.map(|about| about.name) {
            Some("lru") => What::Policy(Policy::Eviction(Kind::Lru)),
            Some("clairvoyant") => What::Policy(Policy::Clairvoyant),
            Some("clairvoyant-size") => What::Policy(Policy::ClairvoyantSized),
            Some(known) => match Design::named(&plain(known)) {
                Some(design) => What::Design(design),
                None => What::Policy(Policy::Eviction(known.parse()?)),
            },
            None => parametrised(&name_plain).ok_or_else(|| unknown(name))?,
        };
        let name_known = known.map(|about| about.name.to_owned());
        let name_canonical = name_known.unwrap_or_else(|| what.family_name());
        Ok(Self { name: name_canonical, as_given: name.to_ascii_lowercase(), what })
    }
}

impl What {
    /// Canonical name of a parametrised policy: `slru8`, `ripq16-gdsf`.
    fn family_name(&self) -> String {
        match self {
            Self::Design(Design::Regions(regions)) => regions.to_string(),
            Self::Policy(Policy::Eviction(kind @ Kind::S4Fifo(_))) => kind.to_string(),
            Self::Policy(Policy::Eviction(kind)) => plain(&kind.to_string()),
            Self::Policy(_) | Self::Design(_) | Self::Custom(_) => {
                unreachable!("all others are in the table")
            }
        }
    }
}

/// Parses names with parameters that are not in the table: `slru8`, `ripq16`, `ripq16gdsf`, `mcdipperlru`.
fn parametrised(plain: &str) -> Option<What> {
    if plain.starts_with("slru") || plain.starts_with("s4fifo") {
        return plain.parse().ok().map(|kind| What::Policy(Policy::Eviction(kind)));
    }
    Design::named(plain).map(What::Design)
}

impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

fn unknown(name: &str) -> UnknownName {
    UnknownName::new("policy", name, POLICIES.iter().map(|about| about.name))
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_parses_all_names_and_suggests_nearest() {
        for about in POLICIES {
            for name in std::iter::once(&about.name).chain(about.aliases) {
                assert!(name.to_uppercase().parse::<Named>().is_ok(), "{name}");
            }
        }
        for (given, nearest) in
            [("seive", "sieve"), ("gdfs", "gdsf"), ("clarvoyant", "clairvoyant"), ("slru0", "slru4")]
        {
            let error = given.parse::<Named>().unwrap_err();
            assert_eq!((error.what, error.nearest), ("policy", nearest), "{given}");
        }
    }

    #[test]
    fn policies_with_similar_names_parse_to_different_policies() {
        for (given, canonical) in
            [("lfu", "lfu"), ("LFU-DA", "lfuda"), ("2-Q", "2q"), ("twoQ", "2q"), ("lru-2q", "lru2q")]
        {
            assert_eq!(given.parse::<Named>().unwrap().to_string(), canonical, "{given}");
        }
        assert!("ripq-lfu".parse::<Named>().is_err(), "RIPQ has LFU-DA, which is another policy");
        let error = "perceptron".parse::<Named>().unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "no name is near: {error}");
    }

    #[test]
    fn aliases_display_as_canonical_name() {
        for (as_given, canonical) in [
            ("SLRU", "slru4"),
            ("s4lru", "slru4"),
            ("SLRU-8", "slru8"),
            ("belady", "clairvoyant"),
            ("opt", "clairvoyant"),
            ("BeladySize", "clairvoyant-size"),
            ("s3-fifo", "s3fifo"),
            ("W-TinyLFU", "wtinylfu"),
            ("lfu-da", "lfuda"),
            ("exact-lru", "exact-lru"),
            ("block-cache", "blockcache"),
            ("McDipper_LRU", "mcdipper-lru"),
            ("ripq8", "ripq"),
            ("ripq16gdsf", "ripq16-gdsf"),
            ("ripq-slru2", "ripq-slru2"),
            ("sipq-lfuda", "sipq-lfuda"),
            ("sets", "set-associative"),
        ] {
            let named = as_given.parse::<Named>().unwrap();
            assert_eq!(
                (named.to_string().as_str(), named.as_given()),
                (canonical, as_given.to_lowercase().as_str())
            );
            assert_eq!(canonical.parse::<Named>().unwrap().to_string(), canonical);
        }
    }
}
