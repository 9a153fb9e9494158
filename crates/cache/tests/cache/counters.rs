//! The declared counters of a cache.
use std::collections::HashSet;

use flashwright_cache::Stats;
use flashwright_cache::device::counters::{CounterTable, Path};

#[test]
fn declared_counters_have_distinct_names_and_plain_descriptions() {
    let (mut names, mut listed) = (HashSet::new(), HashSet::new());
    Stats::visit(None, &Path::default(), &mut |it| {
        assert!(names.insert(it.name.to_owned()), "{} is declared twice", it.name);
        assert!(it.counter.help.ends_with('.'), "{}: {}", it.name, it.counter.help);
        assert!(!it.counter.help.contains("]("), "{}: a link in the description", it.name);
        assert!(it.counter.listed_as.is_none_or(|name| listed.insert(name)), "{}: listed twice", it.name);
    });
    assert!(names.contains("flash_regions_inserts") && names.contains("pools_classes_hits"));
    assert!(listed.contains("navy_bh_items") && listed.contains("navy_bc_physical_written"));
}
