//! Opening a cache: every device region gets its place, every engine its identity.

use std::sync::Arc;

use device::{Clock, Device, SliceDevice};

use crate::Cache;
use crate::background::Background;
use crate::config::{CacheConfig, FlashConfig, PairConfig};
use crate::dram::Dram;
use crate::error::CacheError;
use crate::flash::region::{RegionStore, StoreId};
use crate::flash::soc::{Soc, SocConfig};
use crate::flash::tier::{FlashTier, Pair, Parts};
use crate::hybrid::Engine;
use crate::in_flight::InFlight;
use crate::stats::Counters;
use crate::upkeep::Upkeep;

impl Cache {
    pub(crate) fn open(
        config: &CacheConfig,
        clock: &Arc<dyn Clock>,
        threads: bool,
    ) -> Result<Self, CacheError> {
        let dram = Dram::new(&config.dram, Arc::clone(clock)).map_err(wrong)?;
        let flash = match &config.flash {
            Some(flash) => Some(open_flash(flash, clock, config.seed)?),
            None => None,
        };
        let pools = config.dram.pools.len();
        let engine = Arc::new(Engine {
            upkeep: Upkeep::new(&config.upkeep, pools, config.seed, clock.monotonic_ns()),
            dram,
            flash,
            in_flight: InFlight::new(),
            counters: Counters::new(),
            clock: Arc::clone(clock),
            pools,
            on_remove: config.on_remove.clone(),
        });
        let background = if threads { Some(Background::start(&engine)?) } else { None };
        Ok(Self { loads: InFlight::new(), _background: background, engine })
    }
}

fn open_flash(config: &FlashConfig, clock: &Arc<dyn Clock>, seed: u64) -> Result<FlashTier, CacheError> {
    let mut offset_bytes = 0;
    let mut pairs = Vec::with_capacity(config.pairs.len());
    for (number, pair) in config.pairs.iter().enumerate() {
        let place = Place::of(config, pair, offset_bytes)?;
        offset_bytes = place.end();
        let life = generation(clock, seed, number);
        pairs.push(open_pair(config, &place, clock, life)?);
    }
    Ok(FlashTier::new(Parts {
        pairs,
        device: Arc::clone(&config.device),
        admission: Arc::clone(&config.admission),
        clock: Arc::clone(clock),
        small_item_max_bytes: config.small_item_max_bytes,
        min_ttl_seconds: config.min_ttl_seconds,
    }))
}

/// What tells this life of an engine from all others on the device.
fn generation(clock: &Arc<dyn Clock>, seed: u64, pair: usize) -> u64 {
    let moment = (u64::from(clock.unix_seconds()) << 32) ^ clock.monotonic_ns();
    crate::KeyHash(moment ^ seed.rotate_left(17) ^ pair as u64).remix()
}

/// Where a pair lies on the device.
struct Place {
    offset_bytes: u64,
    regions_bytes: u64,
    soc_bytes: u64,
}

impl Place {
    fn of(config: &FlashConfig, pair: &PairConfig, offset_bytes: u64) -> Result<Self, CacheError> {
        let shares = [pair.device_share, pair.soc_share];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(wrong(format!("shares of flash are between 0 and 1, not {shares:?}")));
        }
        let geometry = config.device.geometry();
        let unit = u64::from(config.bucket_bytes.max(geometry.block_bytes));
        let whole = (geometry.capacity_bytes as f64 * pair.device_share) as u64;
        let whole = whole.min(geometry.capacity_bytes.saturating_sub(offset_bytes)) / unit * unit;
        let soc_bytes = (whole as f64 * pair.soc_share) as u64 / unit * unit;
        Ok(Self { offset_bytes, regions_bytes: whole - soc_bytes, soc_bytes })
    }

    fn end(&self) -> u64 {
        self.offset_bytes + self.regions_bytes + self.soc_bytes
    }
}

fn open_pair(
    config: &FlashConfig,
    place: &Place,
    clock: &Arc<dyn Clock>,
    life: u64,
) -> Result<Pair, CacheError> {
    let regions = if place.regions_bytes > 0 {
        let end = place.offset_bytes + place.regions_bytes;
        let device = slice(config, place.offset_bytes..end)?;
        let mut settings = config.regions.clone();
        settings.offset_bytes = 0;
        settings.capacity_bytes = place.regions_bytes;
        Some(RegionStore::create(device, Arc::clone(clock), settings, StoreId(life)).map_err(wrong)?)
    } else {
        None
    };
    let soc = if place.soc_bytes > 0 {
        let start = place.offset_bytes + place.regions_bytes;
        let device = slice(config, start..start + place.soc_bytes)?;
        let mut settings = SocConfig::new(0, place.soc_bytes, life);
        settings.bucket_bytes = config.bucket_bytes;
        settings.filter_bytes_per_bucket = config.filter_bytes_per_bucket;
        settings.pending_limit_bytes = (config.pending_bytes / config.pairs.len()).max(1);
        Some(Soc::new(device, settings).map_err(wrong)?)
    } else {
        None
    };
    if regions.is_none() && soc.is_none() {
        return Err(wrong("a flash tier of no bytes"));
    }
    Ok(Pair { soc, regions })
}

fn slice(config: &FlashConfig, range: std::ops::Range<u64>) -> Result<Arc<dyn Device>, CacheError> {
    let slice = SliceDevice::new(Arc::clone(&config.device), range)
        .map_err(|source| CacheError::Device { context: "dividing the flash device", source })?;
    Ok(Arc::new(slice))
}

fn wrong(error: impl ToString) -> CacheError {
    CacheError::Config(error.to_string())
}
