//! The tag of an item on flash: its pool, and whether its value is a chain.

/// Bit of [`FlashItem::tag`](super::FlashItem::tag) that marks a chain. The lower bits contain the pool.
pub(super) const CHAINED: u16 = 1 << 15;
pub(super) const POOL_BITS: u16 = 0xff;

/// The pool of an item, by its tag.
pub(crate) fn pool_of(tag: u16) -> u8 {
    (tag & POOL_BITS) as u8
}

/// The tag in a cache with `pools` pools: an item of a removed pool belongs to the first.
pub(crate) fn within(tag: u16, pools: usize) -> u16 {
    if usize::from(pool_of(tag)) < pools { tag } else { tag & !POOL_BITS }
}

/// Whether the tag's value is a chain.
pub(crate) fn is_chained(tag: u16) -> bool {
    tag & CHAINED != 0
}
