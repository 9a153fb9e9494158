//! Superblocks on whole, foreign, damaged and crashed devices.

use std::sync::Arc;

use device::MemoryDevice;
use device::wrap::CrashDevice;
use pollster::block_on;

use super::*;

const CAPACITY: u64 = 4 << 20;
const FINGERPRINT: u64 = 77;

fn layout() -> Layout {
    let config = LayoutConfig {
        soc_bytes: 1 << 20,
        bucket_bytes: 4096,
        soc_snapshot_bytes: 3000,
        region_bytes: 1 << 20,
        least_regions: 1,
        snapshot_bytes_per_region: 100,
        region_alignment_bytes: 0,
        area_alignment_bytes: 1,
        metadata_bytes: None,
    };
    Layout::compute(&MemoryDevice::new(CAPACITY).geometry(), &config).expect("it fits")
}

fn store() -> Superblock {
    Superblock::new(0xABCD, layout(), FINGERPRINT)
}

fn look(device: &dyn Device) -> Recognised {
    block_on(recognise(device, Waiting::Thread)).expect("memory does not fail")
}

fn overwrite(device: &dyn Device, at: u64, bytes: &[u8]) {
    let offset = at / 512 * 512;
    let len = ((at - offset) as usize + bytes.len()).next_multiple_of(512);
    let mut buffer = device.execute(Request::read(offset, len)).unwrap();
    buffer[(at - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
    device.execute(Request::write(offset, buffer)).unwrap();
}

/// Writes `payload` as the snapshot and closes the store with it.
async fn close(store: &mut Superblock, payload: &[u8], device: &dyn Device) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::new(device, &store.layout, store.next_mark(), Waiting::Thread);
    writer.section("soc", payload.len() as u64, [payload]).await?;
    let place = writer.finish().await?;
    Ok(store.mark_clean(place, device, Waiting::Thread).await?)
}

#[test]
fn reopened_store_has_its_state_at_close() {
    let device = MemoryDevice::new(CAPACITY);
    assert_eq!(look(&device), Recognised::Blank);
    let mut store = store();
    block_on(store.mark_open(&device, Waiting::Thread)).unwrap();
    assert_eq!(look(&device), Recognised::Ours(store));
    block_on(close(&mut store, b"all", &device)).unwrap();
    assert_eq!(look(&device), Recognised::Ours(store));
    let (reopened, place) = store.reopened(layout(), FINGERPRINT);
    assert_eq!(reopened.generation_mark(), store.generation_mark());
    let sections = block_on(read_snapshot(&device, place.unwrap(), Waiting::Thread)).unwrap();
    assert_eq!(sections, [Section { name: "soc".into(), payload: b"all".to_vec() }]);
}

#[test]
fn store_starts_empty_after_a_crash_or_a_configuration_change() {
    let mut store = store();
    let (reopened, place) = store.reopened(layout(), FINGERPRINT);
    assert!(place.is_none() && reopened.generation_mark() != store.generation_mark());
    store.state = State::Clean(SnapshotPlace { offset: 0, bytes: 0, mark: 0 });
    assert!(store.reopened(layout(), FINGERPRINT).1.is_some());
    assert!(store.reopened(layout(), FINGERPRINT + 1).1.is_none());
    let (reopened, place) = store.reopened(Layout { regions: 1, ..layout() }, FINGERPRINT);
    assert!(place.is_none() && reopened.layout.regions == 1 && reopened.generation == store.generation + 1);
}

#[test]
fn superblock_has_its_golden_bytes() {
    let layout = Layout {
        device_bytes: 1,
        block_bytes: 2,
        bucket_bytes: 3,
        metadata_offset: 4,
        metadata_bytes: 5,
        regions_offset: 6,
        region_bytes: 7,
        regions: 8,
        soc_offset: 9,
        soc_bytes: 10,
    };
    let state = State::Clean(SnapshotPlace { offset: 12, bytes: 13, mark: 14 });
    for (hash_seed, clear_at_seconds, checksum) in GOLDEN_CHECKSUMS {
        let superblock = Superblock {
            sequence: 15,
            store_id: 16,
            generation: 17,
            layout,
            fingerprint: 11,
            state,
            hash_seed,
            journaled_generation: 0,
            clear_at_seconds,
        };
        let mut expected = b"FLSHWRT\0\x01\0\0\0".to_vec();
        expected.extend(checksum);
        let u64s =
            |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        expected.extend(u64s(&[15, 16, 0, 17, 1]));
        expected.extend([2, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend(u64s(&[4, 5, 6, 7, 8, 9, 10, 11, 2, 12, 13, 14, hash_seed, 0, clear_at_seconds]));
        expected.resize(ENCODED_BYTES, 0);
        let encoded = superblock.encode();
        assert_eq!(encoded[..], expected);
        assert_eq!(Superblock::decode(&encoded), Some(superblock));
    }
}

#[test]
fn continued_store_keeps_the_mark_of_its_journals_only() {
    let store = store();
    assert_eq!(store.journaled_mark(), store.generation_mark());
    let once = store.continued(store.layout, FINGERPRINT).expect("it was not closed");
    let twice = once.continued(store.layout, FINGERPRINT).expect("it was not closed");
    assert_eq!(twice.journaled_mark(), store.journaled_mark());
    assert!(
        twice.generation_mark() != once.generation_mark()
            && once.generation_mark() != store.generation_mark()
    );
    assert_eq!(Superblock::decode(&twice.encode()), Some(twice));
    let emptied = twice.emptied();
    assert!(emptied.journaled_mark() == emptied.generation_mark() && emptied.generation > twice.generation);
    assert_eq!(store.continued(store.layout, FINGERPRINT + 1), None);
}

/// With the hash seed and the time of the clear, computed by another CRC-32C. Both are 0 in stores of versions without these fields.
const GOLDEN_CHECKSUMS: [(u64, u64, [u8; 4]); 3] =
    [(0, 0, [137, 164, 201, 170]), (18, 0, [138, 214, 61, 87]), (18, 19, [126, 139, 213, 204])];

#[test]
fn rewritten_store_has_the_new_clear_time_in_both_copies_and_keeps_its_session() {
    let device = MemoryDevice::new(CAPACITY);
    let mut store = store();
    block_on(store.mark_open(&device, Waiting::Thread)).unwrap();
    let changed = Superblock { clear_at_seconds: 5, ..store };
    block_on(changed.rewrite(&device, Waiting::Thread)).unwrap();
    assert_eq!((look(&device), changed.session()), (Recognised::Ours(changed), store.session()));
    overwrite(&device, changed.sequence % 2 * COPY_BYTES, &[0; ENCODED_BYTES]);
    let older = Superblock { sequence: store.sequence - 1, ..changed };
    assert_eq!(look(&device), Recognised::Ours(older));
    let (open, _) = changed.reopened(changed.layout, FINGERPRINT);
    assert_eq!((open.clear_at_seconds, open.generation), (0, store.generation + 1), "it starts empty");
}

#[test]
fn every_flipped_byte_is_detected_and_the_other_copy_is_used() {
    let device = MemoryDevice::new(CAPACITY);
    let mut store = store();
    block_on(store.mark_open(&device, Waiting::Thread)).unwrap();
    let older = Superblock { sequence: store.sequence - 1, ..store };
    let encoded = store.encode();
    for at in 0..512 {
        let byte = encoded.get(at).copied().unwrap_or(0);
        overwrite(&device, at as u64, &[byte ^ 0x24]);
        let expected = if at < ENCODED_BYTES { older } else { store };
        assert_eq!(look(&device), Recognised::Ours(expected), "byte {at}");
        overwrite(&device, at as u64, &[byte]);
    }
    overwrite(&device, 20, &[9]);
    overwrite(&device, COPY_BYTES + 20, &[9]);
    assert_eq!(look(&device), Recognised::Damaged);
    block_on(erase(&device, Waiting::Thread)).unwrap();
    assert_eq!(look(&device), Recognised::Blank);
}

/// After the damage the store may reopen empty, but never with an older snapshot.
#[test]
fn damaged_newest_superblock_does_not_restore_an_older_snapshot() {
    let device = MemoryDevice::new(CAPACITY);
    let mut store = store();
    block_on(store.mark_open(&device, Waiting::Thread)).unwrap();
    block_on(close(&mut store, b"first snapshot", &device)).unwrap();
    let (mut store, _) = store.reopened(layout(), FINGERPRINT);
    block_on(store.mark_open(&device, Waiting::Thread)).unwrap();
    overwrite(&device, store.sequence % 2 * COPY_BYTES, &[0; 64]);
    let Recognised::Ours(found) = look(&device) else { panic!("the other copy stands") };
    assert_eq!(found.state, State::Open);
}

#[test]
fn foreign_data_and_newer_formats_are_recognised() {
    let device = MemoryDevice::new(CAPACITY);
    overwrite(&device, 3000, b"somebody's data");
    assert_eq!(look(&device), Recognised::Foreign { looks_like: None });
    let mut ours = store();
    block_on(ours.mark_open(&device, Waiting::Thread)).unwrap();
    let mut newer = ours.encode();
    newer[MAGIC.len()] = 2;
    let sum = checksum(&newer);
    newer[CHECKSUM_AT..CHECKSUM_END].copy_from_slice(&sum.to_le_bytes());
    overwrite(&device, 0, &newer);
    assert_eq!(look(&device), Recognised::Newer { version: 2 });
    overwrite(&device, 0x438, &[0x53, 0xEF]);
    let name = "an ext2, ext3 or ext4 file system";
    assert_eq!(look(&device), Recognised::Foreign { looks_like: Some(name) }, "even over a store");
}

/// A store is closed with content 1, then reopened, changed to content 2 and closed again. The power is cut at every write and flush in
/// turn. If the store is then found clean, its content must match its snapshot.
#[test]
fn power_cut_at_any_request_leaves_no_outdated_snapshot_marked_clean() {
    let mut found_clean = [0; 3];
    for cut_after in 0.. {
        let memory = MemoryDevice::new(CAPACITY);
        block_on(live(&memory, 1)).unwrap();
        let crashing = Arc::new(CrashDevice::new(memory));
        crashing.freeze_after(cut_after);
        let ended = block_on(live(&*crashing, 2)).is_ok();
        for seed in 0..8 {
            let image = crashing.crash(seed);
            let content = content(&image);
            match look(&image) {
                Recognised::Ours(Superblock { state: State::Clean(place), .. }) => {
                    let sections =
                        block_on(read_snapshot(&image, place, Waiting::Thread)).expect("durable first");
                    assert_eq!(sections[0].payload, [content], "cut after {cut_after}, seed {seed}");
                    found_clean[usize::from(content)] += 1;
                }
                Recognised::Ours(_) => assert!(!ended, "a closed store is found closed"),
                other => panic!("cut after {cut_after}, seed {seed}: {other:?}"),
            }
        }
        if ended {
            break;
        }
    }
    assert!(found_clean[1] > 0 && found_clean[2] > 0, "both ends were seen: {found_clean:?}");
}

/// Opens the device, changes its content to `content`, and closes it with a snapshot of that content.
async fn live(device: &dyn Device, content: u8) -> Result<(), SnapshotError> {
    let mut store = match recognise(device, Waiting::Thread).await? {
        Recognised::Ours(found) => found.reopened(layout(), FINGERPRINT).0,
        _ => store(),
    };
    store.mark_open(device, Waiting::Thread).await?;
    let request = Request::write(layout().soc_offset, IoBuffer::copy_of(&[content; 4096]));
    Waiting::Thread.start(device, request).await?;
    close(&mut store, &[content], device).await
}

fn content(device: &dyn Device) -> u8 {
    let buffer = device.execute(Request::read(layout().soc_offset, 4096)).unwrap();
    assert!(buffer.iter().all(|&byte| byte == buffer[0] || byte == 1 || byte == 2));
    buffer[0]
}

#[test]
fn superblock_with_overflowing_counts_is_damaged() {
    for broken in
        [Superblock { generation: u64::MAX, ..store() }, Superblock { sequence: u64::MAX, ..store() }]
    {
        let bytes = broken.encode();
        assert!(matches!(read_copy(&bytes), Copy::Damaged));
    }
}
