//! The store of a pair of engines: its slice of a device, with superblocks, snapshot area, regions and buckets.
//!
//! Opening a pair reads the superblock, restores the snapshot of a clean close or the journals, and marks the store open before anything
//! else is written. After a crash without journals the store reopens empty, in a new generation. Closing writes a snapshot and marks the
//! store clean.

mod close;
mod journals;

use std::sync::Arc;

use device::{Clock, Device, SliceDevice};
use parking_lot::Mutex;

use super::journal::{self, Chain};
use super::log::{self, HashLog, LogConfig};
use super::pair::Pair;
use super::region::{self, RegionConfig, RegionStore, StoreId};
use super::small::SmallEngine;
use super::soc::{Soc, SocConfig};
use super::superblock::{
    Layout, LayoutConfig, Placed, Recognised, Section, SnapshotError, State, Superblock, read_snapshot,
    recognise,
};
use super::{DestructorCallback, HashFilter, OnEviction, Waiting};
use crate::KeyHash;
use crate::config::{FlashConfig, KeyPrefix, RecoverAfter, Recovery, SmallItems};
use crate::error::CacheError;
use journals::Chains;

const SOC_SECTION: &str = "soc";
const REGIONS_SECTION: &str = "regions";
const REGIONS_JOURNAL_SECTION: &str = "regions journal";
/// The Unix second of the close, in 4 bytes.
const CLOCK_SECTION: &str = "clock";
/// Most bytes of that section, with name, length and checksum.
const CLOCK_SECTION_BYTES: u64 = 32;

/// Assumed size of the smallest items in regions, for the size of the snapshot area. If items are smaller, the snapshot omits the regions
/// that are evicted next.
const SMALL_REGION_ITEM_BYTES: u64 = 256;
/// Most bytes of a region and of an item in the region store's snapshot, and the additional bytes if items have ranks.
const SNAPSHOT_BYTES_PER_REGION: u64 = 64;
const SNAPSHOT_BYTES_PER_ITEM: u64 = 2;
const RANKED_BYTES_PER_REGION: u64 = 640;
const RANKED_BYTES_PER_ITEM: u64 = 3;

/// The open store of a pair.
pub(crate) struct PairStore {
    /// The device, with the placement handle of superblocks and snapshots.
    metadata: Arc<dyn Device>,
    superblock: Mutex<Superblock>,
    /// Identifies this opening of the pair in its superblock.
    pub(crate) session: u64,
    /// Whether the pair recovered the items of an earlier cache.
    pub(crate) recovered: bool,
    /// The reason why the content of an earlier cache was not recovered; `None` if it was, or if there was none.
    pub(crate) loss: Option<&'static str>,
    /// Unix second at which the recovered cache was closed, by its own clock.
    pub(crate) closed_seconds: Option<u32>,
}

const NOT_CLOSED: &str =
    "it was not closed: the earlier process was killed, failed, or ran with a setting that keeps no cache";
const OTHER_DIVISION: &str = "the earlier cache divided flash differently";
const UNREADABLE: &str = "its snapshot cannot be read";
const DAMAGED: &str = "its superblock is damaged";

/// The content of a store that is recovered.
enum Content {
    Nothing,
    /// The snapshot of a clean close.
    Snapshot(Vec<Section>),
    /// The journals of the engines, after a crash.
    Journals(Chains),
}

/// The opened engines of a pair.
struct Engines {
    small_items: Option<SmallEngine>,
    regions: Option<RegionStore>,
    /// Whether each engine restored its section of the snapshot.
    are_restored: bool,
}

/// Callbacks of the flash engines.
#[derive(Clone)]
pub(crate) struct FlashCallbacks {
    /// Called for evicted items.
    pub(crate) on_eviction: OnEviction,
    /// Called for removed items, if there is an item destructor.
    pub(crate) on_destructor: Option<DestructorCallback>,
}

impl FlashCallbacks {
    /// For checks that open no engine.
    pub(crate) fn unused() -> Self {
        Self { on_eviction: Arc::new(|_, _| {}), on_destructor: None }
    }
}

