//! What can be simulated, by name.

use std::fmt;
use std::str::FromStr;

use policy::UnknownName;
use policy::eviction::Kind;
use policy::simulate::{Policy, Settings, Simulator};

use super::flash::{self, FlashCache};

/// A policy with the name it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    name: String,
    design: Design,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq)]
enum Design {
    /// A policy, exact.
    Exact(Policy),
    /// What a flash cache makes of one.
    Flash(FlashCache),
}

/// A policy's name, other names for it, and what it is.
pub struct About {
    /// The name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it is, in a line.
    pub about: &'static str,
}

const fn about(name: &'static str, aliases: &'static [&'static str], about: &'static str) -> About {
    About { name, aliases, about }
}

/// All of them. `slruK` stands for any number of segments.
pub static POLICIES: &[About] = &[
    about("fifo", &[], "first in, first out"),
    about("lru", &["exact-lru"], "least recently used"),
    about("slru4", &["slru", "s4lru"], "segmented LRU of four segments; slruK for K"),
    about("lru2q", &["2q"], "hot, warm and cold queue, as in CacheLib"),
    about("tinylfu", &[], "TinyLFU as in CacheLib: a tiny queue before the main one, and a sketch"),
    about("wtinylfu", &["w-tinylfu"], "Window-TinyLFU"),
    about("s3fifo", &["s3-fifo"], "small, main and ghost FIFO queues"),
    about("sieve", &[], "a FIFO queue with a hand that spares what was used"),
    about("gdsf", &[], "Greedy-Dual-Size-Frequency"),
    about("lfuda", &["lfu"], "least frequently used, with dynamic ageing"),
    about(
        "clairvoyant",
        &["belady", "min", "opt"],
        "next use farthest away: what no policy can beat where sizes are equal",
    ),
    about(
        "clairvoyant-size",
        &["beladysize"],
        "size times distance to the next use, of 128 drawn; a ceiling for unequal sizes",
    ),
    about("mcdipper", &[], "FIFO of blocks on flash; mcdipper-lru writes what was read again"),
    about("blockcache", &[], "segmented LRU of blocks on flash: a hit promotes the whole block"),
    about(
        "ripq",
        &[],
        "S4LRU by RIPQ's 8 insertion points; ripqK for K, ripq-gdsf and the like for other policies",
    ),
    about("sipq", &[], "the same with a single insertion point"),
];

impl Named {
    /// Whether it must be told next uses.
    #[must_use]
    pub fn needs_future(&self) -> bool {
        matches!(self.design, Design::Exact(Policy::Clairvoyant | Policy::ClairvoyantSized))
    }

    /// An empty cache of so many bytes.
    pub(super) fn simulator(&self, size_bytes: u64, settings: &Settings) -> Box<dyn Simulator> {
        match &self.design {
            Design::Exact(policy) => policy.simulator(size_bytes, settings),
            Design::Flash(cache) => cache.simulator(size_bytes),
        }
    }

    /// What a request costs, roughly in nanoseconds: by it threads share the work.
    pub(super) fn cost(&self) -> u32 {
        let Design::Exact(policy) = self.design else { return 100 };
        match policy {
            Policy::ClairvoyantSized => 500,
            Policy::Clairvoyant => 60,
            Policy::Eviction(kind) => match kind {
                Kind::Fifo => 15,
                Kind::Sieve => 20,
                Kind::Lru | Kind::ExactLru => 25,
                Kind::Gdsf | Kind::LfuDa | Kind::S3Fifo | Kind::TinyLfu | Kind::WTinyLfu => 60,
                Kind::Slru(_) | Kind::Lru2q => 40,
            },
        }
    }
}

impl FromStr for Named {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let name_plain = plain(name);
        if let Some(cache) = flash::named(&name_plain) {
            return Ok(Self { name: name.to_ascii_lowercase(), design: Design::Flash(cache) });
        }
        let known = POLICIES.iter().find(|about| {
            std::iter::once(&about.name).chain(about.aliases).any(|known| plain(known) == name_plain)
        });
        let policy = match known.map(|about| about.name) {
            Some("lru") => Policy::Eviction(Kind::Lru),
            Some("clairvoyant") => Policy::Clairvoyant,
            Some("clairvoyant-size") => Policy::ClairvoyantSized,
            Some(known) => Policy::Eviction(known.parse()?),
            None if name_plain.starts_with("slru") => {
                Policy::Eviction(name_plain.parse().map_err(|_| unknown(name))?)
            }
            None => return Err(unknown(name)),
        };
        Ok(Self { name: name.to_ascii_lowercase(), design: Design::Exact(policy) })
    }
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
    fn every_name_is_understood_and_a_wrong_one_gets_the_nearest() {
        for about in POLICIES {
            for name in std::iter::once(&about.name).chain(about.aliases) {
                assert!(name.to_uppercase().parse::<Named>().is_ok(), "{name}");
            }
        }
        assert_eq!("SLRU-8".parse::<Named>().map(|named| named.to_string()), Ok("slru-8".to_owned()));
        for (given, nearest) in
            [("seive", "sieve"), ("gdfs", "gdsf"), ("clarvoyant", "clairvoyant"), ("slru0", "slru4")]
        {
            let error = given.parse::<Named>().unwrap_err();
            assert_eq!((error.what, error.nearest), ("policy", nearest), "{given}");
        }
    }
}
