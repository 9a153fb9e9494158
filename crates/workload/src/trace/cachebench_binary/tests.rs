use super::*;
use crate::trace::rows::Object;

/// The bytes of a file as written by CacheBench: keys, operations, repeat counts, TTLs and sizes.
fn file(rows: &[(&str, u8, u16, u32, u32)], unused: usize) -> Vec<u8> {
    let count = rows.len() + unused;
    let mut bytes = (count as u64).to_le_bytes().to_vec();
    let mut key_at = COUNT_BYTES + count * RECORD_BYTES;
    for (key, operation, repeats, ttl, value_bytes) in rows {
        let key_from_here = (key_at - bytes.len()) as u64;
        bytes.extend([key.len() as u8, *operation]);
        bytes.extend(repeats.to_le_bytes());
        bytes.extend(ttl.to_le_bytes());
        bytes.extend(key_from_here.to_le_bytes());
        bytes.extend(value_bytes.to_le_bytes());
        bytes.extend([0; 4]);
        key_at += key.len();
    }
    bytes.resize(COUNT_BYTES + count * RECORD_BYTES, 0);
    rows.iter().for_each(|(key, ..)| bytes.extend(key.as_bytes()));
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

fn read(mut bytes: &[u8]) -> io::Result<Vec<Result<(Row, String), RowError>>> {
    let mut reader = Reader::default();
    let mut all = Vec::new();
    let mut rows = Rows::default();
    while let Some(read) = reader.read_from(&mut bytes, &mut rows)? {
        if let (Ok(()), 1) = (&read, rows.len()) {
            let row = rows.row(0).clone();
            let Object::Named(name) = &row.object else { panic!("keys are names") };
            let name = String::from_utf8(rows.named(name).to_vec()).unwrap();
            all.push(Ok((row, name)));
        }
        all.extend(read.err().map(Err));
        rows.clear();
    }
    Ok(all)
}

const ROWS: [(&str, u8, u16, u32, u32); 3] =
    [("a00", 1, 1, 0, 100), ("bb", 0, 65_535, 60, 0), ("c", 2, 1, 0, u32::MAX)];

#[test]
fn records_are_read_with_their_keys() {
    let found = read(&file(&ROWS, 2)).unwrap();
    let kinds = [RequestKind::Get, RequestKind::Set, RequestKind::Delete];
    assert_eq!(found.len(), 3, "unused records are not rows");
    for (row, ((key, _, repeats, ttl, value_bytes), kind)) in found.iter().zip(ROWS.iter().zip(kinds)) {
        let (row, name) = row.as_ref().unwrap();
        assert_eq!((name.as_str(), row.kind), (*key, kind));
        assert_eq!((row.repeat, row.value_bytes), (u32::from(*repeats), u64::from(*value_bytes)));
        assert_eq!((row.ttl_seconds, row.time_ns), ((*ttl > 0).then_some(*ttl), None));
    }
}

#[test]
fn cut_file_is_an_error() {
    let whole = file(&ROWS, 0);
    let keys_end = COUNT_BYTES + ROWS.len() * RECORD_BYTES + 6;
    for cut in [0, 7, 8, 40, keys_end - 1] {
        let message = read(&whole[..cut]).unwrap_err().to_string();
        assert!(message.starts_with("the binary trace of CacheBench is cut off: "), "{cut}: {message}");
    }
    assert_eq!(read(&whole[..keys_end]).unwrap().len(), 3);
}

#[test]
fn false_record_count_allocates_no_memory() {
    let mut bytes = file(&ROWS, 0);
    bytes[..8].copy_from_slice(&(1_u64 << 39).to_le_bytes());
    let message = read(&bytes).unwrap_err().to_string();
    assert!(message.ends_with("it should have 549755813888 records, but has 170"), "{message}");
}

#[test]
fn invalid_record_reports_the_reason_and_reading_continues() {
    let mut bytes = file(&[ROWS[0], ROWS[1], ROWS[2], ROWS[0], ROWS[1]], 0);
    let at = |index: usize| COUNT_BYTES + index * RECORD_BYTES;
    bytes[at(0) + OPERATION] = 8;
    bytes[at(1) + REPEATS..at(1) + TTL].fill(0);
    bytes[at(2)] = 0;
    bytes[at(4) + KEY..at(4) + VALUE_BYTES].fill(0);
    let found = read(&bytes).unwrap();
    let reasons: Vec<String> =
        found.iter().filter_map(|row| row.as_ref().err().map(ToString::to_string)).collect();
    assert_eq!(
        reasons,
        [
            "`8` is not a known operation",
            "`op_count` is 0: the row describes no request",
            "column `key` is missing",
            "its key lies before that of the previous row",
        ]
    );
    assert_eq!(found[3].as_ref().unwrap().1, "a00");
}

#[test]
fn detection_requires_keys_right_after_the_records() {
    let whole = file(&ROWS, 1);
    assert!(fits(&whole) && fits(&whole[..33]));
    assert!(!fits(&[]) && !fits(&whole[..8]) && !fits(&[0; 4096]));
    // A changed byte in a key position makes detection fail.
    for at in (0..8).chain([8]).chain(16..24).chain(40..48) {
        let mut other = whole.clone();
        other[at] ^= 1;
        assert!(!fits(&other), "byte {at}");
    }
}
