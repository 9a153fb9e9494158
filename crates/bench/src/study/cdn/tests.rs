//! Tests of the write amplification of region stores, without a timing model.

use std::sync::Arc;

use cache::KeyHash;
use cache::config::regions::RegionConfig;
use cache::internals::region::{Progress, Refusal, RegionStore, StoreId};
use cache::internals::{FlashItem, Waiting};
use device::{Device, VirtualClock};
use pollster::block_on;
use ssd::{Card, Payload, SsdDevice, Upkeep};

use super::demand::CARD;

const SCALE: u32 = 2048;
const REGION_BYTES: u32 = (64 << 20) / SCALE;

/// Write amplification of a drive that FIFO regions overwrite four times, with items that leave holes at the ends of regions.
fn fifo_dlwa(write_whole: bool) -> f64 {
    let card = Card::load(CARD).unwrap().scaled(SCALE).unwrap();
    let drive =
        Arc::new(SsdDevice::new(card.shape(false).layout().unwrap(), Upkeep::default(), Payload::Discarded));
    let capacity = drive.geometry().capacity_bytes / u64::from(REGION_BYTES) * u64::from(REGION_BYTES);
    let config = RegionConfig { region_bytes: REGION_BYTES, write_whole, ..RegionConfig::new(capacity) };
    let clock = Arc::new(VirtualClock::default());
    let store = RegionStore::create(Arc::clone(&drive) as _, clock, config, StoreId(1)).unwrap();
    let value = [7; 20_000];
    for key in 0..4 * capacity / 14_000 {
        // Varying sizes, so that the holes are not always at the same offset.
        let value = &value[..8000 + (KeyHash(key).remix() % 12_000) as usize];
        put(&store, &key.to_le_bytes(), value);
    }
    drive.stats().dlwa(card.space.page_bytes).unwrap()
}

fn put(store: &RegionStore, key: &[u8], value: &[u8]) {
    let item = FlashItem { key, hash: KeyHash::of(key), value: &[value], expiry_seconds: 0, tag: 0 };
    loop {
        match store.stage(&item) {
            Ok(staged) => return store.commit(staged),
            Err(Refusal::Full) => assert_ne!(block_on(store.step(Waiting::Thread)), Progress::Idle),
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

#[test]
fn fifo_regions_written_whole_have_no_write_amplification() {
    assert!(fifo_dlwa(true) < 1.001);
    // Otherwise the holes keep data of earlier writes that is live to the drive.
    assert!(fifo_dlwa(false) > 1.05);
}
