//! The decoders of all formats on arbitrary bytes.

use flashwright_workload::trace::{AccessKind, FORMATS, OpenOptions, PageSize, TraceError, ZeroSize, open};
use proptest::prelude::*;

/// Limit of accesses per trace, because a row can request a million pages.
const ENOUGH: u64 = 20_000;
/// Largest batch: a reader's memory use does not grow with a row's accesses.
const LARGEST_BATCH: usize = 4096;

/// Reads bytes to the end. The accesses must be as documented at `Access`, or the error must name the file.
fn read(bytes: &[u8], format: Option<&str>, page: Option<PageSize>) -> Result<u64, TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes");
    std::fs::write(&path, bytes).unwrap();
    let options = OpenOptions { page, limit: Some(ENOUGH), ..OpenOptions::default() };
    let mut trace = open(&[&path], format, &options)?;
    let (mut batch, mut last_ns, mut accesses) = (Vec::new(), 0, 0);
    while trace.next_batch(&mut batch)? {
        assert!(!batch.is_empty() && batch.len() <= LARGEST_BATCH);
        for access in &batch {
            assert!(access.time_ns >= last_ns, "times do not decrease");
            assert!(access.size_bytes > 0 || access.kind == AccessKind::Delete, "{access:?}");
            last_ns = access.time_ns;
        }
        accesses += batch.len() as u64;
    }
    let report = trace.report();
    assert_eq!(report.accesses, accesses);
    let troubles = report.bad_rows + report.zero_sizes + report.backward_times;
    // The note about a page size without effect belongs to no row.
    let reported =
        report.messages.iter().filter(|message| !message.starts_with("a page size")).count() as u64;
    assert!(reported <= troubles && (troubles == 0 || reported > 0));
    Ok(accesses)
}

/// Tables with configured columns.
const TABLES: [&str; 3] =
    ["csv:key", "csv:time,key,-,size,op", "csv:key=1,size=GET,op=2,ttl=3,tenant=1,count=3"];

fn read_as_all(bytes: &[u8]) {
    for page in [None, Some(PageSize::Bytes(1))] {
        let named = FORMATS.iter().map(|format| format.name).chain(TABLES);
        for format in named.map(Some).chain([None]) {
            if let Err(error) = read(bytes, format, page) {
                assert!(error.to_string().contains("bytes"), "{error} must name the file");
            }
        }
    }
}

/// Parts of rows, so that some combinations parse.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"0",
        b"1",
        b"7",
        b"4096",
        b"-1",
        b"18446744073709551615",
        b"99999999999999999999",
        b"1.5",
        b",",
        b",",
        b" ",
        b"\n",
        b"\n",
        b"\r\n",
        b"GET",
        b"SET",
        b"get",
        b"delete",
        b"Read",
        b"w",
        b"hm",
        b"*",
        b"ts,key,op,size\n",
        b"key,op,size,op_count,key_size,ttl\n",
        b"op_time,block_id,io_size,io_offset,op_name\n",
        b"timestamp,cacheKey,OpType,objectSize\n",
        b"getChunkData.Permanent",
        b"{\"timestamp\": ",
        b"\"hash_ids\": [",
        b"]}",
        b"\0",
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ\0",
        b"\xf0\xde\xbc\x9a\x78\x56\x34\x12",
        b"REST.GET.OBJECT",
        b"TCP_MISS/200",
        b"[10/Oct/2000:13:55:36 -0700] \"GET ",
        b"2007-02-22 17:00:03.5",
    ];
    prop_oneof![
        8 => proptest::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 1..40),
    ]
}

/// A valid row of each text format.
const ROWS: [&str; 17] = [
    "1,7,GET,100",
    "op_time,key,key_size,op,op_count,size\n1,7,20,GET,2,100",
    "1,k,1,1000,1000,300,-1,-1,60,1,0,0",
    "op_time,block_id,io_size,io_offset,op_name\n1,b,4096,8192,getChunkData.X",
    "1,k,2,100,1,get,0",
    "1 7 100",
    "128166372003061629,hm,1,Read,383496000,8192,1331",
    "0,20941264,8192,W,0.551706",
    "230027 8 0 12",
    "{\"timestamp\": 1, \"hash_ids\": [1, 2]}",
    "0.5 0 8 8 1",
    "500000 0 8 8 1",
    "1000 42 nfsd 8 8 W 6 0 8f5fbb8b9ab7ae9ab9a8cb3df4b8f1d4",
    "1.5 3 10.0.0.1 TCP_MISS/200 100 GET http://a/ - DIRECT/1.1.1.1 text/html",
    "10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 100",
    "1232488 REST.GET.OBJECT 95d363d3fbdc0b03 1168 0 1167",
    "1,5633898368802,2a,512,8",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn row_fragments_do_not_panic(parts in proptest::collection::vec(fragment(), 0..60)) {
        read_as_all(&parts.concat());
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_as_all(&bytes);
    }

    #[test]
    fn row_with_a_changed_byte_does_not_panic(row in 0..ROWS.len(), at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = ROWS[row].as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        read_as_all(&bytes);
    }
}

#[test]
fn valid_rows_are_read() {
    for row in ROWS {
        let reads = |name| matches!(read(row.as_bytes(), Some(name), None), Ok(1..));
        assert!(FORMATS.iter().map(|format| format.name).any(reads), "no format reads {row}");
    }
}

#[test]
fn row_of_many_pages_is_returned_in_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, "0,hm,0,Read,0,1073741824,1\n").unwrap();
    let options = OpenOptions {
        page: Some(PageSize::Bytes(4096)),
        zero_size: ZeroSize::Keep,
        ..OpenOptions::default()
    };
    let mut trace = open(&[&path], Some("msr"), &options).unwrap();
    let (mut batch, mut accesses) = (Vec::new(), 0);
    while trace.next_batch(&mut batch).unwrap() {
        assert!(batch.len() <= LARGEST_BATCH);
        accesses += batch.len();
    }
    assert_eq!(accesses, 1 << 18);
}
