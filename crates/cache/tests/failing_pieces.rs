//! Inserts that are refused, and regions some of whose pieces cannot be written at first.

use std::collections::HashSet;
use std::sync::Arc;

use device::{
    Completion, Counters, Device, ErrorKind, Geometry, IoError, MemoryDevice, Outcome, PlacementHandle,
    Request,
};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Inserted, Refusal};
use parking_lot::Mutex;
use pollster::block_on;

const MIB: u64 = 1 << 20;
const AS_USUAL: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
const PIECE_BYTES: u32 = 16 << 10;

/// Fails the first write to each place in a region but its first piece.
struct FirstWriteFails {
    inner: MemoryDevice,
    seen: Mutex<HashSet<u64>>,
}

impl Device for FirstWriteFails {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        if let Request::Write { offset, .. } = &request
            && !offset.is_multiple_of(u64::from(4 * PIECE_BYTES))
            && self.seen.lock().insert(*offset)
        {
            return completion.complete(Err(IoError::new(ErrorKind::Medium, "the first write here")));
        }
        self.inner.submit(request, completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        self.inner.execute(request)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        self.inner.allocate_handle(consumer)
    }
}

/// Only the first of several failed pieces was written again.
#[test]
fn every_failed_piece_of_a_region_is_written_again() {
    let device = FirstWriteFails { inner: MemoryDevice::new(32 * MIB), seen: Mutex::default() };
    let device = Arc::new(device);
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.pairs[0].soc_share = 0.0;
    flash.regions.region_bytes = 4 * PIECE_BYTES;
    flash.regions.max_write_bytes = PIECE_BYTES;
    flash.regions.write_attempts = 2;
    flash.region_alignment_bytes = u64::from(4 * PIECE_BYTES);
    let cache =
        Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap();
    let value = |number: u32| [number.to_le_bytes(), (!number).to_le_bytes()].concat().repeat(375);
    for number in 0..4000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &value(number), AS_USUAL);
    }
    cache.settle_blocking().unwrap();
    let stats = cache.stats().flash.unwrap();
    assert!(stats.regions.unwrap().write_errors > 300, "{:?}", stats.regions);
    assert_eq!(stats.lost_items(), 0);
    for number in 0..4000_u32 {
        assert_eq!(
            cache.get_blocking(&number.to_le_bytes()).as_deref(),
            Some(&value(number)[..]),
            "{number}"
        );
    }
}

/// The caller wants the old value replaced: it must not outlive the attempt.
#[test]
fn refused_insert_removes_the_old_value() {
    let open = || {
        let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(32 * MIB)));
        flash.regions.region_bytes = 256 << 10;
        Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap()
    };
    let too_large = vec![1; 20 << 10];
    let no_pool = InsertOptions { pool: 9, ..AS_USUAL };
    for on_flash in [false, true] {
        for blocking in [false, true] {
            let cache = open();
            let insert = |key: &[u8], value: &[u8], options: InsertOptions| {
                if blocking {
                    cache.insert_blocking(key, value, options)
                } else {
                    block_on(cache.insert(key, value, options))
                }
            };
            for key in [&b"large"[..], b"pool", b"long"] {
                assert_eq!(insert(key, b"old", AS_USUAL), Inserted::Stored);
            }
            if on_flash {
                (0..2000_u32).for_each(|number| _ = insert(&number.to_le_bytes(), &[0; 3000], AS_USUAL));
                cache.settle_blocking().unwrap();
                assert!(cache.contains(b"large") && cache.contains(b"pool"));
            }
            let refused = insert(b"large", &too_large, AS_USUAL);
            assert!(matches!(refused, Inserted::Rejected(Refusal::TooLarge { .. })), "{refused:?}");
            assert_eq!(insert(b"pool", b"new", no_pool), Inserted::Rejected(Refusal::NoSuchPool(9)));
            assert!(cache.get_blocking(b"large").is_none() && cache.get_blocking(b"pool").is_none());
            assert_eq!(cache.get_blocking(b"long").as_deref(), Some(&b"old"[..]));
        }
    }
}
