//! Flash caches of the cache engine's region policies, by name.
//!
//! Names are `mcdipper`, `mcdipper-lru`, `blockcache`, `ripq` and `sipq`. RIPQ and SIPQ take a number of insertion points and a
//! caching policy: `ripq16`, `ripq-gdsf`, `ripq4-lru`.

use std::fmt;

use cache::config::regions::{Caching, MAX_POINTS, OrderConfig, RegionConfig, Reinsertion, RipqConfig};
use cache::internals::region::{DryStore, Packing};
use policy::simulate::Simulator;

/// The engine's region store without data.
///
/// A block is 64 MiB, or 1/512 of a smaller cache but at least 256 KiB, so that a small cache has as many blocks to choose
/// from. A block represents one of 64 MiB, so it has no unused end: an object may span two blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Regions {
    order: OrderConfig,
    reinsertion: Reinsertion,
}

/// Largest default block size, as in production.
const MAX_BLOCK_BYTES: u64 = 64 << 20;
/// Default number of blocks of a smaller cache; a block has at least [`MIN_BLOCK_BYTES`].
const BLOCKS: u64 = 512;
const MIN_BLOCK_BYTES: u64 = 256 << 10;

/// Defaults of a name without parameters.
const DEFAULT_SECTIONS: u8 = 8;
const DEFAULT_CACHING: Caching = Caching::Slru { segments: 4 };

/// Parses `ripq` or `sipq`, an optional number of sections, and an optional caching policy.
fn ripq(plain: &str) -> Option<RipqConfig> {
    let (single_point, rest) = match plain.strip_prefix("ripq") {
        Some(rest) => (false, rest),
        None => (true, plain.strip_prefix("sipq")?),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (sections, caching) = rest.split_at(digits);
    let sections = if sections.is_empty() { DEFAULT_SECTIONS } else { sections.parse().ok()? };
    let caching = match caching {
        "" => DEFAULT_CACHING,
        "lfuda" => Caching::LfuDa,
        name => {
            let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (head, number) = name.split_at(letters);
            if number.is_empty() { head.parse().ok()? } else { format!("{head}-{number}").parse().ok()? }
        }
    };
    let may_be = (1..=MAX_POINTS).contains(&usize::from(sections));
    may_be.then(|| RipqConfig { sections, single_point, ..RipqConfig::new(caching) })
}

impl Regions {
    /// Finds a flash cache by its name in lower case without dashes.
    pub(super) fn named(plain: &str) -> Option<Self> {
        let order = match plain {
            "mcdipper" | "mcdipperlru" => OrderConfig::Fifo,
            "blockcache" => OrderConfig::SegmentedLru { segments: 4 },
            _ => OrderConfig::Ripq(ripq(plain)?),
        };
        let reinsertion =
            if plain == "mcdipperlru" { Reinsertion::Hits { at_least: 1 } } else { Reinsertion::Never };
        Some(Self { order, reinsertion })
    }

    /// Creates an empty cache without data. A cache that is too small for the required regions never hits.
    pub(super) fn simulator(&self, size_bytes: u64, block_bytes: Option<u64>) -> Box<dyn Simulator> {
        match DryStore::new(
            &self.config(size_bytes, self.block_bytes(size_bytes, block_bytes)),
            Packing::Seamless,
        ) {
            Ok(store) => Box::new(store),
            Err(_) => Box::new(NeverHits::default()),
        }
    }

    /// Block size for a cache: as requested, but small enough for the minimum number of blocks.
    pub(super) fn block_bytes(&self, size_bytes: u64, requested_bytes: Option<u64>) -> u64 {
        let usual = (size_bytes / BLOCKS).clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        let block_bytes = requested_bytes.unwrap_or(usual);
        let least = u64::from(self.config(size_bytes, block_bytes).least_regions());
        block_bytes.min(size_bytes / least).max(1024)
    }

    fn config(&self, size_bytes: u64, block_bytes: u64) -> RegionConfig {
        RegionConfig {
            region_bytes: u32::try_from(block_bytes).expect("at most 1 GiB"),
            unit_bytes: 16,
            clean_regions: 1,
            buffers: 2 + MAX_POINTS as u32,
            order: self.order.clone(),
            reinsertion: self.reinsertion,
            ..RegionConfig::new(size_bytes / block_bytes * block_bytes)
        }
    }
}

/// Canonical name: `ripq` or `ripq16-gdsf`, without default parameters.
impl fmt::Display for Regions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ripq = match &self.order {
            OrderConfig::Ripq(ripq) => ripq,
            OrderConfig::Fifo if self.reinsertion == Reinsertion::Never => return out.write_str("mcdipper"),
            OrderConfig::Fifo => return out.write_str("mcdipper-lru"),
            _ => return out.write_str("blockcache"),
        };
        out.write_str(if ripq.single_point { "sipq" } else { "ripq" })?;
        if ripq.sections != DEFAULT_SECTIONS {
            write!(out, "{}", ripq.sections)?;
        }
        match ripq.caching {
            DEFAULT_CACHING => Ok(()),
            caching => write!(out, "-{}", caching.to_string().replace('-', "")),
        }
    }
}

/// A cache without space.
#[derive(Default)]
struct NeverHits(policy::simulate::Counts);

impl Simulator for NeverHits {
    fn run(&mut self, accesses: &[policy::simulate::Access], _next_uses: &[u64]) {
        for access in accesses.iter().filter(|access| !access.is_removal) {
            self.0.requests += 1;
            self.0.weight += u64::from(access.weight);
        }
    }

    fn counts(&self) -> policy::simulate::Counts {
        self.0
    }

    fn holds(&self, _object: u32) -> bool {
        false
    }

    fn expire(&mut self, _object: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_named_parses_points_and_policy() {
        let of = |plain| Regions::named(plain).map(|regions| regions.order);
        let slru = Caching::Slru { segments: 4 };
        assert_eq!(of("ripq"), Some(OrderConfig::Ripq(RipqConfig::new(slru))));
        let four = RipqConfig { sections: 4, ..RipqConfig::new(Caching::Slru { segments: 2 }) };
        assert_eq!(of("ripq4slru2"), Some(OrderConfig::Ripq(four)));
        let single = RipqConfig { single_point: true, ..RipqConfig::new(Caching::GDSF) };
        assert_eq!(of("sipqgdsf"), Some(OrderConfig::Ripq(single)));
        for wrong in ["ripq0", "ripq17", "ripqfoo", "ripq4slru", "rip", "blockcach", "ripqgdsf0", "ripqlfu"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn simulator_accepts_any_cache_size() {
        let accesses = [1, 2, 1].map(|object| policy::simulate::Access {
            object,
            weight: 100,
            now_seconds: 0,
            is_removal: false,
            is_set: false,
        });
        for size_bytes in [0, 1, 4096, 20_000, 1 << 20, 1 << 40] {
            let mut simulator = Regions::named("ripq").expect("a name").simulator(size_bytes, None);
            simulator.run(&accesses, &[]);
            assert_eq!(simulator.counts().requests, 3);
            assert_eq!(simulator.counts().hits, u64::from(size_bytes >= 20_000), "{size_bytes}");
        }
    }
}
