//! Compares the bucket format with a simple model, a list of items.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const HERE: Identity = Identity { generation: 0x0123_4567_89AB_CDEF, id: BucketId(5), is_numbered: false };

fn new_entry<'a>(key: &'a [u8], value: &'a [u8], expiry_seconds: u32) -> NewEntry<'a> {
    let fingerprint = Fingerprint::of(KeyHash::of(key));
    NewEntry { fingerprint, expiry_seconds, tag: 7, key, value }
}

fn put(bucket: &mut BucketMut<'_>, key: &[u8], value: &[u8], expiry_seconds: u32) -> u32 {
    let entry = new_entry(key, value, expiry_seconds);
    bucket.remove(entry.fingerprint, Some(key));
    bucket.insert(&entry, |_| {})
}

fn sample() -> Vec<u8> {
    let mut bytes = vec![0xEE; 512];
    let mut bucket = BucketMut::empty(&mut bytes, HERE.generation);
    put(&mut bucket, b"first", b"one", 0);
    put(&mut bucket, b"second", b"", 99);
    put(&mut bucket, b"", b"keyless", 0);
    bucket.seal(HERE.id);
    bytes
}

fn listed(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, u32)> {
    let bucket = Bucket::open(bytes, HERE).expect("sealed");
    bucket.entries().map(|e| (e.key.to_vec(), e.value.to_vec(), e.expiry_seconds)).collect()
}

#[test]
fn entries_are_read_back_in_order() {
    let bytes = sample();
    let expected = [("first", "one", 0), ("second", "", 99), ("", "keyless", 0)]
        .map(|(k, v, e)| (k.into(), v.into(), e));
    assert_eq!(listed(&bytes), expected);
    let bucket = Bucket::open(&bytes, HERE).unwrap();
    let found = bucket.find(Fingerprint::of(KeyHash::of(b"first")), b"first").unwrap();
    assert_eq!((found.value, found.tag, &bytes[found.value_range()]), (&b"one"[..], 7, &b"one"[..]));
    assert!(bucket.find(Fingerprint::of(KeyHash::of(b"first")), b"other").is_none());
}

/// If the format changes, these bytes and `FORMAT` must change too.
#[test]
fn bucket_has_its_golden_bytes() {
    let hex: String = sample()[..HEADER_BYTES + 21 + 19].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "eee6e3db",
            "01b5",
            "3c00",
            "efcdab8967452301",
            "5a9809e7",
            "00000000",
            "0300",
            "0700",
            "05",
            "6669727374",
            "6f6e65",
            "054804ad",
            "63000000",
            "0000",
            "0700",
            "06",
            "7365636f6e64",
        )
    );
}

#[test]
fn every_flipped_byte_is_found_or_lies_in_the_unused_tail() {
    let bytes = sample();
    let end = Bucket::open(&bytes, HERE).unwrap().end();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match Bucket::open(&damaged, HERE) {
                Err(why) => assert!(at < end && why == Unusable::Checksum, "byte {at}: {why:?}"),
                Ok(_) => assert!(at >= end && listed(&damaged) == listed(&bytes), "byte {at} went unnoticed"),
            }
        }
    }
}

#[test]
fn bucket_of_another_generation_is_stale_and_of_another_location_is_corrupt() {
    let bytes = sample();
    let later = Identity { generation: HERE.generation + 1, ..HERE };
    assert_eq!(Bucket::open(&bytes, later).unwrap_err(), Unusable::Stale);
    let elsewhere = Identity { id: BucketId(6), ..HERE };
    assert_eq!(Bucket::open(&bytes, elsewhere).unwrap_err(), Unusable::Checksum);
    assert_eq!(Bucket::open(&[0; 512], HERE).unwrap_err(), Unusable::Checksum);
}

const NUMBERED: Identity = Identity { is_numbered: true, ..HERE };

fn numbered_sample() -> Vec<u8> {
    let mut bytes = vec![0xEE; 512];
    let mut bucket = BucketMut::empty_numbered(&mut bytes, HERE.generation);
    put(&mut bucket, b"first", b"one", 0);
    bucket.set_write_number(0x1122_3344_5566_7788);
    bucket.seal(HERE.id);
    bytes
}