/// The configuration of a pair that is not open yet.
pub(crate) struct PairSetup<'a> {
    pub(crate) device: Arc<dyn Device>,
    /// Offset of the pair's slice on the flash device.
    pub(crate) offset_bytes: u64,
    /// Whether the slice begins inside a slice of an earlier cache, so that data of any kind may lie at its start.
    pub(crate) covers_earlier_data: bool,
    pub(crate) config: &'a FlashConfig,
    pub(crate) soc_share: f64,
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// Random identifier for a new store.
    pub(crate) store_id: u128,
    pub(crate) callbacks: FlashCallbacks,
    /// The keys whose evictions from regions and from the log are reported: these items are read before they are overwritten. `None`
    /// reports none.
    pub(crate) reported_keys: Option<HashFilter>,
}

/// The end of the pairs of an earlier cache, which are adjacent and begin at offset 0; 0 if there are none.
pub(crate) async fn earlier_pairs_end(device: &Arc<dyn Device>, waiting: Waiting) -> u64 {
    let capacity_bytes = device.geometry().capacity_bytes;
    let mut end = 0;
    while end < capacity_bytes {
        let Ok(rest) = SliceDevice::new(Arc::clone(device), end..capacity_bytes) else { break };
        let Ok(Recognised::Ours(pair)) = recognise(&rest, waiting).await else { break };
        if pair.layout.device_bytes == 0 {
            break;
        }
        end = end.saturating_add(pair.layout.device_bytes);
    }
    end
}

/// The session of the first pair of a cache; `None` for the first pair itself.
///
/// A cache may have fewer pairs than the earlier one. Pairs that it does not use stay closed while their keys may be removed or replaced.
/// So the other pairs are recovered only if they were closed in the same session as the first.
pub(crate) type FirstSession = Option<u64>;

/// The content that was found in the slice of a pair.
pub(crate) struct Found {
    /// The superblock with which the pair continues.
    superblock: Superblock,
    content: Content,
    /// The session that closed it, or that ended without a close if its items are recovered.
    pub(crate) closed: Option<u64>,
    /// The reason why the content of an earlier cache is not recovered.
    loss: Option<&'static str>,
    /// Whether the slice holds foreign data, which is erased first.
    is_foreign: bool,
}

impl Found {
    /// Hash seed of the recovered items, if there are any.
    pub(crate) fn hash_seed(&self) -> Option<u64> {
        (!matches!(self.content, Content::Nothing)).then_some(self.superblock.hash_seed)
    }
}

