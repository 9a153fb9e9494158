//! Decodes arbitrary bytes as buckets.

use super::bucket::{Bucket, BucketId, BucketMut, Fingerprint, HEADER_BYTES, Identity, NewEntry};

const ID: BucketId = BucketId(7);
const GENERATION: u64 = 1;
const BUCKET_BYTES: usize = 1024;

/// A bucket with a correct checksum is rejected, or can be read, changed and sealed.
pub(in crate::flash) fn check(content: &[u8]) {
    [false, true].into_iter().for_each(|is_numbered| check_format(content, is_numbered));
}

fn check_format(content: &[u8], is_numbered: bool) {
    let Some((used, entries)) = content.split_first_chunk() else { return };
    let mut bytes = vec![0; BUCKET_BYTES];
    if is_numbered {
        BucketMut::empty_numbered(&mut bytes, GENERATION).seal(ID);
    } else {
        BucketMut::empty(&mut bytes, GENERATION).seal(ID);
    }
    bytes[6..8].copy_from_slice(used);
    let len = entries.len().min(BUCKET_BYTES - HEADER_BYTES);
    bytes[HEADER_BYTES..][..len].copy_from_slice(&entries[..len]);
    if usize::from(u16::from_le_bytes(*used)) <= BUCKET_BYTES - HEADER_BYTES {
        BucketMut::verified(&mut bytes).seal(ID);
    }
    let identity = Identity { generation: GENERATION, id: ID, is_numbered };
    let Ok(bucket) = Bucket::open(&bytes, identity) else { return };
    let before = bucket.entries().count();
    let reach = bucket.entries().map(|entry| entry.value_range().end).max().unwrap_or(0);
    assert!(reach <= BUCKET_BYTES && before <= BUCKET_BYTES);
    let mut changed = BucketMut::verified(&mut bytes);
    let new =
        NewEntry { fingerprint: Fingerprint(9), expiry_seconds: 5, tag: 1, key: b"new", value: &[1; 200] };
    changed.remove(Fingerprint(9), None);
    changed.remove_expired(4);
    changed.insert(&new, |_| {});
    changed.seal(ID);
    let bucket = Bucket::open(&bytes, identity).expect("it was just sealed");
    assert!(bucket.find(Fingerprint(9), b"new").is_some_and(|entry| entry.value == [1; 200]));
}
