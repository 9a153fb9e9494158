//! Names in the letters in which they are known here: `RIPQ` is as good as `ripq`.

use super::check::{
    ADMISSIONS, GENERATORS, PLACEMENT_HANDLES, REGION_POLICIES, SERIALIZATIONS, SMALL_ITEM_ENGINES, STRESSORS,
};
use super::keys::{CacheConfig, TestConfig};

/// Writes what a config may name in any letters as everybody behind it compares it. What is unknown stays as it is.
pub(super) fn spell(cache: &mut CacheConfig, test: &mut TestConfig) {
    as_known(&mut test.generator, &GENERATORS);
    as_known(&mut test.name, &STRESSORS);
    as_known(&mut test.replay.serialization, &SERIALIZATIONS);
    as_known(&mut cache.region_policy, &REGION_POLICIES);
    as_known(&mut cache.small_item_engine, &SMALL_ITEM_ENGINES);
    cache.placement_handles.iter_mut().for_each(|name| as_known(name, &PLACEMENT_HANDLES));
    let (policy, argument) = match cache.flash_admission.split_once(':') {
        Some((policy, argument)) => (policy, Some(argument)),
        None => (cache.flash_admission.as_str(), None),
    };
    let mut spelt = policy.to_owned();
    as_known(&mut spelt, &ADMISSIONS);
    cache.flash_admission = argument.map_or(spelt.clone(), |argument| format!("{spelt}:{argument}"));
}

fn as_known(name: &mut String, names: &[&str]) {
    if let Some(known) = names.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        (*known).clone_into(name);
    }
}
