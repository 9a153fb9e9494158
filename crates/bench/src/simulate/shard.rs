//! A share of a trace's objects, chosen by a hash of the key, so that several machines simulate one trace.
//!
//! Each shard is a cache of its share of the size, which sees all requests for its objects. The counts of all shards add up to those of a
//! cache that is divided by hash, as sharded caches are. For policies that compare all objects, that is an estimate of one undivided cache.

use std::fmt;
use std::str::FromStr;

use policy::simulate::hash_of;
use workload::trace::{Access, Accesses, ReadReport, TenantNames, TraceError};

/// One of several shares of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 0.
    index: u32,
    of: u32,
}

/// Largest number of shards.
pub const MOST_SHARDS: u32 = 1 << 16;

impl Shard {
    /// The share of a cache size, at least 1.
    #[must_use]
    pub fn of_size(&self, size: u64) -> u64 {
        (size / u64::from(self.of)).max(1)
    }

    fn has(&self, key: u64) -> bool {
        ((u128::from(hash_of(key)) * u128::from(self.of)) >> 64) as u32 == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let (number, of): (u32, u32) = (number.trim().parse().ok()?, of.trim().parse().ok()?);
            ((1..=of).contains(&number) && of <= MOST_SHARDS).then(|| Self { index: number - 1, of })
        });
        parsed.ok_or_else(|| {
            format!(
                "{text:?} is no shard: write 1/16 to 16/16 for one of 16 shards, of at most {MOST_SHARDS}"
            )
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index + 1, self.of)
    }
}

/// The accesses of a trace to the objects of a shard.
pub(super) struct ShardAccesses {
    trace: Box<dyn Accesses>,
    shard: Shard,
    /// The trace's report, with the number of this shard's accesses before the first timestamp.
    report: ReadReport,
    /// Accesses of the trace so far.
    seen: u64,
    untimed: u64,
}

impl ShardAccesses {
    pub(super) fn new(trace: Box<dyn Accesses>, shard: Shard) -> Self {
        let report = trace.report().clone();
        Self { trace, shard, report, seen: 0, untimed: 0 }
    }
}

impl Accesses for ShardAccesses {
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        loop {
            let more = self.trace.next_batch(batch)?;
            let untimed = self.trace.report().untimed;
            batch.retain(|access| {
                let is_kept = self.shard.has(access.key);
                self.untimed += u64::from(is_kept && self.seen < untimed);
                self.seen += 1;
                is_kept
            });
            // An empty batch is the end.
            if !more || !batch.is_empty() {
                self.report = ReadReport { untimed: self.untimed, ..self.trace.report().clone() };
                return Ok(more);
            }
        }
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }

    fn tenants(&self) -> TenantNames {
        self.trace.tenants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_one_shard() {
        let shards: Vec<Shard> = (1..=5).map(|number| format!("{number}/5").parse().unwrap()).collect();
        let mut counts = [0_u32; 5];
        for key in 0..10_000 {
            let of: Vec<usize> = (0..5).filter(|&at| shards[at].has(key)).collect();
            assert_eq!(of.len(), 1, "key {key}");
            counts[of[0]] += 1;
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    #[test]
    fn shards_outside_their_number_are_refused() {
        for text in ["0/4", "5/4", "4", "x/4", "1/0", "1/100000", "-1/4"] {
            let error = text.parse::<Shard>().unwrap_err();
            assert!(error.starts_with(&format!("{text:?} is no shard: write 1/16 to 16/16")), "{error}");
        }
        assert_eq!("3/16".parse::<Shard>().unwrap().to_string(), "3/16");
        assert_eq!("3/16".parse::<Shard>().unwrap().of_size(1600), 100);
        assert_eq!("3/16".parse::<Shard>().unwrap().of_size(3), 1);
    }
}
