//! Traces converted to other formats and read back.

use std::collections::HashMap;
use std::path::Path;

use flashwright_workload::trace::{
    Access, AccessKind, OpenOptions, Target, WriteError, Writer, Written, ZeroSize, open,
};
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn write(path: &Path, target: Target, accesses: &[Access]) -> Result<Written, WriteError> {
    let mut writer = Writer::create(path, target)?;
    for some in accesses.chunks(7) {
        writer.write(some)?;
    }
    writer.finish()
}

fn read(path: &Path, format: &str) -> Vec<Access> {
    let options = OpenOptions { zero_size: ZeroSize::Keep, ..OpenOptions::default() };
    let mut trace = open(&[path], Some(format), &options).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).unwrap() {
        all.extend_from_slice(&batch);
    }
    assert_eq!(trace.report().messages, Vec::<String>::new());
    all
}

/// Accesses in order of time, with few keys.
fn accesses() -> impl Strategy<Value = Vec<Access>> {
    let kind = prop_oneof![Just(AccessKind::Get), Just(AccessKind::Set), Just(AccessKind::Delete)];
    let key = prop_oneof![0..5u64, any::<u64>()];
    let one = (0..3 * SECOND_NS, key, any::<u32>(), proptest::option::of(1..u32::MAX), kind);
    proptest::collection::vec(one, 0..60).prop_map(|all| {
        let mut time_ns = 0;
        let access = |(step_ns, key, size, ttl_seconds, kind)| {
            time_ns += step_ns;
            Access { time_ns, key, size_bytes: u64::from(size), ttl_seconds, tenant: None, kind }
        };
        all.into_iter().map(access).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn plain_trace_keeps_all_fields(accesses in accesses()) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.csv", "t.csv.gz", "t.csv.zst", "t.csv.xz"] {
            let path = folder.path().join(name);
            let written = write(&path, Target::Plain { ttl: true, tenant: false }, &accesses).unwrap();
            prop_assert_eq!(written, Written { accesses: accesses.len() as u64, ..Written::default() });
            prop_assert_eq!(&read(&path, "plain"), &accesses);
            let head = std::fs::read(&path).unwrap();
            prop_assert_eq!(head.starts_with(b"ts,"), name == "t.csv", "{} is compressed", name);
        }
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "no other file is left");
    }

    #[test]
    fn oracle_general_stores_gets_seconds_and_next_accesses(accesses in accesses()) {
        let folder = tempfile::tempdir().unwrap();
        let kept: Vec<Access> =
            accesses.iter().filter(|access| access.kind != AccessKind::Delete).copied().collect();
        for name in ["t.bin", "t.bin.zst"] {
            let path = folder.path().join(name);
            let written = write(&path, Target::OracleGeneral, &accesses).unwrap();
            let count = |of: fn(&Access) -> bool| kept.iter().filter(|access| of(access)).count() as u64;
            prop_assert_eq!(written, Written {
                accesses: kept.len() as u64,
                deletes_left_out: (accesses.len() - kept.len()) as u64,
                sets_as_gets: count(|access| access.kind == AccessKind::Set),
                ttls_left_out: count(|access| access.ttl_seconds.is_some()),
                tenants_left_out: 0,
                times_cut: count(|access| access.time_ns % SECOND_NS != 0),
                seconds_taken_off: 0,
            });
            let expected: Vec<Access> = kept.iter().map(|access| Access {
                time_ns: access.time_ns / SECOND_NS * SECOND_NS,
                ttl_seconds: None,
                tenant: None,
                kind: AccessKind::Get,
                ..*access
            }).collect();
            prop_assert_eq!(read(&path, "oracle-general"), expected);
        }
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no other file is left");
        let bytes = std::fs::read(folder.path().join("t.bin")).unwrap();
        let next = |record: &[u8]| i64::from_le_bytes(record[16..].try_into().unwrap());
        let mut last = HashMap::new();
        let mut expected = vec![-1; kept.len()];
        for (index, access) in kept.iter().enumerate() {
            if let Some(before) = last.insert(access.key, index) {
                expected[before] = index as i64 + 1;
            }
        }
        prop_assert_eq!(bytes.chunks(24).map(next).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn webcachesim_stores_gets_and_seconds(accesses in accesses()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tr");
        let written = write(&path, Target::Webcachesim, &accesses).unwrap();
        let back = read(&path, "webcachesim");
        prop_assert_eq!(written.accesses, back.len() as u64);
        let kept = accesses.iter().filter(|access| access.kind != AccessKind::Delete);
        let fields = |access: &Access| (access.time_ns / SECOND_NS, access.key, access.size_bytes);
        prop_assert_eq!(back.iter().map(fields).collect::<Vec<_>>(), kept.map(fields).collect::<Vec<_>>());
    }
}

fn get(time_ns: u64, size_bytes: u64) -> Access {
    Access { time_ns, key: 1, size_bytes, ttl_seconds: None, tenant: None, kind: AccessKind::Get }
}

#[test]
fn value_that_does_not_fit_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin.zst");
    let message = write(&path, Target::OracleGeneral, &[get(0, 1), get(0, 1 << 32)]).unwrap_err().to_string();
    assert_eq!(message, "access 2: size 4294967296 does not fit into the 32 bits of oracle-general");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn clock_that_does_not_fit_starts_at_zero() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin");
    let begin = 12_816_637_200 * SECOND_NS;
    let written =
        write(&path, Target::OracleGeneral, &[get(begin, 1), get(begin + 5 * SECOND_NS, 1)]).unwrap();
    assert_eq!(written.seconds_taken_off, 12_816_637_200);
    assert_eq!(read(&path, "oracle-general")[1].time_ns, 5 * SECOND_NS);
}

#[test]
fn old_file_stays_until_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, "old").unwrap();
    let mut writer = Writer::create(&path, Target::PLAIN).unwrap();
    writer.write(&[get(1_500_000_000, 7)]).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    writer.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "ts,key,op,size\n1.5,1,GET,7\n");
    let message = Writer::create(&folder.path().join("no/such/t.csv"), Target::PLAIN);
    assert!(message.err().unwrap().to_string().contains("no/such/t.csv"));
}