#[test]
fn numbered_bucket_has_its_golden_bytes() {
    let bytes = numbered_sample();
    assert_eq!(bytes[FORMAT_AT..USED], [0x02, 0xB5]);
    assert_eq!(bytes[USED..GENERATION], [8 + 21, 0]);
    assert_eq!(bytes[HEADER_BYTES..][..8], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(bytes[HEADER_BYTES + 8..][..21], sample()[HEADER_BYTES..][..21]);
}

#[test]
fn numbered_bucket_keeps_its_entries_and_evicts_the_oldest() {
    let mut bytes = numbered_sample();
    let first = Bucket::open(&bytes, NUMBERED).expect("sealed");
    assert_eq!(first.write_number(), 0x1122_3344_5566_7788);
    assert_eq!(first.entries().map(|entry| entry.key).collect::<Vec<_>>(), [b"first"]);
    let mut bucket = BucketMut::verified(&mut bytes);
    // 488 bytes of space; the first entry takes 21.
    assert_eq!(put(&mut bucket, b"second", &[1; 448], 0), 0);
    assert_eq!(put(&mut bucket, b"third", b"", 0), 1);
    bucket.seal(HERE.id);
    let changed = Bucket::open(&bytes, NUMBERED).expect("sealed");
    assert_eq!(changed.write_number(), 0x1122_3344_5566_7788);
    assert_eq!(changed.entries().map(|entry| entry.key.len()).collect::<Vec<_>>(), [6, 5]);
}

#[test]
fn every_flipped_bit_of_a_write_number_is_detected() {
    for bit in 0..64 {
        let mut bytes = numbered_sample();
        bytes[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Bucket::open(&bytes, NUMBERED).unwrap_err(), Unusable::Checksum, "bit {bit}");
    }
}

#[test]
fn bucket_with_a_number_is_not_opened_as_one_without_or_the_reverse() {
    assert_eq!(Bucket::open(&numbered_sample(), HERE).unwrap_err(), Unusable::Malformed);
    assert_eq!(Bucket::open(&sample(), NUMBERED).unwrap_err(), Unusable::Malformed);
    // Too short for its number.
    let mut bytes = numbered_sample();
    bytes[USED..GENERATION].copy_from_slice(&7_u16.to_le_bytes());
    BucketMut::verified(&mut bytes).seal(HERE.id);
    assert_eq!(Bucket::open(&bytes, NUMBERED).unwrap_err(), Unusable::Malformed);
}

#[test]
fn bucket_with_wrong_lengths_and_a_valid_checksum_is_malformed() {
    for (at, byte) in [(FORMAT_AT, 0x02), (HEADER_BYTES + ENTRY_KEY_LEN, 200), (USED, 3)] {
        let mut bytes = sample();
        bytes[at] = byte;
        BucketMut::verified(&mut bytes).seal(HERE.id);
        assert_eq!(Bucket::open(&bytes, HERE).unwrap_err(), Unusable::Malformed, "byte {at}");
    }
}

#[test]
fn insert_into_a_full_bucket_evicts_only_as_many_of_the_oldest_as_needed() {
    let mut bytes = vec![0; 512];
    let mut bucket = BucketMut::empty(&mut bytes, HERE.generation);
    // 496 bytes of space; each entry takes 13 + 2 + 100.
    for key in [b"k0", b"k1", b"k2", b"k3"] {
        assert_eq!(put(&mut bucket, key, &[0; 100], 0), 0);
    }
    assert_eq!(put(&mut bucket, b"k4", &[0; 100], 0), 1);
    assert_eq!(put(&mut bucket, b"k2", &[1; 100], 0), 0, "replacing needs no room");
    assert_eq!(put(&mut bucket, b"k5", &[0; 300], 0), 3);
    bucket.seal(HERE.id);
    let keys: Vec<_> = listed(&bytes).into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys, [b"k2", b"k5"]);
}

#[test]
fn entry_that_fills_its_bucket_is_accepted_and_a_larger_one_refused() {
    for bucket_bytes in [512, 4096, 65_536] {
        let mut bytes = vec![0; bucket_bytes];
        let most = capacity(bucket_bytes) - ENTRY_BYTES - 1;
        assert!(fits(bucket_bytes, 1, most) && !fits(bucket_bytes, 1, most + 1));
        let mut bucket = BucketMut::empty(&mut bytes, HERE.generation);
        put(&mut bucket, b"a", b"old", 0);
        assert_eq!(put(&mut bucket, b"b", &vec![3; most], 0), 1);
        bucket.seal(HERE.id);
        assert_eq!(listed(&bytes), [(b"b".to_vec(), vec![3; most], 0)]);
    }
    assert!(!fits(4096, MAX_KEY_BYTES + 1, 0));
}

/// The model: a list of (key, value, expiry), oldest first.
struct Twin(Vec<(Vec<u8>, Vec<u8>, u32)>);

impl Twin {
    fn used(&self) -> usize {
        self.0.iter().map(|(key, value, _)| entry_bytes(key.len(), value.len())).sum()
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: u32, bucket_bytes: usize) {
        self.0.retain(|(k, ..)| k != key);
        while self.used() + entry_bytes(key.len(), value.len()) > bucket_bytes - HEADER_BYTES {
            self.0.remove(0);
        }
        self.0.push((key.to_vec(), value.to_vec(), expiry));
    }
}

#[test]
fn bucket_holds_the_same_items_as_a_simple_model() {
    for seed in 0..if cfg!(miri) { 2 } else { 40 } {
        let mut rng = StdRng::seed_from_u64(seed);
        let bucket_bytes = [512, 1024, 4096][rng.random_range(0..3)];
        let mut bytes = vec![0xAA; bucket_bytes];
        BucketMut::empty(&mut bytes, HERE.generation).seal(HERE.id);
        let mut twin = Twin(Vec::new());
        for now in 0..if cfg!(miri) { 60 } else { 300 } {
            let mut bucket = BucketMut::verified(&mut bytes);
            let key = format!("key-{}", rng.random_range(0..40));
            let fingerprint = Fingerprint::of(KeyHash::of(key.as_bytes()));
            match rng.random_range(0..10) {
                0 => {
                    bucket.remove(fingerprint, Some(key.as_bytes()));
                    twin.0.retain(|(k, ..)| k != key.as_bytes());
                }
                1 => {
                    bucket.remove_expired(now);
                    twin.0.retain(|(.., expiry)| !expired(*expiry, now));
                }
                _ => {
                    let value = vec![rng.random(); rng.random_range(0..bucket_bytes / 4)];
                    let expiry = if rng.random() { 0 } else { now + rng.random_range(1..100) };
                    put(&mut bucket, key.as_bytes(), &value, expiry);
                    twin.put(key.as_bytes(), &value, expiry, bucket_bytes);
                }
            }
            bucket.seal(HERE.id);
            assert_eq!(listed(&bytes), twin.0, "seed {seed}, step {now}");
        }
    }
}
