use proptest::prelude::*;

use super::*;
use crate::trace::TenantNames;
use crate::trace::rows::{Object, Row};
use crate::{RequestKind, Tenant};

/// A row and its name.
type Named = (Row, Vec<u8>);

/// Tenants by index, from 1.
const TENANTS: [&str; 4] = ["web", "web/7", "/7", "über"];

fn encode(rows: &[Named]) -> Vec<u8> {
    let names = TenantNames::default();
    let mut met = Rows::with_tenants(names.clone());
    for name in TENANTS {
        met.tenant(&[name.as_bytes()]).expect("the name is not empty");
    }
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    for (row, name) in rows {
        assert!(encoder.push(row, name, &names, &mut out));
    }
    encoder.finish(&mut out);
    out
}

fn decode(bytes: &[u8]) -> Result<(Vec<Named>, Option<String>), RowError> {
    let mut reader = Reader::default();
    reader.framing(bytes)?;
    let names = TenantNames::default();
    let (mut input, mut rows, mut all) = (bytes, Rows::with_tenants(names.clone()), Vec::new());
    loop {
        rows.clear();
        match reader.read_from(&mut input, &mut rows) {
            Ok(Some(Ok(()))) => all.push(named(&rows, &names)),
            Ok(Some(Err(reason))) => panic!("{reason}"),
            Ok(None) => return Ok((all, None)),
            Err(error) => return Ok((all, Some(error.to_string()))),
        }
    }
}

/// The row; its tenant has the index of its name in [`TENANTS`].
fn named(rows: &Rows, names: &TenantNames) -> Named {
    assert_eq!(rows.len(), 1);
    let mut row = rows.row(0).clone();
    row.tenant = row.tenant.map(|tenant| {
        let name = names.of(tenant).unwrap();
        Tenant::of_index(1 + TENANTS.iter().position(|known| **known == *name).unwrap())
    });
    match &row.object {
        Object::Named(range) => (row.clone(), rows.named(range).to_vec()),
        Object::Numbered { .. } => (row, Vec::new()),
        Object::Items(_) => panic!("ranges are not split here"),
    }
}

