use super::*;
use proptest::prelude::*;

const KEY: u64 = 0x0123_4567_89ab_cdef;
const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 15, 23, 24, 25, 100, 4095, 4096, 4097, 20_003];

fn filled(payload: &Payload, length: usize, version: u64) -> Vec<u8> {
    let mut value = vec![0xee; length];
    payload.fill(&mut value, KEY, version);
    value
}

#[test]
fn filled_value_verifies_at_every_length() {
    for percent in [0, 1, 50, 99, 100] {
        let payload = Payload::new(percent);
        for length in LENGTHS {
            let version = payload.verify(&filled(&payload, length, 300), KEY).unwrap();
            assert!(version.matches(300), "{length} bytes: {version:?}");
            assert_eq!(version.matches(301), length == 0, "{length} bytes: {version:?}");
        }
    }
}

#[test]
fn large_value_is_equal_at_any_memory_alignment() {
    let payload = Payload::new(30).with_repeats(20);
    for length in [PAST_CACHES_BYTES - 1, PAST_CACHES_BYTES, PAST_CACHES_BYTES + 4097] {
        let first = filled(&payload, length, 300);
        for start in 0..=LINE_BYTES {
            let mut memory = vec![0xee; start + length + 3];
            payload.fill(&mut memory[start..start + length], KEY, 300);
            assert_eq!(memory[start..start + length], first, "{length} bytes from {start} on");
            assert!(memory[..start].iter().chain(&memory[start + length..]).all(|byte| *byte == 0xee));
        }
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    let payload = Payload::new(30);
    for length in [24, 60, 4100] {
        let value = filled(&payload, length, 7);
        for bit in 0..length * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = payload.verify(&flipped, KEY).expect_err("a flipped bit");
            if bit / 8 >= HEADER_BYTES {
                assert_eq!(error, Corruption::Body { offset: bit / 8 });
            }
        }
    }
}

#[test]
fn flipped_bit_of_a_tiny_value_is_detected_or_changes_the_version() {
    let payload = Payload::new(0);
    for length in 1..HEADER_BYTES {
        let value = filled(&payload, length, 7);
        for bit in 0..length * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let verified = payload.verify(&flipped, KEY);
            assert!(verified.is_err() || !verified.unwrap().matches(7), "{length} bytes, bit {bit}");
        }
    }
}

#[test]
fn value_of_another_key_or_length_is_reported_as_such() {
    let payload = Payload::new(0);
    let value = filled(&payload, 100, 1);
    assert_eq!(payload.verify(&value, 9), Err(Corruption::OtherKey { expected: 9, found: KEY }));
    assert_eq!(payload.verify(&value[..99], KEY), Err(Corruption::Length { written: 100, read: 99 }));
    assert_eq!(payload.verify(&[0; 100], KEY), Err(Corruption::Header));
    assert!(
        payload.verify(&filled(&payload, 12, 1), 9).is_err(),
        "tiny values are checked against their key too"
    );
}

#[test]
fn zero_share_is_as_configured() {
    for percent in [0, 25, 50, 100] {
        let value = filled(&Payload::new(percent), 64 << 10, 3);
        for block in value.chunks(BLOCK_BYTES).skip(1) {
            let zeros = block.iter().filter(|byte| **byte == 0).count() as f64 / BLOCK_BYTES as f64;
            // One random byte in 256 is also zero.
            assert!((zeros - f64::from(percent) / 100.0).abs() < 0.02, "{percent} %: {zeros}");
        }
    }
}

#[test]
fn only_the_zeros_of_a_value_compress() {
    let whole: Vec<u8> = (0..64)
        .flat_map(|key| {
            let mut value = vec![0; 8192];
            Payload::new(0).fill(&mut value, key, 1);
            value
        })
        .collect();
    assert!(zstd::encode_all(whole.as_slice(), 3).unwrap().len() > whole.len() * 98 / 100);
    let half = filled(&Payload::new(50), 1 << 20, 1);
    let packed = zstd::encode_all(half.as_slice(), 3).unwrap().len() as f64 / half.len() as f64;
    assert!((0.45..0.55).contains(&packed), "{packed}");
}

