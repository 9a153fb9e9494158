//! Normalises names to lower case as known: `RIPQ` becomes `ripq`.

use super::keys::{CacheConfig, TestConfig};
use super::names::{
    ADMISSIONS, GENERATORS, PLACEMENT_HANDLES, RECOVER_AFTER, REGION_POLICIES, SERIALIZATIONS,
    SMALL_ITEM_ENGINES, STRESSORS,
};

/// Replaces names by their known spelling, so that later code can compare them exactly. Unknown names stay unchanged.
pub(super) fn normalize_names(cache: &mut CacheConfig, test: &mut TestConfig) {
    normalize(&mut test.generator, &GENERATORS);
    normalize(&mut test.name, &STRESSORS);
    normalize(&mut test.replay.serialization, &SERIALIZATIONS);
    normalize(&mut cache.region_policy, &REGION_POLICIES);
    normalize(&mut cache.small_item_engine, &SMALL_ITEM_ENGINES);
    normalize(&mut cache.recover_after, &RECOVER_AFTER);
    cache.placement_handles.iter_mut().for_each(|name| normalize(name, &PLACEMENT_HANDLES));
    let (policy, argument) = match cache.flash_admission.split_once(':') {
        Some((policy, argument)) => (policy, Some(argument)),
        None => (cache.flash_admission.as_str(), None),
    };
    let mut normalized = policy.to_owned();
    normalize(&mut normalized, &ADMISSIONS);
    cache.flash_admission =
        argument.map_or(normalized.clone(), |argument| format!("{normalized}:{argument}"));
}

fn normalize(name: &mut String, names: &[&str]) {
    if let Some(known) = names.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        (*known).clone_into(name);
    }
}
