//! Every key of a config, each defined once.

mod cache;
mod distribution;
mod region_policy;
mod replay;
mod test;

pub use cache::{Arena, CacheConfig, MemoryTier, ObjectCacheConfig};
pub use distribution::{Distribution, PopularityFile, SizesFile};
pub use region_policy::RegionPolicyConfig;
pub use replay::{MlAdmission, ReplayConfig};
pub use test::{TestConfig, WarmupPolicy};

use device::names::nearest;
use serde_json::{Map, Value};

use super::findings::Elsewhere;
use super::schema::{KeyInfo, Section};

/// Name of a section, its keys, and their defaults as JSON.
pub type Table = (&'static str, &'static [KeyInfo], Map<String, Value>);

/// All sections in the order of the documentation.
#[must_use]
pub fn tables() -> Vec<Table> {
    vec![
        table::<CacheConfig>(),
        table::<MemoryTier>(),
        table::<Arena>(),
        table::<ObjectCacheConfig>(),
        table::<RegionPolicyConfig>(),
        table::<TestConfig>(),
        table::<Distribution>(),
        table::<WarmupPolicy>(),
        table::<ReplayConfig>(),
        table::<MlAdmission>(),
        table::<PopularityFile>(),
        table::<SizesFile>(),
    ]
}

fn table<S: Section + Default>() -> Table {
    let mut defaults = Map::new();
    S::default().write(&mut defaults);
    (S::NAME, S::KEYS, defaults)
}

/// The section that has `key`.
#[must_use]
pub fn home_of(key: &str) -> Option<&'static str> {
    tables()
        .iter()
        .find(|(_, key_infos, _)| key_infos.iter().any(|key_info| key_info.key == key))
        .map(|(place, ..)| *place)
}

/// Looks up a key in all sections, and among the keys that CacheBench renamed. The configs published with the paper on FDP
/// placement have an old name. Otherwise the most similar key of all sections.
#[must_use]
pub fn elsewhere(key: &str) -> Option<Elsewhere> {
    let renamed = (key == "devicePlacement").then_some(Elsewhere::RenamedTo("deviceEnableFDP"));
    home_of(key).map(Elsewhere::In).or(renamed).or_else(|| similar(key))
}

fn similar(name: &str) -> Option<Elsewhere> {
    let tables = tables();
    let keys = tables.iter().flat_map(|(_, key_infos, _)| key_infos.iter().map(|key_info| key_info.key));
    let key = nearest(name, keys)?;
    Some(Elsewhere::Similar(key, home_of(key)?))
}