#[test]
fn all_blocks_of_a_value_differ() {
    let payload = Payload::new(0);
    let mut seen = std::collections::HashSet::new();
    for version in 0..20 {
        let value = filled(&payload, 40 * BLOCK_BYTES, version);
        assert!(value.chunks(BLOCK_BYTES).all(|block| seen.insert(block.to_vec())));
    }
}

#[test]
fn values_verify_with_another_payload_instance() {
    let value = filled(&Payload::new(70), 10_000, 1);
    assert!(Payload::new(0).verify(&value, KEY).unwrap().matches(1));
    let mut header_only = vec![0xab; 10_000];
    Payload::fill_header_only(&mut header_only, KEY, 5);
    assert!(Payload::new(0).verify(&header_only, KEY).unwrap().matches(5));
    assert!(header_only[HEADER_BYTES..].iter().all(|byte| *byte == 0xab));
}

#[test]
fn payload_has_its_golden_bytes() {
    let value = filled(&Payload::new(0), 40, 0x0a0b_0c0d);
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN, "values written by earlier versions must still verify");
}

const GOLDEN: &str = "36fddde928000000efcdab89674523010d0c0b0a000000004de0e31b1c939a9a7577725ec8778e13";

#[test]
fn repeating_value_verifies_at_every_length_and_detects_every_flipped_bit() {
    for (zeros, repeats) in [(0, 1), (0, 50), (30, 50), (0, 100), (100, 100)] {
        let payload = Payload::new(zeros).with_repeats(repeats);
        for length in [0, 24, 31, 32, 4096, 4127, 4128, 4129, 4200, 8192, 8200, 20_003, 400_001] {
            let value = filled(&payload, length, 300);
            let version = Payload::new(0).verify(&value, KEY).unwrap();
            assert!(version.matches(300), "{length} bytes, {zeros} % zeros, {repeats} % repeated");
            assert_eq!(Payload::verify_header(&value, KEY), Ok(version));
        }
        let value = filled(&payload, 8200, 7);
        for bit in (0..8200 * 8).step_by(5).chain(0..64 * 8) {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Payload::new(0).verify(&flipped, KEY).expect_err("a flipped bit");
            if bit / 8 >= REPEATING_BODY {
                assert_eq!(error, Corruption::Body { offset: bit / 8 });
            }
        }
    }
}

/// Values are packed behind headers and keys of varying length, as in a cache.
#[test]
fn share_of_duplicate_blocks_is_as_configured_at_any_offset() {
    for (percent, value_bytes) in [(0, 50_000), (10, 50_000), (50, 9000), (50, 50_000), (90, 400_000)] {
        let payload = Payload::new(0).with_repeats(percent);
        let mut drive = Vec::new();
        for key in 0..(64 << 20) / value_bytes as u64 {
            drive.resize((drive.len() + 32 + 17).next_multiple_of(64) - 15, 0xEE);
            let start = drive.len();
            drive.resize(start + value_bytes, 0);
            payload.fill(&mut drive[start..], scramble(key), 1);
        }
        let blocks = drive.chunks_exact(BLOCK_BYTES);
        let all = blocks.len() as f64;
        let distinct = blocks.collect::<std::collections::HashSet<_>>().len() as f64;
        let found = 1.0 - distinct / all;
        let requested = f64::from(percent) / 100.0;
        assert!((found - requested).abs() < 0.03, "{percent} % of {value_bytes} bytes: {found:.3}");
    }
}

#[test]
fn repeated_blocks_do_not_compress() {
    let value = filled(&Payload::new(0).with_repeats(100), 4096 + 40, 1);
    assert!(zstd::encode_all(&value[..4096], 3).unwrap().len() > 4096 * 98 / 100);
}

proptest! {
    #[test]
    fn different_versions_of_a_value_are_distinguished(a in 0..=MAX_VERSION, b in 0..=MAX_VERSION, length in 24..5000usize) {
        let payload = Payload::new(10);
        let read = payload.verify(&filled(&payload, length, a), KEY).unwrap();
        prop_assert!(read.matches(a));
        prop_assert_eq!(read.matches(b), a == b);
    }
}
