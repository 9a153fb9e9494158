//! The source of both generators: draws a pool, an operation and a key, and computes the key's properties.

use std::sync::Arc;

use rand::Rng;

use super::error::{ConfigError, Problem};
use super::interval_index::IntervalIndex;
use super::keys::{KeyBuffer, KeyFormat, LONE, LONE_BITS, MAX_KEYS};
use super::popularity::Draw;
use super::population::Population;
use super::random::{At, Stream, below, scramble, stream};
use super::{Distribution, GeneratorConfig};
use crate::{AHEAD, Request, RequestKind, Source};

/// The pools of a generator, shared by all its sources.
pub(super) struct Pools<S> {
    by_op_share: IntervalIndex,
    populations: Vec<Population<S>>,
}

impl<S: KeyFormat> Pools<S> {
    /// The pools of `config`, whose keys are written by `formats`, one per pool.
    pub(super) fn new(config: &GeneratorConfig, formats: Vec<S>) -> Result<Self, ConfigError> {
        let shares: Vec<f64> = config.pools.iter().map(|pool| pool.op_share).collect();
        let by_op_share = IntervalIndex::by_weight(&shares).map_err(|problem| problem.of("op_share"))?;
        let populations = config.pools.iter().zip(formats).enumerate();
        let populations = populations
            .map(|(number, (pool, format))| Population::new(&pool.distribution, format, number))
            .collect::<Result<_, _>>()?;
        Ok(Self { by_op_share, populations })
    }

    pub(super) fn key_count(&self) -> u64 {
        self.populations.iter().map(|population| population.format.keys()).sum()
    }
}

/// Number of keys of each pool: contiguous ranges by share. A pool without keys gets one if it receives no operations, so that it can be
/// created.
pub(super) fn keys_by_pool(config: &GeneratorConfig) -> Result<Vec<u64>, ConfigError> {
    if config.pools.is_empty() {
        return Err(Problem::NoPools.of("pools"));
    }
    if config.keys > MAX_KEYS {
        return Err(Problem::TooManyKeys(config.keys).of("keys"));
    }
    let shares: Vec<f64> = config.pools.iter().map(|pool| pool.key_share).collect();
    let total = super::interval_index::checked_sum(&shares).map_err(|problem| problem.of("key_share"))?;
    let mut before = 0.0;
    let mut first = 0;
    let cut = |(number, pool): (usize, &super::PoolConfig)| {
        before += pool.key_share;
        // As in CacheBench: each edge is rounded down separately, so no key is lost between pools.
        let end = ((config.keys as f64 * before / total) as u64).min(config.keys);
        let keys = end - first;
        first = end;
        if keys == 0 && pool.op_share > 0.0 {
            return Err(Problem::NoKeys { keys: config.keys }.of(format!("pool {number}: key_share")));
        }
        Ok(keys.max(1))
    };
    config.pools.iter().enumerate().map(cut).collect()
}

/// The table of a pool's key lengths, checked.
pub(super) fn key_lengths(
    distribution: &Distribution,
    pool: usize,
) -> Result<super::sizes::Sizes, ConfigError> {
    distribution.key_bytes.sizes().map_err(|problem| problem.of(format!("pool {pool}: key_bytes")))
}

/// The way in which a source draws keys.
pub(super) enum Accesses {
    /// Each from the popularity.
    Fresh,
    /// Each from a pool's list of accesses drawn from the popularity in advance. Entry `n` of the list is computed by [`At`] from its
    /// number.
    Prepared(Arc<[PreparedList]>),
}

/// A pool's list of accesses.
pub(super) struct PreparedList {
    /// Number of the stream of the first entry.
    pub(super) first: u64,
    pub(super) entries: u64,
}

