#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use proptest::prelude::*;

use crate::trace::{Access, AccessKind, OpenOptions, Target, Writer, open};

type Column = (&'static str, Physical, Option<LogicalType>, Repetition);

/// Writes columns whose values the caller appends; every row group has the same.
fn file(
    path: &Path,
    columns: &[Column],
    compression: Compression,
    groups: usize,
    write: impl Fn(usize, &mut parquet::file::writer::SerializedColumnWriter<'_>),
) {
    let fields = columns.iter().map(|(name, physical, logical, repetition)| {
        let (scale, precision) = if *name == "decimal" { (2, 9) } else { (-1, -1) };
        let column =
            Type::primitive_type_builder(name, *physical).with_scale(scale).with_precision(precision);
        Arc::new(column.with_repetition(*repetition).with_logical_type(logical.clone()).build().unwrap())
    });
    let schema = Type::group_type_builder("t").with_fields(fields.collect()).build().unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), Arc::new(schema), Arc::new(properties))
            .unwrap();
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        for number in 0..columns.len() {
            let mut column = group.next_column().unwrap().unwrap();
            write(number, &mut column);
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    super::open(File::open(path).unwrap(), None).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn read(paths: &[PathBuf], format: Option<&str>) -> Result<(Vec<Access>, String), String> {
    let mut trace = open(paths, format, &OpenOptions::default()).map_err(|error| error.to_string())?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).map_err(|error| error.to_string())? {
        all.extend_from_slice(&batch);
    }
    Ok((all, trace.report().format.to_owned()))
}

const REQUIRED: Repetition = Repetition::REQUIRED;
const OPTIONAL: Repetition = Repetition::OPTIONAL;

#[test]
fn values_of_every_type_become_cells_of_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let columns: [Column; 11] = [
        ("a", Physical::INT64, Some(LogicalType::integer(64, false)), REQUIRED),
        ("b", Physical::INT32, Some(LogicalType::integer(32, false)), REQUIRED),
        ("c", Physical::INT64, None, OPTIONAL),
        ("d", Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS)), REQUIRED),
        ("e", Physical::BYTE_ARRAY, Some(LogicalType::String), REQUIRED),
        ("f", Physical::BYTE_ARRAY, None, REQUIRED),
        ("g", Physical::DOUBLE, None, REQUIRED),
        ("h", Physical::FLOAT, None, REQUIRED),
        ("i", Physical::BOOLEAN, None, REQUIRED),
        ("j", Physical::INT96, None, REQUIRED),
        ("decimal", Physical::INT32, Some(LogicalType::decimal(2, 9)), REQUIRED),
    ];
    file(&path, &columns, Compression::SNAPPY, 2, |number, column| {
        match number {
            0 => column.typed::<Int64Type>().write_batch(&[-1, 7], None, None),
            1 => column.typed::<Int32Type>().write_batch(&[-1, 7], None, None),
            2 => column.typed::<Int64Type>().write_batch(&[-5], Some(&[0, 1]), None),
            3 => column.typed::<Int64Type>().write_batch(&[1_172_163_603_061_629, 0], None, None),
            4 => column.typed::<ByteArrayType>().write_batch(
                &["é,\"x\"", " y"].map(ByteArray::from),
                None,
                None,
            ),
            5 => column.typed::<ByteArrayType>().write_batch(
                &[ByteArray::from(vec![0, 255]), ByteArray::from("k1")],
                None,
                None,
            ),
            6 => column.typed::<DoubleType>().write_batch(&[4096.0, f64::NAN], None, None),
            7 => column.typed::<FloatType>().write_batch(&[0.5, 1e10], None, None),
            8 => column.typed::<BoolType>().write_batch(&[true, false], None, None),
            9 => {
                let mut day = Int96::new();
                day.set_data(1_000_000_000, 0, 2_440_589);
                column.typed::<Int96Type>().write_batch(&[day, day], None, None)
            }
            _ => column.typed::<Int32Type>().write_batch(&[1234, -5], None, None),
        }
        .unwrap();
    });
    let rows = "18446744073709551615,4294967295,,2007-02-22T17:00:03.061629000,\"é,\"\"x\"\"\",00ff,4096,0.5,true,1970-01-02T00:00:01.000000000,12.34\n\
                7,7,-5,1970-01-01T00:00:00.000000000,\" y\",k1,,10000000000,false,1970-01-02T00:00:01.000000000,-0.05\n";
    assert_eq!(text(&path), format!("a,b,c,d,e,f,g,h,i,j,decimal\n{rows}{rows}"));
}

