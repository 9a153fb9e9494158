//! Opening a cache.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use device::{Clock, Device, SliceDevice, VirtualClock};

use crate::background::Background;
use crate::claim::Claim;
use crate::close::Closing;
use crate::config::{
    CacheConfig, FlashConfig, LogOptions, PairConfig, Partitions, RecoverAfter, Removal, SmallItems,
    in_partition,
};
use crate::counters::Counters;
use crate::dram::{Dram, OnExpiry, OnUnlinkExpired};
use crate::error::CacheError;
use crate::event::{Event, EventKind, Events};
use crate::expiry_clock::ExpiryClock;
use crate::flash::journal;
use crate::flash::pair::Pair;
use crate::flash::pair_store::{FlashCallbacks, Found, PairSetup, earlier_pairs_end};
use crate::flash::soc::SocConfig;
use crate::flash::tier::{FlashTier, Parts};
use crate::flash::{DestructorCallback, HashFilter, OnEviction, Waiting};
use crate::hybrid::Engine;
use crate::in_flight::InFlight;
use crate::listener::{Destructor, Listener};
use crate::prefix_removals::PrefixRemovals;
use crate::spawner::{OwnThread, Spawner};
use crate::stop::Stop;
use crate::upkeep::Upkeep;
use crate::{Cache, KeyHash};

impl Cache {
    pub(crate) async fn open(
        config: &CacheConfig,
        clock: &Arc<dyn Clock>,
        threads: bool,
        waiting: Waiting,
    ) -> Result<Self, CacheError> {
        let mut config = config.clone();
        if let Some(flash) = &mut config.flash
            && flash.small_items.is_none()
        {
            flash.small_items = Some(engine_for(flash, clock, waiting).await);
        }
        let config = &config.within_budget()?;
        let claim = config.flash.as_ref().map(|flash| Claim::on(&flash.device)).transpose()?;
        let expiry_clock = Arc::new(ExpiryClock::new(Arc::clone(clock)));
        let clock = &(Arc::clone(&expiry_clock) as Arc<dyn Clock>);
        let events = config.events.clone().map(|sink| Arc::new(Events::new(sink)));
        let mut dram = Dram::new(&config.dram, Arc::clone(clock)).map_err(wrong)?;
        // The engine contains the tiers, and the tiers call the engine.
        let engine_cell = EngineCell::default();
        // A simulation must be repeatable, so its seed is fixed.
        let new_seed = config.hash_seed.unwrap_or_else(|| if threads { random_seed() } else { 0 });
        let (flash, hash_seed) = match &config.flash {
            Some(flash) => {
                let on_destructor = config.item_destructor.is_some().then(|| on_destructor(&engine_cell));
                let callbacks = FlashCallbacks { on_eviction: on_eviction(&engine_cell), on_destructor };
                let opened =
                    open_flash(flash, clock, config, new_seed, &callbacks, events.as_ref(), waiting).await?;
                (Some(opened.0), opened.1)
            }
            None => (None, new_seed),
        };
        dram = dram.with_hash_seed(hash_seed);
        if config.item_destructor.is_some() || events.is_some() {
            dram = dram.with_expiry_callback(on_expiry(&engine_cell, events.clone(), hash_seed));
        }
        if config.item_destructor.is_some() {
            dram = dram.with_unlink_expired_callback(on_unlink_expired(&engine_cell));
        }
        let closed_seconds =
            flash.iter().flat_map(|flash| &flash.pairs).filter_map(|pair| pair.store.closed_seconds);
        closed_seconds.for_each(|seconds| expiry_clock.not_before(seconds));
        let pools = config.dram.pools.len();
        let stop = Arc::<Stop>::default();
        let spawner = match &config.spawner {
            Some(spawn) => Spawner::Given(Arc::clone(spawn)),
            None if threads => Spawner::OwnThread(OwnThread::new(Arc::clone(&stop))),
            None => Spawner::None,
        };
        let discards_victims = flash.is_none()
            && events.is_none()
            && config.on_evict.is_none()
            && config.item_destructor.is_none();
        let engine = Arc::new_cyclic(|me| Engine {
            me: me.clone(),
            stop,
            spawner,
            upkeep: Upkeep::new(&config.upkeep, pools, config.seed, clock.monotonic_ns()),
            dram,
            flash,
            discards_victims,
            in_flight: InFlight::new(),
            loads: InFlight::new(),
            counters: Counters::new(),
            clock: Arc::clone(clock),
            pools,
            removals: PrefixRemovals::default(),
            on_remove: config.on_remove.clone(),
            on_evict: config.on_evict.clone().map(Listener::new),
            destructor: config.item_destructor.clone().map(Destructor::new),
            events,
            closing: Closing::default(),
            yields: threads,
        });
        let _ = engine_cell.set(Arc::downgrade(&engine));
        let background =
            if threads { Background::start(&engine)? } else { Background::without_threads(&engine) };
        Ok(Self { background, engine, _claim: claim })
    }
}

