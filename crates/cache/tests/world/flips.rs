//! Flips bytes on the device after a clean close. The next cache detects the damage, or the byte was unused; no get
//! returns a wrong value.

use std::sync::Arc;

use device::{Device, IoBuffer, MemoryDevice, Request};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ledger::Ledger;
use crate::session::{self, Session, audit};
use crate::setup::{MIB, seeds};

const KEYS: u64 = 200;
const DEVICE_BYTES: u64 = 2 * MIB;
const SUPERBLOCK_COPY_BYTES: u64 = 64 << 10;
const SUPERBLOCK_BYTES: u64 = 256;
/// Offset and value of the clean state in a superblock; the location of the snapshot follows.
const STATE_AT: usize = 128;
const CLEAN: u64 = 2;

/// A device after a clean close, and the items that the next cache finds on it.
struct Closed {
    medium: MemoryDevice,
    ledger: Arc<Mutex<Ledger>>,
    keys_back: usize,
}

fn closed(seed: u64) -> Closed {
    let memory = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let ledger = Arc::new(Mutex::new(Ledger::new(KEYS)));
    let cache = session::open(session::config(Arc::clone(&memory) as _));
    let mut session = Session::new(cache, Arc::clone(&ledger), KEYS, seed);
    session.requests(2000);
    session.cache.close().expect("memory does not fail");
    let mut closed = Closed { medium: memory.duplicate(), ledger, keys_back: 0 };
    closed.keys_back = closed.back(&[], "untouched");
    assert!(closed.keys_back > 50, "seed {seed}: {} keys found after reopen", closed.keys_back);
    closed
}

impl Closed {
    /// Opens a cache on a copy with `flips` (offset and mask); returns the number of keys found.
    fn back(&self, flips: &[(u64, u8)], label: &str) -> usize {
        let medium = self.medium.duplicate();
        flips.iter().for_each(|&(at, mask)| flip(&medium, at, mask));
        let cache = session::open(session::config(Arc::new(medium)));
        audit(&cache, &self.ledger, KEYS, label).len()
    }

    /// The location of the snapshot, from the superblock copy that marks the device clean.
    fn snapshot_place(&self) -> std::ops::Range<u64> {
        let numbers = [0, SUPERBLOCK_COPY_BYTES].into_iter().find_map(|copy| {
            let bytes = read(&self.medium, copy, 512);
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            (number(STATE_AT) == CLEAN).then(|| (number(STATE_AT + 8), number(STATE_AT + 16)))
        });
        let (offset, bytes) = numbers.expect("a closed device is marked clean");
        offset..offset + bytes
    }

    /// Offsets of bytes that are not zero.
    fn written_places(&self, range: std::ops::Range<u64>) -> Vec<u64> {
        let block = 4096;
        let blocks = range.step_by(block as usize);
        let in_block = |offset| {
            let bytes = read(&self.medium, offset, block);
            let places = (offset..).zip(bytes.iter().copied().collect::<Vec<_>>());
            places.filter(|&(_, byte)| byte != 0).map(|(at, _)| at)
        };
        blocks.flat_map(in_block).collect()
    }
}

fn read(device: &MemoryDevice, offset: u64, len: u64) -> IoBuffer {
    device.execute(Request::read(offset, len as usize)).unwrap()
}

fn flip(device: &MemoryDevice, at: u64, mask: u8) {
    let offset = at / 512 * 512;
    let mut bytes = read(device, offset, 512);
    bytes[(at - offset) as usize] ^= mask;
    let write = Request::write(offset, bytes);
    device.execute(write).unwrap();
}

#[test]
fn flipped_byte_of_a_superblock_loses_all_items_or_none() {
    let closed = closed(1);
    let mut costs = [0, 0];
    for copy in [0, SUPERBLOCK_COPY_BYTES] {
        for at in copy..copy + SUPERBLOCK_BYTES + 64 {
            let found = closed.back(&[(at, 0x10)], &format!("superblock byte {at}"));
            assert!(found == 0 || found == closed.keys_back, "byte {at}: {found} keys");
            costs[usize::from(found == 0)] += 1;
        }
    }
    // Only the newer copy is marked clean; damage to the other one has no effect.
    assert!(costs.iter().all(|&count| count >= SUPERBLOCK_BYTES), "{costs:?}");
}

#[test]
fn flipped_byte_of_the_snapshot_loses_all_items() {
    let closed = closed(2);
    let place = closed.snapshot_place();
    assert!((200..4096).contains(&(place.end - place.start)), "{place:?}");
    for at in place {
        let found = closed.back(&[(at, 0x10)], &format!("snapshot byte {at}"));
        assert_eq!(found, 0, "byte {at} is believed");
    }
}

/// Damages entries, tables of regions, and buckets: eight flips per round, in bytes that are not zero.
#[test]
fn flipped_byte_of_an_item_loses_only_that_item() {
    for seed in seeds(1) {
        let closed = closed(seed + 3);
        let places = closed.written_places(closed.snapshot_place().end.next_multiple_of(4096)..DEVICE_BYTES);
        let mut random = StdRng::seed_from_u64(seed);
        let (mut lost, mut most_lost) = (0, 0);
        for round in 0..250 {
            let mut flip_of = |_| {
                let at = places[random.random_range(0..places.len())];
                (at, 1_u8 << random.random_range(0..8))
            };
            let flips: Vec<_> = (0..8).map(&mut flip_of).collect();
            let found = closed.back(&flips, &format!("seed {seed}, round {round}, flips {flips:?}"));
            lost += closed.keys_back - found;
            most_lost = most_lost.max(closed.keys_back - found);
        }
        assert!(lost > 100, "seed {seed}: flips were noticed: {lost}");
        assert!(
            most_lost < closed.keys_back,
            "seed {seed}: one flip lost {most_lost} of {}",
            closed.keys_back
        );
    }
}
