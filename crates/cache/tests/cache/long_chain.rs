//! Chains that fill their size class.

use flashwright_cache::{Cache, InsertOptions, Refusal};

/// Catches a regression: the error claims that every item is in use, although none is.
#[test]
fn item_added_to_a_full_chain_is_refused_with_the_reason() {
    let cache = Cache::builder().dram_bytes(1 << 20).max_item_bytes(16 << 10).open().unwrap();
    cache.insert_blocking(b"key", b"value", InsertOptions::default());
    let pieces = std::iter::repeat_with(|| cache.add_chained_blocking(b"key", 8000, |link| link.fill(7)));
    let refusal = pieces.take(1000).find_map(Result::err).expect("a thousand do not fit");
    assert_eq!(refusal, Refusal::AllPinned);
    assert!(refusal.to_string().contains("or chained to an item in use"), "{refusal}");
    assert!(cache.get_blocking(b"key").expect("the item is found").chain().count() > 50);
}