/// The engine, which the tiers call; set after the tiers are created.
type EngineCell = Arc<OnceLock<Weak<Engine>>>;

fn on_eviction(engine_cell: &EngineCell) -> OnEviction {
    let engine_cell = Arc::clone(engine_cell);
    Arc::new(move |item, take_out| match engine_cell.get().and_then(Weak::upgrade) {
        Some(engine) => engine.left_flash(item, take_out),
        None => _ = take_out(),
    })
}

fn on_destructor(engine_cell: &EngineCell) -> DestructorCallback {
    let engine_cell = Arc::clone(engine_cell);
    Arc::new(move |item, why| {
        if let Some(engine) = engine_cell.get().and_then(Weak::upgrade) {
            engine.destroy_on_flash(item, why);
        }
    })
}

/// The copy on flash has expired too. It is removed with the item, so that the destructor is called once.
fn on_unlink_expired(engine_cell: &EngineCell) -> OnUnlinkExpired {
    let engine_cell = Arc::clone(engine_cell);
    Arc::new(move |hash, key| {
        if let Some(engine) = engine_cell.get().and_then(Weak::upgrade) {
            engine.displace(hash, key, None);
        }
    })
}

fn on_expiry(engine_cell: &EngineCell, events: Option<Arc<Events>>, hash_seed: u64) -> OnExpiry {
    let engine_cell = Arc::clone(engine_cell);
    Arc::new(move |item| {
        if let Some(events) = &events {
            let event = Event::new(EventKind::Expired, item.key(), KeyHash::seeded(item.key(), hash_seed));
            events.emit(&event.of(item.len(), item.expiry_seconds()));
        }
        if let Some(engine) = engine_cell.get().and_then(Weak::upgrade) {
            engine.destroy(Some(item), Removal::Expired);
        }
    })
}

/// Selects the items that must be read when their region is reclaimed; `None` if there are none.
fn reported_keys(config: &CacheConfig, events: Option<&Arc<Events>>) -> Option<HashFilter> {
    match events {
        _ if config.on_evict.is_some() || config.item_destructor.is_some() => Some(Arc::new(|_| true)),
        Some(events) => {
            let events = Arc::clone(events);
            Some(Arc::new(move |hash| events.wants(hash)))
        }
        None => None,
    }
}

async fn open_flash(
    config: &FlashConfig,
    clock: &Arc<dyn Clock>,
    whole: &CacheConfig,
    new_seed: u64,
    callbacks: &FlashCallbacks,
    events: Option<&Arc<Events>>,
    waiting: Waiting,
) -> Result<(FlashTier, u64), CacheError> {
    let setups = setups(config, clock, whole.seed, callbacks, reported_keys(whole, events).as_ref())?;
    let partitions = Partitions::new(config.pairs.len(), &config.key_prefixes)?;
    let (pairs, hash_seed) = open_pairs(config, setups, new_seed, waiting).await?;
    let tier = FlashTier::new(Parts {
        pairs,
        partitions,
        device: Arc::clone(&config.device),
        admission: Arc::clone(&config.admission),
        clock: Arc::clone(clock),
        small_item_max_bytes: config.small_item_max_bytes,
        min_ttl_seconds: config.min_ttl_seconds,
    });
    Ok((tier, hash_seed))
}