prop_compose! {
    fn row()(
        kind in 0..RequestKind::ALL.len(), name in "[a-z0]{1,40}", zeros in 0..200_usize,
        number in proptest::option::weighted(0.2, any::<(u64, u64, u32)>()),
        value_bytes in prop_oneof![0..10_u64, any::<u64>()], key_bytes in any::<u32>(),
        ttl_seconds in proptest::option::of(1..u32::MAX), time in proptest::option::of(any::<u64>()),
        repeat in prop_oneof![Just(1), 1..u32::MAX], tenant in proptest::option::of(1..=TENANTS.len()),
    ) -> Named {
        let mut name = name.into_bytes();
        name.resize(name.len() + zeros, b'0');
        let object = match number {
            Some((volume, first, following)) => {
                name.clear();
                Object::Numbered { volume, first, count: u64::from(following) + 1 }
            }
            None => Object::Named(0..name.len() as u32),
        };
        let tenant = tenant.map(Tenant::of_index);
        let row = Row { kind: RequestKind::ALL[kind], key_bytes, ttl_seconds, time_ns: time, repeat, tenant,
            ..Row::new(RequestKind::Get, object, value_bytes) };
        (row, name)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn encoded_rows_decode_unchanged(rows in proptest::collection::vec(row(), 0..50)) {
        prop_assert_eq!(decode(&encode(&rows)).unwrap(), (rows, None));
    }
}

fn plain_row(number: u64) -> Named {
    let name = format!("key{}00", number * 7919 % 1000).into_bytes();
    let object = Object::Named(0..name.len() as u32);
    let row =
        Row { time_ns: Some(number / 10 * SECOND_NS), ..Row::new(RequestKind::Get, object, number % 500) };
    (row, name)
}

#[test]
fn consecutive_blocks_use_few_bytes_per_row() {
    let rows: Vec<_> = (0..10_000).map(plain_row).collect();
    let bytes = encode(&rows);
    assert_eq!(decode(&bytes).unwrap(), (rows, None));
    // One byte each for the time, the length and the stored length of the name; two for the size; and the name.
    let a_row = bytes.len() as f64 / 10_000.0;
    assert!((9.0..12.0).contains(&a_row), "{a_row} bytes a row");
}

fn of_tenant(index: usize) -> Named {
    let (row, name) = plain_row(index as u64);
    (Row { tenant: Some(Tenant::of_index(index)), ..row }, name)
}

/// After the columns, each tenant once per block, in order of appearance.
#[test]
fn tenants_have_the_golden_bytes() {
    let bytes = encode(&[of_tenant(3), of_tenant(1), of_tenant(3)]);
    let table = b"\x02\0/7\x03\0web";
    let at = bytes.windows(table.len()).position(|bytes| bytes == table).expect("the table of tenants");
    assert_eq!((u32_at(&bytes, 44), &bytes[at + table.len()..][..3]), (2, &b"key"[..]));
}

#[test]
fn row_has_the_golden_bytes() {
    let (mut row, name) = plain_row(1);
    (row.ttl_seconds, row.time_ns) = (Some(60), Some(3 * SECOND_NS));
    let bytes = encode(&[(row, name)]);
    let numbers = |at: usize| u32_at(&bytes, at);
    assert_eq!(bytes[..8], MAGIC);
    assert_eq!((numbers(8), numbers(12), u64_at(&bytes, 16)), (1, 32, SECOND_NS));
    // Operation, time, value, TTL, length of the name and its stored length: six columns, each constant in one row.
    let payload = 8 + 6 * 16 + b"key919".len();
    assert_eq!((numbers(32), numbers(36)), (1, payload as u32));
    assert_eq!((numbers(40), numbers(44)), (0b1_1001_0111, 0));
    assert_eq!((u64_at(&bytes, 48), bytes[60]), (16 | 1, 0), "a get with a time");
    assert_eq!(u64_at(&bytes, 64), 3 * SECOND_NS);
    assert_eq!(u64_at(&bytes, 80), 1, "length of the value");
    assert_eq!(bytes[144..150], *b"key919");
    let end = 32 + 8 + payload + 8;
    assert_eq!((numbers(end), numbers(end + 4), u64_at(&bytes, end + 8)), (0, 8, 1));
    assert_eq!(bytes.len(), end + 24);
    assert_eq!(xxh3_64(&bytes[end..end + 16]), u64_at(&bytes, end + 16));
}

#[test]
fn changed_or_missing_byte_is_detected() {
    let rows: Vec<_> = (0..40).map(plain_row).collect();
    let bytes = encode(&rows);
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            match decode(&changed) {
                Err(_) => assert!(at < HEADER_BYTES, "byte {at}"),
                Ok((found, message)) => {
                    assert!(
                        at >= HEADER_BYTES && message.is_some(),
                        "the change of byte {at} was not detected"
                    );
                    assert!(rows.starts_with(&found), "byte {at}: only valid rows are returned");
                }
            }
        }
        match decode(&bytes[..at]) {
            Err(_) => assert!(at < HEADER_BYTES, "cut at {at}"),
            Ok((found, message)) => {
                assert!(message.is_some_and(|message| message.contains("cut off")), "cut at {at}");
                assert!(rows.starts_with(&found));
            }
        }
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(decode(&longer).unwrap().1.unwrap().contains("damaged"));
}

/// A payload with a correct checksum can still be invalid.
#[test]
fn invalid_payload_with_correct_checksum_is_rejected() {
    let good = encode(&[of_tenant(1), plain_row(30), of_tenant(3)]);
    let payload_bytes = u32_at(&good, 36) as usize;
    let payload = 40..40 + payload_bytes;
    let mut refused = 0;
    for at in payload.clone() {
        for byte in [0, 1, 3, 9, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            let check = xxh3_64(&bytes[32..payload.end]);
            bytes[payload.end..payload.end + 8].copy_from_slice(&check.to_le_bytes());
            let mut reader = Reader::default();
            reader.framing(&bytes).unwrap();
            let names = TenantNames::default();
            let (mut input, mut rows) = (&bytes[..], Rows::with_tenants(names.clone()));
            while let Ok(Some(_)) = reader.read_from(&mut input, &mut rows) {}
            refused += usize::from(!input.is_empty());
            assert!(names.all().len() <= 2);
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn newer_version_is_rejected_with_its_number() {
    let mut bytes = encode(&[plain_row(1)]);
    bytes[VERSION_AT] = 2;
    let message = decode(&bytes).unwrap_err().to_string();
    assert_eq!(
        message,
        "it is a binary trace of version 2, written by a newer program; this one reads versions up to 1"
    );
    assert!(decode(b"ts,key,op,size\n").is_err());
}

#[test]
fn second_file_is_read_from_its_start() {
    let rows: Vec<_> = (0..5).map(plain_row).collect();
    let bytes = encode(&rows);
    let mut reader = Reader::default();
    for _ in 0..2 {
        reader.framing(&bytes).unwrap();
        let (mut input, mut into) = (&bytes[..], Rows::default());
        let mut found = 0;
        // The first pass stops before the end.
        while found < 3 && reader.read_from(&mut input, &mut into).unwrap().is_some() {
            found += 1;
        }
        assert_eq!((found, into.len()), (3, 3));
    }
}
