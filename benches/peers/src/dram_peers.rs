//! Five memory caches behind one interface. Keys have 8 bytes; a value is bytes owned by the cache.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use cache::{Cache, InsertOptions};
use policy::eviction::{EvictionConfig, Kind};

/// A cache in memory.
pub trait Dram: Send + Sync {
    /// Returns the value's first byte, so that the reader accesses it.
    fn get(&self, key: u64) -> Option<u8>;
    fn insert(&self, key: u64, value: &[u8]);
    /// Runs deferred work of the cache.
    fn settle(&self) {}
    /// Bytes that the cache accounts, if it does.
    fn accounted_bytes(&self) -> Option<u64> {
        None
    }
}

/// The caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    Ours,
    OursSieve,
    OursLru,
    OursWTinyLfu,
    QuickCache,
    FoyerS3Fifo,
    FoyerLru,
    Moka,
}

impl Peer {
    pub const ALL: [Self; 8] = [
        Self::Ours,
        Self::OursSieve,
        Self::OursLru,
        Self::OursWTinyLfu,
        Self::QuickCache,
        Self::FoyerS3Fifo,
        Self::FoyerLru,
        Self::Moka,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours S3-FIFO",
            Self::OursSieve => "ours SIEVE",
            Self::OursLru => "ours LRU",
            Self::OursWTinyLfu => "ours W-TinyLFU",
            Self::QuickCache => "quick_cache",
            Self::FoyerS3Fifo => "foyer S3-FIFO",
            Self::FoyerLru => "foyer LRU",
            Self::Moka => "moka",
        }
    }

    /// The policy of our cache; the first is the builder's default.
    fn of_ours(self) -> Option<Kind> {
        match self {
            Self::Ours => Some(Kind::S3Fifo),
            Self::OursSieve => Some(Kind::Sieve),
            Self::OursLru => Some(Kind::Lru),
            Self::OursWTinyLfu => Some(Kind::WTinyLfu),
            Self::QuickCache | Self::FoyerS3Fifo | Self::FoyerLru | Self::Moka => None,
        }
    }

    /// Whether it is one of ours.
    pub fn is_ours(self) -> bool {
        self.of_ours().is_some()
    }

    /// A cache limited to `bytes`. Peers count key, value and `overhead_bytes`; ours counts headers and rounding of chunks itself, so
    /// `overhead_bytes` (for index and policy) is subtracted from its limit.
    pub fn open(self, bytes: u64, entries: usize, overhead_bytes: u64) -> Box<dyn Dram> {
        if let Some(kind) = self.of_ours() {
            return Box::new(Ours::open(bytes - overhead_bytes * entries as u64, kind));
        }
        match self {
            Self::QuickCache => Box::new(Quick::open(bytes, entries, overhead_bytes)),
            Self::FoyerS3Fifo => {
                Box::new(Foyer::open(bytes, overhead_bytes, foyer::S3FifoConfig::default().into()))
            }
            Self::FoyerLru => {
                Box::new(Foyer::open(bytes, overhead_bytes, foyer::LruConfig::default().into()))
            }
            _ => Box::new(Moka::open(bytes, overhead_bytes)),
        }
    }
}

const LARGEST_ITEM_BYTES: u32 = 4096;

struct Ours(Cache);

impl Ours {
    fn open(bytes: u64, kind: Kind) -> Self {
        // The peers are configured with the expected number of items, ours with the largest item.
        let builder = Cache::builder().dram_bytes(bytes).max_item_bytes(LARGEST_ITEM_BYTES);
        let builder = builder.eviction(EvictionConfig::new(kind));
        Self(builder.open().expect("a cache in memory opens"))
    }
}

impl Dram for Ours {
    #[inline]
    fn get(&self, key: u64) -> Option<u8> {
        self.0.get_blocking(&key.to_le_bytes()).map(|item| item[0])
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert_blocking(&key.to_le_bytes(), value, &InsertOptions::default());
    }

    fn accounted_bytes(&self) -> Option<u64> {
        let memory = self.0.stats().dram_memory;
        Some(memory.used_slab_bytes + memory.index_bytes + memory.policy_bytes)
    }
}

type Value = Arc<[u8]>;

#[derive(Clone)]
struct Weigh {
    overhead_bytes: u64,
}

impl Weigh {
    fn of(&self, value: &Value) -> u64 {
        (size_of::<u64>() + value.len()) as u64 + self.overhead_bytes
    }
}

struct Quick(quick_cache::sync::Cache<u64, Value, Weigh>);

impl quick_cache::Weighter<u64, Value> for Weigh {
    fn weight(&self, _: &u64, value: &Value) -> u64 {
        self.of(value)
    }
}

impl Quick {
    fn open(bytes: u64, entries: usize, overhead_bytes: u64) -> Self {
        Self(quick_cache::sync::Cache::with_weighter(entries, bytes, Weigh { overhead_bytes }))
    }
}

impl Dram for Quick {
    #[inline]
    fn get(&self, key: u64) -> Option<u8> {
        self.0.get(&key).map(|value| value[0])
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(key, value.into());
    }
}

struct Foyer(foyer::Cache<u64, Value>);

impl Foyer {
    fn open(bytes: u64, overhead_bytes: u64, eviction: foyer::EvictionConfig) -> Self {
        let weigh = Weigh { overhead_bytes };
        let builder = foyer::CacheBuilder::new(bytes as usize)
            .with_eviction_config(eviction)
            .with_weighter(move |_, value: &Value| weigh.of(value) as usize);
        Self(builder.build())
    }
}

impl Dram for Foyer {
    #[inline]
    fn get(&self, key: u64) -> Option<u8> {
        self.0.get(&key).map(|entry| entry.value()[0])
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(key, value.into());
    }
}

// SipHash, moka's default, would be a disadvantage: it gets the kind of hasher of foyer and quick_cache.
type FastHash = BuildHasherDefault<rapidhash::fast::RapidHasher<'static>>;

struct Moka(moka::sync::Cache<u64, Value, FastHash>);

impl Moka {
    fn open(bytes: u64, overhead_bytes: u64) -> Self {
        let weigh = Weigh { overhead_bytes };
        let builder = moka::sync::Cache::builder()
            .max_capacity(bytes)
            .weigher(move |_: &u64, value: &Value| weigh.of(value) as u32);
        Self(builder.build_with_hasher(FastHash::default()))
    }
}

impl Dram for Moka {
    #[inline]
    fn get(&self, key: u64) -> Option<u8> {
        self.0.get(&key).map(|value| value[0])
    }

    #[inline]
    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(key, value.into());
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}
