//! Packing: which item of a sealed region goes to which page.

use std::ops::Range;

use device::IoBuffer;

use super::fences::{self, Fences};
use super::page::{self, Identity, PageWriter};
use super::table::Buffered;

/// The pages of a region, as ranges of its sorted items.
#[derive(Debug)]
pub struct Plan {
    pub pages: Vec<Range<usize>>,
    pub fences: Fences,
    /// Items that are in no page, in ascending order.
    pub left_over: Vec<usize>,
}

/// Plans the pages of `items`, which are sorted by hash, for a region of `max_pages` pages of `page_bytes`.
///
/// Items of equal position share a page. Those that do not fit it together, and those beyond the last page, are left over.
#[must_use]
pub fn plan(items: &[Buffered], max_pages: u32, page_bytes: usize) -> Plan {
    let scale_pages = expected_pages(items, max_pages, page_bytes);
    let (mut pages, mut firsts, mut left_over) = (Vec::<Range<usize>>::new(), Vec::new(), Vec::new());
    let mut used = usize::MAX;
    let mut at = 0;
    while at < items.len() {
        let position = fences::position(items[at].hash, scale_pages);
        let group = group_len(&items[at..], position, scale_pages);
        let (fitting, bytes) = fitting(&items[at..at + group], page_bytes - page::HEADER_BYTES);
        if used.saturating_add(bytes) > page_bytes {
            if pages.len() == max_pages as usize || fences::deviation(pages.len(), position).is_none() {
                break;
            }
            pages.push(at..at);
            firsts.push(position);
            used = page::HEADER_BYTES;
        }
        used += bytes;
        let page = pages.last_mut().expect("a page was begun");
        // A page whose last group was cut ends before the items that do not fit.
        if fitting < group {
            page.end = at + fitting;
            left_over.extend(page.end..at + group);
            used = usize::MAX;
        } else {
            page.end = at + group;
        }
        at += group;
    }
    let fences = Fences::new(scale_pages, &firsts).expect("each deviation was checked");
    left_over.extend(at..items.len());
    Plan { pages, fences, left_over }
}

fn group_len(items: &[Buffered], position: u64, scale_pages: u32) -> usize {
    items.iter().take_while(|item| fences::position(item.hash, scale_pages) == position).count()
}

/// The number of leading items that fit `room` bytes, and their bytes.
fn fitting(items: &[Buffered], room: usize) -> (usize, usize) {
    let mut bytes = 0;
    for (count, item) in items.iter().enumerate() {
        if bytes + item.page_bytes() > room {
            return (count, bytes);
        }
        bytes += item.page_bytes();
    }
    (items.len(), bytes)
}

/// The number of pages that the items take, with half an item unused in each.
fn expected_pages(items: &[Buffered], max_pages: u32, page_bytes: usize) -> u32 {
    let bytes: usize = items.iter().map(Buffered::page_bytes).sum();
    let half_item = bytes / (2 * items.len().max(1));
    let per_page = (page_bytes - page::HEADER_BYTES).saturating_sub(half_item).max(1);
    (bytes.div_ceil(per_page) as u32).clamp(1, max_pages)
}

/// The bytes of consecutive pages.
#[must_use]
pub fn encode(
    items: &[Buffered],
    pages: &[Range<usize>],
    page_bytes: usize,
    identity: impl Fn(usize) -> Identity,
) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(pages.len() * page_bytes);
    for (number, (range, bytes)) in pages.iter().zip(buffer.chunks_exact_mut(page_bytes)).enumerate() {
        let mut writer = PageWriter::new(bytes);
        for item in &items[range.clone()] {
            writer.push(&item.bytes, item.key_len, item.expiry_seconds, item.tag);
        }
        writer.seal(identity(number));
    }
    buffer
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::KeyHash;

    fn item(hash: u64, len: usize) -> Buffered {
        Buffered {
            hash: KeyHash(hash),
            bytes: vec![7; len].into(),
            key_len: 1,
            tag: 0,
            expiry_seconds: 0,
            is_on_flash: false,
        }
    }

    fn random_items(seed: u64, count: usize) -> Vec<Buffered> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut items: Vec<_> =
            (0..count).map(|_| item(random.random(), random.random_range(20..580))).collect();
        items.sort_unstable_by_key(|item| item.hash);
        items
    }

    #[test]
    fn each_packed_item_is_in_the_page_of_its_fence() {
        for (seed, count) in [(1, 1), (2, 40), (3, 5000)] {
            let items = random_items(seed, count);
            let plan = plan(&items, 4000, 4096);
            assert!(plan.left_over.is_empty());
            for (page, range) in plan.pages.iter().enumerate() {
                let bytes: usize = items[range.clone()].iter().map(Buffered::page_bytes).sum();
                assert!(bytes <= 4096 - page::HEADER_BYTES);
                for item in &items[range.clone()] {
                    assert_eq!(plan.fences.page_of(item.hash), Some(page as u32));
                }
            }
            let placed: usize = plan.pages.iter().map(ExactSizeIterator::len).sum();
            assert_eq!(placed, count);
        }
    }

    #[test]
    fn pages_are_filled_but_for_half_an_item() {
        let items = random_items(4, 20_000);
        let plan = plan(&items, 4000, 4096);
        let bytes: usize = items.iter().map(|item| item.bytes.len()).sum();
        let written = plan.pages.len() * 4096;
        // 193 bytes are the mean of s / 2, weighted by s, for sizes from 20 to 580.
        assert!((1.0..1.085).contains(&(written as f64 / bytes as f64)), "{written} for {bytes}");
    }

    #[test]
    fn items_beyond_the_last_page_are_left_for_the_next_region() {
        let items = random_items(5, 1000);
        let plan = plan(&items, 10, 4096);
        assert_eq!(plan.pages.len(), 10);
        let end = plan.pages.last().unwrap().end;
        assert!(end < 1000);
        assert_eq!(plan.left_over, (end..1000).collect::<Vec<_>>());
    }

    #[test]
    fn equal_hashes_beyond_one_page_are_left_for_the_next_region() {
        let mut items = vec![item(1 << 62, 500); 20];
        items.push(item(3 << 62, 100));
        let plan = plan(&items, 10, 4096);
        assert_eq!(plan.pages, [0..8, 20..21]);
        assert_eq!(plan.left_over, (8..20).collect::<Vec<_>>());
    }
}