impl FlashConfig {
    /// Checks whether the device can be divided as configured, without reading it. Opening a cache includes this check.
    ///
    /// # Errors
    /// The invalid setting.
    pub fn check(&self) -> Result<(), CacheError> {
        let small_items = Some(self.small_items_or_default());
        Self { small_items, ..self.clone() }.check_engines()
    }

    fn check_engines(&self) -> Result<(), CacheError> {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let setups = setups(self, &clock, 0, &FlashCallbacks::unused(), None)?;
        setups.iter().try_for_each(PairSetup::check_division)
    }

    /// The configured engine for small items; by default the log if it fits the device.
    pub(crate) fn small_items_or_default(&self) -> SmallItems {
        self.small_items.unwrap_or_else(|| {
            let log = SmallItems::Log(LogOptions::default());
            let with_log = Self { small_items: Some(log), ..self.clone() };
            if with_log.check_engines().is_ok() { log } else { SmallItems::Sets }
        })
    }
}

/// The engine for small items if none is configured: sets if a cache with sets can be recovered from the device, otherwise the default.
async fn engine_for(config: &FlashConfig, clock: &Arc<dyn Clock>, waiting: Waiting) -> SmallItems {
    let with_sets = FlashConfig { small_items: Some(SmallItems::Sets), ..config.clone() };
    let setups = setups(&with_sets, clock, 0, &FlashCallbacks::unused(), None);
    // Errors are reported when the pairs are opened.
    let first = setups.ok().and_then(|setups| setups.into_iter().next());
    match first {
        Some(first) if first.fits_device_content(waiting).await => SmallItems::Sets,
        _ => config.small_items_or_default(),
    }
}

/// The setup of each pair, with its slice of the device.
fn setups<'a>(
    config: &'a FlashConfig,
    clock: &'a Arc<dyn Clock>,
    seed: u64,
    callbacks: &FlashCallbacks,
    reported_keys: Option<&HashFilter>,
) -> Result<Vec<PairSetup<'a>>, CacheError> {
    check_division(config)?;
    let mut offset_bytes = 0;
    let setup = |(number, pair): (usize, &PairConfig)| {
        let place = place(config, pair, offset_bytes)?;
        offset_bytes = place.end;
        Ok(PairSetup {
            offset_bytes: place.start,
            covers_earlier_data: false,
            device: slice(config, place)?,
            config,
            soc_share: pair.soc_share,
            clock,
            store_id: store_id(clock, seed, number),
            callbacks: callbacks.clone(),
            reported_keys: reported_keys.cloned(),
        })
    };
    config.pairs.iter().enumerate().map(setup).collect()
}

/// Opens all pairs. On an error none is changed, unless the device fails while they are written. Also returns the hash seed: that of the
/// recovered items, or `new_seed` if there are none.
async fn open_pairs(
    config: &FlashConfig,
    mut setups: Vec<PairSetup<'_>>,
    new_seed: u64,
    waiting: Waiting,
) -> Result<(Vec<Pair>, u64), CacheError> {
    let inherited = 1..earlier_pairs_end(&config.device, waiting).await;
    for (pair, setup) in setups.iter_mut().enumerate() {
        setup.covers_earlier_data = inherited.contains(&setup.offset_bytes);
        setup.check(waiting).await.map_err(|error| in_partition(error, &config.key_prefixes, pair))?;
    }
    for setup in &setups {
        setup.erase_earlier_data(waiting).await?;
    }
    let mut finds: Vec<Found> = Vec::with_capacity(setups.len());
    for setup in &setups {
        let closed = finds.first().map(|first| first.closed.unwrap_or_default());
        finds.push(setup.find(closed, waiting).await?);
    }
    // Recovered pairs were closed by one cache, so they have one seed.
    let hash_seed = finds.iter().find_map(Found::hash_seed).unwrap_or(new_seed);
    let mut pairs: Vec<Pair> = Vec::with_capacity(setups.len());
    for (setup, found) in setups.into_iter().zip(finds) {
        let first = pairs.first().map(|first| first.store.session);
        pairs.push(setup.open(found, first, hash_seed, waiting).await?);
    }
    Ok((pairs, hash_seed))
}