impl PairSetup<'_> {
    /// Checks that the pair can be opened. Changes nothing, so that a refused configuration destroys no data of this pair or of another.
    pub(crate) async fn check(&self, waiting: Waiting) -> Result<(), CacheError> {
        self.check_division()?;
        self.recognised(waiting).await.map(drop)
    }

    /// Checks that the slice can be divided as configured.
    pub(crate) fn check_division(&self) -> Result<(), CacheError> {
        self.check_engines(&self.layout()?)
    }

    /// Erases the superblock area if an earlier cache had other data there. Called for all pairs before the first is opened, because the
    /// earlier superblocks show how far the earlier cache extended.
    pub(crate) async fn erase_earlier_data(&self, waiting: Waiting) -> Result<(), CacheError> {
        if !self.covers_earlier_data || !matches!(self.recognised(waiting).await?, Recognised::Foreign { .. })
        {
            return Ok(());
        }
        self.erase(waiting).await
    }

    /// Whether the last cache in the slice of the first pair had this configuration.
    pub(crate) async fn fits_device_content(&self, waiting: Waiting) -> bool {
        let found = recognise(&*self.device, waiting).await;
        matches!(found, Ok(Recognised::Ours(old)) if old.fingerprint == self.fingerprint(None, old.hash_seed))
    }

    async fn erase(&self, waiting: Waiting) -> Result<(), CacheError> {
        let erased = super::superblock::erase(&*self.device, waiting).await;
        erased.map_err(|source| CacheError::Device { context: "erasing the old superblock", source })
    }

    /// Determines the state from which the pair continues. Changes nothing on the device, since a read that fails now may succeed later.
    /// `closed` is the session that closed the first pair, 0 if none did.
    pub(crate) async fn find(&self, closed: FirstSession, waiting: Waiting) -> Result<Found, CacheError> {
        let layout = self.layout()?;
        let fresh = Superblock::new(self.store_id, layout, 0);
        let content = || Content::Nothing;
        let empty = |superblock| Found {
            superblock,
            content: content(),
            closed: None,
            loss: None,
            is_foreign: false,
        };
        let discard = self.config.recovery == Recovery::Discard;
        Ok(match self.recognised(waiting).await? {
            Recognised::Ours(old) if !discard => self.restore(old, layout, closed, waiting).await?,
            // The sequence continues, so that this copy is the newest.
            Recognised::Ours(old) => empty(Superblock { sequence: old.sequence, ..fresh }),
            Recognised::Blank if self.covers_earlier_data => {
                Found { loss: Some(OTHER_DIVISION), ..empty(fresh) }
            }
            Recognised::Blank => empty(fresh),
            // Without a superblock nothing can be recovered.
            Recognised::Damaged if !discard => Found { loss: Some(DAMAGED), ..empty(fresh) },
            Recognised::Foreign { .. } | Recognised::Newer { .. } | Recognised::Damaged => {
                Found { is_foreign: self.config.recovery != Recovery::Reopen, ..empty(fresh) }
            }
        })
    }

    /// Determines the recoverable content of the cache with this newest superblock.
    async fn restore(
        &self,
        old: Superblock,
        layout: Layout,
        first_closed: FirstSession,
        waiting: Waiting,
    ) -> Result<Found, CacheError> {
        let before = self.fingerprint(first_closed, old.hash_seed);
        if let Some(open) = old.continued(layout, before)
            && self.has_journals()
        {
            return self.restore_from_journals(open, old.session(), waiting).await;
        }
        let (superblock, place) = old.reopened(layout, before);
        let closed = matches!(old.state, State::Clean(_)).then(|| old.session());
        let found =
            |superblock, content, loss| Found { superblock, content, closed, loss, is_foreign: false };
        let Some(place) = place else {
            let difference =
                || old.difference(&layout, before, first_closed.is_none()).or(Some(OTHER_DIVISION));
            let loss = if closed.is_some() { difference() } else { Some(NOT_CLOSED) };
            return Ok(found(superblock, Content::Nothing, loss));
        };
        match read_snapshot(&*self.device, place, waiting).await {
            Ok(sections) => Ok(found(superblock, Content::Snapshot(sections), None)),
            Err(SnapshotError::Io(source)) => {
                Err(CacheError::Device { context: "reading the snapshot of the earlier cache", source })
            }
            Err(_) => Ok(found(superblock.emptied(), Content::Nothing, Some(UNREADABLE))),
        }
    }

    /// Opens the pair with the content that [`find`](Self::find) returned. `first` is the session of the first pair.
    pub(crate) async fn open(
        self,
        found: Found,
        first: FirstSession,
        hash_seed: u64,
        waiting: Waiting,
    ) -> Result<Pair, CacheError> {
        let Found { mut superblock, content, loss, is_foreign, .. } = found;
        if is_foreign {
            self.erase(waiting).await?;
        }
        let metadata = self.metadata_device();
        superblock.hash_seed = hash_seed;
        superblock.fingerprint = self.fingerprint(first, hash_seed);
        let recovered = !matches!(content, Content::Nothing);
        let (mut taken, chains) = match content {
            Content::Nothing => (Vec::new(), Chains::default()),
            Content::Snapshot(sections) => (sections, Chains::default()),
            Content::Journals(chains) => (Vec::new(), chains),
        };
        let failed = |source| CacheError::Device { context: "writing the superblock", source };
        // After a crash from here on, the store reopens empty, or with the items that the journals record.
        superblock.mark_open(&*metadata, waiting).await.map_err(failed)?;
        let closed_seconds = taken_clock(&mut taken);
        let mut engines = self.open_engines(&superblock, &mut taken, &chains, waiting).await?;
        if !engines.are_restored && self.has_journals() {
            // The journals must not be used for contents other than those that they record.
            superblock = superblock.emptied();
            superblock.mark_open(&*metadata, waiting).await.map_err(failed)?;
            engines = self.open_engines(&superblock, &mut Vec::new(), &Chains::default(), waiting).await?;
        }
        let Engines { mut small_items, mut regions, .. } = engines;
        if let Some(is_reported) = &self.reported_keys {
            let with_callback =
                |it: RegionStore| it.with_eviction_callback(Arc::clone(&self.callbacks.on_eviction));
            regions = regions.map(|it| with_callback(it).with_eviction_callback_for(Arc::clone(is_reported)));
        }
        if let Some(on_destructor) = &self.callbacks.on_destructor {
            regions = regions.map(|it| it.with_destructor(Arc::clone(on_destructor)));
            small_items = small_items.map(|it| it.with_destructor(Arc::clone(on_destructor)));
        }
        let session = superblock.session();
        let superblock = Mutex::new(superblock);
        let store = PairStore { metadata, superblock, session, recovered, loss, closed_seconds };
        let pair = Pair { soc: small_items, regions, store };
        pair.acknowledge();
        Ok(pair)
    }

    /// Opens the engines with the sections of a snapshot, or with journals. The regions get the first placement handles.
    async fn open_engines(
        &self,
        superblock: &Superblock,
        sections: &mut Vec<Section>,
        chains: &Chains,
        waiting: Waiting,
    ) -> Result<Engines, CacheError> {
        let (regions, are_regions_restored) =
            self.open_regions(superblock, sections, chains.regions.as_ref(), waiting).await?;
        let (mut small_items, are_small_restored) = self.open_small_engine(superblock, sections)?;
        match (&mut small_items, &chains.small_items) {
            (Some(SmallEngine::Log(log)), Some(chain)) => log.recover(chain, waiting).await,
            (Some(SmallEngine::Sets(sets)), Some(chain)) => sets.recover(chain, waiting).await,
            _ => {}
        }
        Ok(Engines { small_items, regions, are_restored: are_regions_restored && are_small_restored })
    }

    fn metadata_device(&self) -> Arc<dyn Device> {
        if !self.config.separate_metadata {
            return Arc::clone(&self.device);
        }
        let placement = self.device.allocate_handle("metadata");
        Arc::new(Placed::new(Arc::clone(&self.device), placement))
    }

    fn layout(&self) -> Result<Layout, CacheError> {
        let geometry = self.device.geometry();
        let (soc_share, bucket_bytes) = (self.soc_share, self.config.bucket_bytes);
        let soc_bytes = (geometry.capacity_bytes as f64 * soc_share) as u64;
        let region_bytes = if soc_share < 1.0 { u64::from(self.config.regions.region_bytes) } else { 0 };
        let least_item_bytes =
            if soc_bytes > 0 { self.config.small_item_max_bytes as u64 } else { SMALL_REGION_ITEM_BYTES };
        let items = region_bytes / least_item_bytes.max(SMALL_REGION_ITEM_BYTES);
        let journal = RegionConfig {
            capacity_bytes: geometry.capacity_bytes,
            journal: self.journal_options().filter(|_| region_bytes > 0),
            ..self.config.regions.clone()
        };
        let mut config = LayoutConfig {
            soc_bytes,
            bucket_bytes,
            soc_snapshot_bytes: self.small_snapshot_bytes(soc_bytes) + journal.journal_position_bytes(),
            region_bytes,
            least_regions: journal.least_regions() + journal.least_journal_regions(),
            snapshot_bytes_per_region: self.snapshot_bytes_per_region(items),
            region_alignment_bytes: self.config.region_alignment_bytes,
            area_alignment_bytes: self.journal_options().map_or(1, |_| journal::PAGE_BYTES),
            metadata_bytes: self.config.metadata_bytes,
        };
        if soc_share >= 1.0 {
            // All space but superblocks and snapshot.
            let room = geometry.capacity_bytes.saturating_sub(1 << 20);
            let kept = room.saturating_sub(config.soc_snapshot_bytes + (1 << 20));
            config.soc_bytes = kept / u64::from(bucket_bytes.max(1)) * u64::from(bucket_bytes.max(1));
        }
        Layout::compute(&geometry, &config).map_err(|error| CacheError::Config(error.to_string()))
    }

    fn snapshot_bytes_per_region(&self, items: u64) -> u64 {
        let plain = SNAPSHOT_BYTES_PER_REGION + items * SNAPSHOT_BYTES_PER_ITEM;
        let ranked = RANKED_BYTES_PER_REGION + items * RANKED_BYTES_PER_ITEM;
        if self.config.regions.order.protects_items() { plain + ranked } else { plain }
    }

    /// The content of the slice; an error if it must not be overwritten.
    async fn recognised(&self, waiting: Waiting) -> Result<Recognised, CacheError> {
        let recognised = recognise(&*self.device, waiting)
            .await
            .map_err(|source| CacheError::Device { context: "reading the superblock", source })?;
        match recognised {
            _ if self.config.recovery != Recovery::Reopen => Ok(recognised),
            Recognised::Foreign { .. } if self.covers_earlier_data => Ok(recognised),
            Recognised::Foreign { looks_like } => Err(CacheError::Occupied(format!(
                "the flash device holds {}, not a cache",
                looks_like.unwrap_or("unknown data")
            ))),
            Recognised::Newer { version } => Err(CacheError::Occupied(format!(
                "the flash device holds a cache of format {version}, newer than this version's {}",
                super::superblock::FORMAT_VERSION
            ))),
            Recognised::Ours(_) | Recognised::Blank | Recognised::Damaged => Ok(recognised),
        }
    }

    /// Hash of the settings, beside the layout, with which a snapshot can be used. With another number of pairs, keys belong to other
    /// pairs. For all pairs but the first it includes the session of the first.
    fn fingerprint(&self, first: FirstSession, hash_seed: u64) -> u64 {
        let regions = &self.config.regions;
        let words = [self.config.filter_bytes_per_bucket, regions.unit_bytes, regions.region_bytes];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // For a single pair this is not hashed: the fingerprints of older stores stay valid.
        if self.config.pairs.len() > 1 {
            bytes.extend((self.config.pairs.len() as u64).to_le_bytes());
        }
        for KeyPrefix { prefix, pair } in &self.config.key_prefixes {
            bytes.extend([*pair as u64, prefix.len() as u64].map(u64::to_le_bytes).as_flattened());
            bytes.extend(prefix);
        }
        if let SmallItems::Log(options) = self.config.small_items_or_default() {
            bytes.extend(b"log 2");
            bytes.extend(options.expected_item_bytes.to_le_bytes());
            bytes.extend(options.regions.unwrap_or(0).to_le_bytes());
        }
        if self.config.recover_after != RecoverAfter::CleanClose {
            bytes.extend(b"journals 2");
        }
        bytes.extend(first.iter().flat_map(|session| session.to_le_bytes()));
        // Earlier versions of this program have no seed and must not restore items that are stored under other hashes.
        if hash_seed != 0 {
            bytes.extend(hash_seed.to_le_bytes());
        }
        KeyHash::of(&bytes).0
    }

    fn check_engines(&self, layout: &Layout) -> Result<(), CacheError> {
        let geometry = self.device.geometry();
        let wrong = |error: &dyn std::fmt::Display| CacheError::Config(error.to_string());
        if layout.regions > 0 {
            self.regions_config(layout).check(&geometry).map_err(|error| wrong(&error))?;
        }
        if layout.soc_bytes > 0 {
            match self.log_config(layout.soc_offset, layout.soc_bytes, 0, 0) {
                Some(config) => config.check(&geometry).map_err(|error| wrong(&error))?,
                None => {
                    let config = self.soc_config(layout.soc_offset, layout.soc_bytes, 0, 0);
                    config.check(&geometry).map_err(|error| wrong(&error))?;
                }
            }
        }
        Ok(())
    }

    fn regions_config(&self, layout: &Layout) -> RegionConfig {
        RegionConfig {
            offset_bytes: layout.regions_offset,
            capacity_bytes: layout.regions * layout.region_bytes,
            journal: self.journal_options(),
            ..self.config.regions.clone()
        }
    }

    fn soc_config(&self, offset_bytes: u64, soc_bytes: u64, generation: u64, hash_seed: u64) -> SocConfig {
        let mut config = SocConfig::new(offset_bytes, soc_bytes, generation);
        config.hash_seed = hash_seed;
        config.journal = self.journal_options();
        config.bucket_bytes = self.config.bucket_bytes;
        config.filter_bytes_per_bucket = self.config.filter_bytes_per_bucket;
        config.pending_limit_bytes = (self.config.pending_bytes / self.config.pairs.len().max(1)).max(1);
        config
    }

    /// Opens the region store. Returns also whether it restored its section of the snapshot, if there is one.
    async fn open_regions(
        &self,
        superblock: &Superblock,
        sections: &mut Vec<Section>,
        chain: Option<&Chain>,
        waiting: Waiting,
    ) -> Result<(Option<RegionStore>, bool), CacheError> {
        let layout = &superblock.layout;
        if layout.regions == 0 {
            return Ok((None, true));
        }
        let config = self.regions_config(layout);
        let (device, clock) = (Arc::clone(&self.device), Arc::clone(self.clock));
        let has_journal = config.journal.is_some();
        let id = StoreId(if has_journal { superblock.journaled_mark() } else { superblock.next_mark() });
        let wrong = |error: region::RegionConfigError| CacheError::Config(error.to_string());
        if let Some(chain) = chain {
            let store = RegionStore::recover(device, clock, config, id, chain, waiting).await;
            return store.map(|store| (Some(store), true)).map_err(wrong);
        }
        let section = taken(sections, REGIONS_SECTION);
        let position = taken(sections, REGIONS_JOURNAL_SECTION).map_or_else(Vec::new, |it| it.payload);
        let has_section = section.is_some();
        if let Some(section) = section {
            let (device, clock, config) = (Arc::clone(&device), Arc::clone(&clock), config.clone());
            let snapshot = &section.payload;
            let restored =
                RegionStore::restore_journaled(device, clock, config, snapshot, &position, waiting).await;
            if let Some(store) = restored {
                return Ok((Some(store), true));
            }
        }
        let store = RegionStore::create(device, clock, config, id);
        store.map(|store| (Some(store), !has_section)).map_err(wrong)
    }

    /// The configuration of the log for small items; `None` if small items are in sets.
    fn log_config(
        &self,
        offset_bytes: u64,
        log_bytes: u64,
        generation: u64,
        hash_seed: u64,
    ) -> Option<LogConfig> {
        let SmallItems::Log(options) = self.config.small_items_or_default() else { return None };
        Some(LogConfig {
            page_bytes: self.config.bucket_bytes,
            regions: options.regions,
            expected_item_bytes: options.expected_item_bytes,
            readmission_share: options.readmission_share,
            journal: self.journal_options(),
            hash_seed,
            ..LogConfig::new(offset_bytes, log_bytes, generation)
        })
    }

    /// Bytes for the snapshot of the engine for small items.
    fn small_snapshot_bytes(&self, soc_bytes: u64) -> u64 {
        let geometry = self.device.geometry();
        match self.log_config(0, soc_bytes, 0, 0) {
            // A configuration that is refused later needs no snapshot.
            Some(config) => config.check(&geometry).map_or(0, |()| log::snapshot_bytes(&config)),
            None => self.soc_config(0, soc_bytes, 0, 0).snapshot_bytes(),
        }
    }

    /// Opens the engine for small items. Returns also whether it restored its section of the snapshot, if there is one.
    fn open_small_engine(
        &self,
        superblock: &Superblock,
        sections: &mut Vec<Section>,
    ) -> Result<(Option<SmallEngine>, bool), CacheError> {
        let layout = &superblock.layout;
        if layout.soc_bytes == 0 {
            return Ok((None, true));
        }
        let device = Arc::clone(&self.device);
        let section = taken(sections, SOC_SECTION);
        if let Some(config) = self.log_config(
            layout.soc_offset,
            layout.soc_bytes,
            superblock.journaled_mark(),
            superblock.hash_seed,
        ) {
            let mut log = HashLog::new(device, config)
                .map_err(|error| CacheError::Config(error.to_string()))?
                .with_clock(Arc::clone(self.clock));
            // Fails only if the shape differs, which the fingerprint rules out; the log then starts empty.
            let is_restored = section.is_none_or(|section| log.restore(&section.payload).is_ok());
            let log = match &self.reported_keys {
                Some(wants) => {
                    log.with_eviction_callback(Arc::clone(&self.callbacks.on_eviction), Arc::clone(wants))
                }
                None => log,
            };
            return Ok((Some(SmallEngine::Log(Box::new(log))), is_restored));
        }
        let generation =
            if self.has_journals() { superblock.journaled_mark() } else { superblock.generation_mark() };
        let config = self.soc_config(layout.soc_offset, layout.soc_bytes, generation, superblock.hash_seed);
        let mut soc = Soc::new(device, config)
            .map_err(|error| CacheError::Config(error.to_string()))?
            .with_clock(Arc::clone(self.clock));
        let is_restored = section.is_none_or(|section| soc.restore(&section.payload).is_ok());
        let soc = soc.with_eviction_callback(Arc::clone(&self.callbacks.on_eviction));
        Ok((Some(SmallEngine::Sets(Box::new(soc))), is_restored))
    }
}

/// Takes the section with this name, so that its memory is freed after use.
fn taken(sections: &mut Vec<Section>, name: &str) -> Option<Section> {
    let at = sections.iter().position(|section| section.name == name)?;
    Some(sections.swap_remove(at))
}

/// When the snapshot was written. Snapshots of earlier versions lack it.
fn taken_clock(sections: &mut Vec<Section>) -> Option<u32> {
    let section = taken(sections, CLOCK_SECTION)?;
    Some(u32::from_le_bytes(section.payload.as_slice().try_into().ok()?))
}
