//! Journals are written through the page cache, and everything else directly. A page that has both loses one of them.
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use device::{Completion, Device, IoError, IoSlice, MemoryDevice, Outcome, Request, forward_device};
use flashwright_cache::config::{LogOptions, PairConfig};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, RecoverAfter, SmallItems, device};
use parking_lot::Mutex;

const PAGE_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A device that records which pages are absorbed and which are written directly.
struct PagesDevice {
    inner: MemoryDevice,
    absorbed: Mutex<BTreeSet<u64>>,
    direct: Mutex<BTreeSet<u64>>,
}

fn record(pages: &Mutex<BTreeSet<u64>>, bytes: Range<u64>) {
    pages.lock().extend(bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES));
}

impl PagesDevice {
    fn before(&self, request: &Request) {
        if let Request::Write { offset, data, .. } = request {
            record(&self.direct, *offset..offset + data.len() as u64);
        }
    }
}

impl Device for PagesDevice {
    forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        self.before(&request);
        self.inner.submit(request, completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        self.before(&request);
        self.inner.execute(request)
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        record(&self.absorbed, offset..offset + data.len() as u64);
        self.inner.absorb(offset, data)
    }
}

fn small_items() -> [SmallItems; 2] {
    [SmallItems::Log(LogOptions { expected_item_bytes: 400, ..LogOptions::default() }), SmallItems::Sets]
}

fn fill(cache: &Cache) {
    for round in 0..6_u8 {
        for number in 0..6000_u32 {
            let len = if number % 3 == 0 { 5000 } else { 200 };
            let key = number.to_le_bytes();
            cache.insert_blocking(&key, &vec![round; len], InsertOptions::default());
            if number % 7 == 0 {
                cache.remove(&key);
            }
        }
    }
}

#[test]
fn journals_share_no_page_with_direct_writes() {
    for small_items in small_items() {
        for (less_bytes, region_bytes, pairs) in
            [(0, 64 << 10, 1), (512, 64 << 10, 1), (3584, 66_048, 1), (1536, 66_048, 2)]
        {
            let inner = MemoryDevice::with_block_bytes(8 * MIB - less_bytes, 512).absorbing(true);
            let device =
                Arc::new(PagesDevice { inner, absorbed: Mutex::default(), direct: Mutex::default() });
            let mut flash = FlashConfig::new(Arc::clone(&device) as Arc<dyn Device>);
            flash.pairs =
                vec![PairConfig { device_share: 1.0 / f64::from(pairs), soc_share: 0.3 }; pairs as usize];
            flash.bucket_bytes = 512;
            flash.small_item_max_bytes = 256;
            flash.regions.region_bytes = region_bytes;
            flash.pending_bytes = 64 << 10;
            flash.small_items = Some(small_items);
            flash.recover_after = RecoverAfter::Kill;
            let cache = Cache::builder().dram_bytes(MIB).flash_config(flash).open().unwrap();
            fill(&cache);
            cache.close().unwrap();
            let (absorbed, direct) = (device.absorbed.lock(), device.direct.lock());
            assert!(absorbed.len() > 3 && direct.len() > 500, "{} and {}", absorbed.len(), direct.len());
            let shared: Vec<&u64> = absorbed.intersection(&direct).collect();
            assert!(
                shared.is_empty(),
                "{small_items:?}, {less_bytes}, {region_bytes}, {pairs} pairs: {shared:?}"
            );
        }
    }
}