/// A seed that clients cannot know: the standard library seeds its hashers from the system.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A unique identifier for a new store.
fn store_id(clock: &Arc<dyn Clock>, seed: u64, pair: usize) -> u128 {
    let clock_bits = (u64::from(clock.unix_seconds()) << 32) ^ clock.monotonic_ns();
    let low = KeyHash(clock_bits ^ seed.rotate_left(17) ^ pair as u64).remix();
    let high = KeyHash(low ^ seed).remix();
    u128::from(high) << 64 | u128::from(low)
}

/// Checks whether the device can be divided as configured.
fn check_division(config: &FlashConfig) -> Result<(), CacheError> {
    check_shares(&config.pairs)?;
    let geometry = config.device.geometry();
    if config.pairs.iter().any(|pair| pair.soc_share > 0.0) {
        let mut one_bucket = SocConfig::new(0, u64::from(config.bucket_bytes), 0);
        one_bucket.bucket_bytes = config.bucket_bytes;
        one_bucket.filter_bytes_per_bucket = config.filter_bytes_per_bucket;
        one_bucket.check(&geometry).map_err(wrong)?;
    }
    if config.regions.region_bytes == 0 && config.pairs.iter().any(|pair| pair.soc_share < 1.0) {
        return Err(wrong(
            "regions.region_bytes: regions of 0 bytes are possible only with a soc_share of 1",
        ));
    }
    let (alignment, block_bytes) = (config.region_alignment_bytes, geometry.block_bytes);
    if alignment > 1 && !alignment.is_multiple_of(u64::from(block_bytes)) {
        return Err(wrong(format!(
            "region_alignment_bytes: {alignment} is not a multiple of the device's block of {block_bytes}"
        )));
    }
    Ok(())
}

fn check_shares(pairs: &[PairConfig]) -> Result<(), CacheError> {
    if pairs.is_empty() {
        return Err(wrong("pairs: a flash tier needs at least one pair of engines"));
    }
    let wrong_share = |pair: &&PairConfig| {
        !(0.0..=1.0).contains(&pair.soc_share) || !(0.0..=1.0).contains(&pair.device_share)
    };
    if let Some(pair) = pairs.iter().find(wrong_share) {
        let shares = [pair.device_share, pair.soc_share];
        return Err(wrong(format!(
            "pairs: device_share and soc_share must be between 0 and 1, not {shares:?}"
        )));
    }
    if pairs.iter().any(|pair| pair.device_share == 0.0) {
        return Err(wrong("pairs: one has a device_share of 0: remove it, or give it a share"));
    }
    let sum: f64 = pairs.iter().map(|pair| pair.device_share).sum();
    if sum > 1.0 + 1e-6 {
        return Err(wrong(format!("pairs: the device_shares sum to {sum}, more than 1")));
    }
    Ok(())
}

/// The range of the device for a pair whose share starts at `offset_bytes`.
fn place(config: &FlashConfig, pair: &PairConfig, offset_bytes: u64) -> Result<Range<u64>, CacheError> {
    let geometry = config.device.geometry();
    let page_bytes = if config.recover_after == RecoverAfter::CleanClose { 1 } else { journal::PAGE_BYTES };
    let unit = u64::from(config.bucket_bytes.max(geometry.block_bytes));
    let unit = unit.max(config.region_alignment_bytes).max(page_bytes);
    let wanted = (geometry.capacity_bytes as f64 * pair.device_share) as u64;
    let bytes = wanted.min(geometry.capacity_bytes.saturating_sub(offset_bytes)) / unit * unit;
    if bytes == 0 {
        return Err(wrong(format!(
            "a pair's share of flash is {wanted} bytes, less than one unit of {unit}"
        )));
    }
    Ok(offset_bytes..offset_bytes + bytes)
}

fn slice(config: &FlashConfig, range: Range<u64>) -> Result<Arc<dyn Device>, CacheError> {
    if range == (0..config.device.geometry().capacity_bytes) {
        return Ok(Arc::clone(&config.device));
    }
    let slice = SliceDevice::new(Arc::clone(&config.device), range)
        .map_err(|source| CacheError::Device { context: "dividing the flash device", source })?;
    Ok(Arc::new(slice))
}

fn wrong(error: impl std::fmt::Display) -> CacheError {
    CacheError::Config(format!("{error}"))
}