fn accesses() -> Vec<Access> {
    let access = |number: u64| Access {
        time_ns: number * 1_500_000_001,
        key: if number.is_multiple_of(7) { u64::MAX - number } else { number % 50 },
        size_bytes: 1 + number % 1000,
        ttl_seconds: number.is_multiple_of(3).then_some(number as u32),
        tenant: None,
        kind: [AccessKind::Get, AccessKind::Set, AccessKind::Get, AccessKind::Delete][number as usize % 4],
    };
    (0..20_000).map(access).collect()
}

#[test]
fn written_accesses_read_back_equal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.parquet");
    let mut writer = Writer::create(&path, Target::Parquet).unwrap();
    writer.write(&accesses()).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!((written.accesses, written.ttls_left_out), (20_000, 0));
    let (found, format) = read(std::slice::from_ref(&path), None).unwrap();
    assert_eq!(format, "parquet");
    // A delete has no size.
    let comparable = |access: &Access| {
        let size_bytes = if access.kind == AccessKind::Delete { 0 } else { access.size_bytes };
        Access { size_bytes, ..*access }
    };
    let plain = directory.path().join("out.csv");
    let mut writer = Writer::create(&plain, Target::Plain { ttl: true, tenant: false }).unwrap();
    writer.write(&accesses()).unwrap();
    writer.finish().unwrap();
    let (expected, _) = read(&[plain], None).unwrap();
    assert!(found.iter().map(comparable).eq(expected.iter().map(comparable)));
}

#[test]
fn columns_are_chosen_as_in_csv_and_errors_name_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.bin");
    let columns: [Column; 3] = [
        ("when", Physical::INT64, None, REQUIRED),
        ("what", Physical::BYTE_ARRAY, Some(LogicalType::String), REQUIRED),
        ("length", Physical::INT64, None, REQUIRED),
    ];
    file(&path, &columns, Compression::UNCOMPRESSED, 1, |number, column| {
        match number {
            0 => column.typed::<Int64Type>().write_batch(&[1, 2], None, None),
            1 => column.typed::<ByteArrayType>().write_batch(&["a", "b"].map(ByteArray::from), None, None),
            _ => column.typed::<Int64Type>().write_batch(&[10, -1], None, None),
        }
        .unwrap();
    });
    let of = |format: &str| read(std::slice::from_ref(&path), Some(format));
    let (found, format) = of("parquet:time=when,key=what,size=when").unwrap();
    assert_eq!((found.len(), found[1].size_bytes, format.as_str()), (2, 2, "parquet"));
    let error = of("parquet:key=what,size=lenght").unwrap_err();
    assert!(error.contains("t.bin: the table has no column `lenght`; did you mean `length`?"), "{error}");
    let error = of("parquet").unwrap_err();
    assert!(error.contains("t.bin: the header does not name the column of the key"), "{error}");
    let plain = directory.path().join("t.csv");
    std::fs::write(&plain, "key,size\n1,2\n").unwrap();
    let error = read(&[plain], Some("parquet")).unwrap_err();
    assert!(error.contains("t.csv: it is not a Parquet file"), "{error}");
}

/// A file by pyarrow 26 (`write_page_checksum=True`, no compression): time, key, size and ttl, the last two with nulls.
const WITH_CHECKSUMS: &[u8] = include_bytes!("checksums.parquet");