impl Accesses {
    #[inline]
    fn draw(&self, pool: usize, popularity: &Draw, random: &mut Stream) -> u64 {
        match self {
            Self::Fresh => popularity.draw(random),
            Self::Prepared(lists) => {
                let list = &lists[pool];
                let entry = below(random.next_u64(), list.entries);
                popularity.draw(&mut At(list.first.wrapping_add(entry)))
            }
        }
    }
}

/// The requests of one worker.
pub(super) struct Generated<S> {
    pools: Arc<Pools<S>>,
    accesses: Accesses,
    random: Stream,
    /// A ring: the request returned last, the next one, and those up to the upcoming one.
    drawn: [Drawn; RING],
    /// Position of the last one.
    last: usize,
    chain: Vec<u32>,
    next_lone: u64,
    /// Makes lone keys of different seeds different.
    lone_mask: u64,
}

const RING: usize = AHEAD + 2;

/// A drawn request without the properties of its key.
struct Drawn {
    pool: usize,
    kind: RequestKind,
    index: u64,
    key_id: u64,
    key: KeyBuffer,
}

impl<S: KeyFormat> Generated<S> {
    pub(super) fn new(pools: Arc<Pools<S>>, accesses: Accesses, seed: u64, worker: usize) -> Self {
        assert!(worker < 1 << (63 - LONE_BITS), "lone ids have room for 32,768 workers");
        let nothing =
            |_| Drawn { pool: 0, kind: RequestKind::Get, index: 0, key_id: 0, key: KeyBuffer::new() };
        let mut source = Self {
            pools,
            accesses,
            random: stream(seed, worker),
            drawn: std::array::from_fn(nothing),
            last: 0,
            chain: Vec::new(),
            next_lone: (worker as u64) << LONE_BITS,
            lone_mask: scramble(!seed) | LONE,
        };
        (1..RING).for_each(|place| source.draw(place));
        source
    }

    #[inline]
    fn draw(&mut self, place: usize) {
        let Self { pools, accesses, random, drawn, next_lone, lone_mask, .. } = self;
        let Drawn { pool, kind, index, key_id, key } = &mut drawn[place];
        // One random number serves two choices with few alternatives: 32 bits suffice for each.
        let choice = random.next_u64();
        *pool = pools.by_op_share.find(choice << 32);
        let population = &pools.populations[*pool];
        *kind = population.kinds.at(choice & !0xffff_ffff);
        if kind.is_lone() {
            *index = *next_lone ^ *lone_mask;
            *key_id = *index;
            *next_lone += 1;
            population.format.write_lone_key(*key_id, key);
        } else {
            *index = accesses.draw(*pool, &population.popularity, random);
            *key_id = population.format.write_key(*index, key);
        }
    }
}

impl<S: KeyFormat> Source for Generated<S> {
    #[inline]
    fn next(&mut self) -> Option<Request<'_>> {
        // The last request is no longer borrowed: the successor replaces it.
        self.draw(self.last);
        self.last = (self.last + 1) % RING;
        let Self { pools, drawn, chain, last, .. } = self;
        let Drawn { pool, kind, index, key_id, key } = &drawn[*last];
        let population = &pools.populations[*pool];
        population.write_chain(*index, *kind, chain);
        Some(request(population, *kind, *pool, *index, *key_id, key, chain))
    }

    #[inline]
    fn upcoming(&self) -> Option<&[u8]> {
        Some(self.drawn[(self.last + RING - 1) % RING].key.key())
    }
}

#[inline]
fn request<'a, S: KeyFormat>(
    population: &Population<S>,
    kind: RequestKind,
    pool: usize,
    index: u64,
    key_id: u64,
    key: &'a KeyBuffer,
    chain_bytes: &'a [u32],
) -> Request<'a> {
    Request {
        kind,
        key: key.key(),
        key_id,
        value_bytes: population.value_bytes(index),
        chain_bytes,
        ttl_seconds: population.ttl_seconds(index),
        pool: pool as u16,
        time_ns: None,
        repeat: 1,
        tenant: None,
        part: None,
    }
}
