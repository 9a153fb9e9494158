//! Traces as accesses and as cache requests, in every format, named or detected, plain or compressed.
//!
//! The first byte selects the format, the second the options; the rest is the file.

use std::io::Write;

use workload::Workload;
use workload::trace::{
    Access, AccessKind, Amplify, FORMATS, OnBadRow, OpenOptions, PageSize, Replay, ReplayConfig, Target,
    TraceError, Writer, ZeroSize, open,
};

use crate::scratch::Scratch;

/// Limit of accesses per input, because a row can request a million pages.
const ENOUGH: u64 = 20_000;
/// Accesses per batch: a reader's memory must not grow with the values of a row.
const LARGEST_BATCH: usize = 4096;

/// Table formats whose columns come from the header or from the command line.
const TABLES: [&str; 4] =
    ["csv", "csv:key", "csv:time,key,-,size,op", "csv:key=1,size=a,op=2,ttl=3,tenant=1,count=3"];

/// Reads a trace; the requests written as a plain trace must read back equal.
pub fn check(data: &[u8]) {
    let Some((&[choice, how], bytes)) = data.split_first_chunk::<2>() else { return };
    // Beyond the registered formats, test detection, which only has the content and the file extension.
    let format = FORMATS.get(usize::from(choice)).map(|format| match format.name {
        "csv" => TABLES[usize::from(how >> 3) % TABLES.len()],
        name => name,
    });
    let ending = match format {
        None => FORMATS[usize::from(choice) % FORMATS.len()].extensions.first().copied().unwrap_or("txt"),
        Some(_) => "txt",
    };
    if is_parquet(bytes) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.file(&format!("trace.{ending}"), &packed(bytes, how >> 5));
    let mut options = options(how);
    let mut result = read(&[&path], format, &options);
    if matches!(result, Err(TraceError::FixedTimeUnits { .. })) {
        options.time_units_per_second = None;
        result = read(&[&path], format, &options);
    }
    match result {
        // A copy whose times decrease is read with the later times.
        Ok(accesses) if accesses.is_sorted_by_key(|it| it.time_ns) => round_trip(&scratch, &accesses),
        Ok(_) => {}
        Err(error) => assert!(error.to_string().contains("trace."), "no file in: {error}"),
    }
}

fn options(how: u8) -> OpenOptions {
    let page = [None, Some(PageSize::Bytes(1)), Some(PageSize::Bytes(4096)), Some(PageSize::Whole)];
    OpenOptions {
        page: page[usize::from(how & 3)],
        on_bad_row: if how & 4 == 0 { OnBadRow::Skip } else { OnBadRow::Stop },
        zero_size: if how & 8 == 0 { ZeroSize::Skip } else { ZeroSize::Keep },
        time_units_per_second: (how & 16 != 0).then_some(1_000_000_000),
        limit: Some(ENOUGH),
        ..OpenOptions::default()
    }
}

/// Usually unchanged; otherwise compressed, so that readers of compressed data see many blocks.
fn packed(bytes: &[u8], how: u8) -> Vec<u8> {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (front, back) = bytes.split_at(bytes.len() / 2);
    match how {
        5 => [gzip(front), gzip(back)].concat(),
        6 => [zstd::encode_all(front, 1).unwrap(), zstd::encode_all(back, 1).unwrap()].concat(),
        _ => bytes.to_vec(),
    }
}

fn read(
    paths: &[&std::path::PathBuf],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Vec<Access>, TraceError> {
    let mut trace = open(paths, format, options)?;
    let (mut batch, mut all) = (Vec::new(), Vec::<Access>::new());
    while trace.next_batch(&mut batch)? {
        assert!(!batch.is_empty() && batch.len() <= LARGEST_BATCH);
        for access in &batch {
            let may_be_empty = access.kind == AccessKind::Delete || options.zero_size == ZeroSize::Keep;
            assert!(access.size_bytes > 0 || may_be_empty, "{access:?}");
            all.push(*access);
        }
    }
    let report = trace.report();
    assert_eq!(report.accesses, all.len() as u64);
    // Accesses before the first timestamp have their numbers as times.
    let (untimed, timed) = all.split_at(report.untimed as usize);
    assert!(
        [untimed, timed].iter().all(|part| part.is_sorted_by_key(|it| it.time_ns)),
        "times do not decrease"
    );
    let zero_sizes = if options.zero_size == ZeroSize::Keep { 0 } else { report.zero_sizes };
    let troubles = report.bad_rows + zero_sizes + report.backward_times;
    // The note about a page size without effect belongs to no row.
    let reported =
        report.messages.iter().filter(|message| !message.starts_with("a page size")).count() as u64;
    assert!(reported <= troubles && (troubles == 0 || reported > 0));
    assert!(options.on_bad_row == OnBadRow::Skip || report.bad_rows == 0);
    Ok(all)
}

/// A written trace must read back equal.
fn round_trip(scratch: &Scratch, accesses: &[Access]) {
    let path = scratch.path("copy.csv");
    let mut writer = Writer::create(&path, Target::Plain { ttl: true, tenant: false }).unwrap();
    writer.write(accesses).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!((written.accesses, written.ttls_left_out), (accesses.len() as u64, 0));
    let options =
        OpenOptions { zero_size: ZeroSize::Keep, on_bad_row: OnBadRow::Stop, ..OpenOptions::default() };
    let back = read(&[&path], Some("plain"), &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(back, accesses);
}

/// The Parquet library panics for some damaged files. The reader reports these as damaged, but a fuzzer ends at any panic.
fn is_parquet(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PAR1")
}

/// Replays the trace to two workers with amplification: no key is empty, and the counts add up.
pub fn check_replay(data: &[u8]) {
    let Some((&[choice, how], bytes)) = data.split_first_chunk::<2>() else { return };
    if is_parquet(bytes) {
        return;
    }
    let format = FORMATS[usize::from(choice) % FORMATS.len()];
    let scratch = Scratch::new();
    let path = scratch.file("trace.txt", &packed(bytes, how >> 5));
    let replay = Replay::new(ReplayConfig {
        amplify: Amplify { copies: 1 + u32::from(how & 3), ..Amplify::default() },
        skip_rows: u64::from(how & 4),
        repeat: how & 8 != 0,
        ignore_op_count: how & 16 != 0,
        ..ReplayConfig::new(vec![path], format)
    });
    let mut sources = replay.sources(1, 0).unwrap();
    for _ in 0..2000 {
        let Some(request) = sources[0].next() else { return };
        assert!(request.repeat > 0);
    }
}