#[test]
fn nulls_are_absent_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    std::fs::write(&path, WITH_CHECKSUMS).unwrap();
    assert_eq!(text(&path), "time,key,size,ttl\n1,70001,100,\n2,70002,200,60\n3,70003,300,\n4,70004,,0\n");
    let (found, _) = read(std::slice::from_ref(&path), None).unwrap();
    let ttls: Vec<Option<u32>> = found.iter().map(|access| access.ttl_seconds).collect();
    assert_eq!(ttls, [None, Some(60), None], "the row without a size is left out, as in a table of text");
    assert_eq!(super::parquet_columns(&path).unwrap(), ["time", "key", "size", "ttl"]);
}

#[test]
fn line_break_in_a_text_key_is_an_error_with_file_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    for (logical, expected) in [(None, Ok("key,size\n610a62,10\n")), (Some(LogicalType::String), Err(()))] {
        let columns: [Column; 2] =
            [("key", Physical::BYTE_ARRAY, logical, REQUIRED), ("size", Physical::INT64, None, REQUIRED)];
        file(&path, &columns, Compression::UNCOMPRESSED, 1, |number, column| {
            match number {
                0 => column.typed::<ByteArrayType>().write_batch(&["a\nb"].map(ByteArray::from), None, None),
                _ => column.typed::<Int64Type>().write_batch(&[10], None, None),
            }
            .unwrap();
        });
        match expected {
            Ok(cells) => {
                assert_eq!(text(&path), cells, "bytes that are not printable are hexadecimal digits");
            }
            Err(()) => {
                let error = read(std::slice::from_ref(&path), None).unwrap_err();
                assert!(error.contains("t.parquet") && error.contains("column `key`"), "{error}");
            }
        }
    }
}

#[test]
fn truncated_file_is_an_error_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    for length in 4..WITH_CHECKSUMS.len() {
        std::fs::write(&path, &WITH_CHECKSUMS[..length]).unwrap();
        let error = read(std::slice::from_ref(&path), None).unwrap_err();
        assert!(error.contains("t.parquet"), "{length}: {error}");
    }
}

#[test]
fn flipped_byte_of_a_page_with_a_checksum_is_an_error_with_the_file_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let key = WITH_CHECKSUMS.windows(8).position(|bytes| bytes == 70002_u64.to_le_bytes()).unwrap();
    let mut bytes = WITH_CHECKSUMS.to_vec();
    bytes[key] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = read(std::slice::from_ref(&path), None).unwrap_err();
    assert!(["t.parquet", "column `key`", "checksum"].iter().all(|part| error.contains(part)), "{error}");
}

/// Small files with all compressions, and with the encodings that our and pyarrow's writers use.
fn samples() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let columns: [Column; 3] = [
        ("time", Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS)), REQUIRED),
        ("key", Physical::BYTE_ARRAY, Some(LogicalType::String), REQUIRED),
        ("size", Physical::INT32, None, OPTIONAL),
    ];
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
    ];
    let written = codecs.map(|compression| {
        file(&path, &columns, compression, 2, |number, column| {
            match number {
                0 => column.typed::<Int64Type>().write_batch(&[1, 2, 3, 4], None, None),
                1 => column.typed::<ByteArrayType>().write_batch(
                    &["a", "b", "a", "c"].map(ByteArray::from),
                    None,
                    None,
                ),
                _ => column.typed::<Int32Type>().write_batch(&[7, 8], Some(&[1, 0, 0, 1]), None),
            }
            .unwrap();
        });
        std::fs::read(&path).unwrap()
    });
    [WITH_CHECKSUMS.to_vec()].into_iter().chain(written).collect()
}

/// The decoder runs on the calling thread here, so that a panic fails the test.
fn decode(bytes: &[u8]) -> std::io::Result<usize> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut text = Vec::new();
    super::open(file, None)?.take(1 << 20).read_to_end(&mut text)
}

#[test]
fn every_compression_is_read() {
    for bytes in samples() {
        assert!(decode(&bytes).is_ok_and(|length| length > 50));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes_do_not_panic(
        sample in 0..5_usize,
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<usize>()),
    ) {
        let mut bytes = samples_once()[sample].clone();
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.remove(cut % bytes.len());
        }
        let _ = decode(&bytes);
    }
}

fn samples_once() -> &'static [Vec<u8>] {
    static SAMPLES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SAMPLES.get_or_init(samples)
}
