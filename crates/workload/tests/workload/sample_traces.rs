//! The shared sample traces match their manifest in every format.

use std::path::{Path, PathBuf};

use flashwright_workload::trace::{OpenOptions, PageSize, ReadReport, Survey, open};

/// Requests, objects, footprint.
type Counts = (u64, u64, u64);

fn survey(path: &Path, format: Option<&str>, options: &OpenOptions) -> (Survey, ReadReport) {
    let mut trace = open(&[path], format, options).unwrap();
    let (mut survey, mut batch) = (Survey::default(), Vec::new());
    while trace.next_batch(&mut batch).unwrap() {
        survey.add(&batch);
    }
    (survey, trace.report().clone())
}

fn paged(bytes: u64) -> OpenOptions {
    OpenOptions { page: Some(PageSize::Bytes(bytes)), ..OpenOptions::default() }
}

/// Surveys a trace of the folder; its format is detected unless named.
fn check(
    folder: &Path,
    name: &str,
    format: Option<&str>,
    expected_format: &str,
    options: &OpenOptions,
    counts: Counts,
) -> Survey {
    let (survey, report) = survey(&folder.join(name), format, options);
    assert_eq!(report.format, expected_format, "{name}");
    assert_eq!((report.bad_rows, report.zero_sizes, report.backward_times), (0, 0, 0), "{name}: {report:?}");
    assert_eq!((survey.requests(), survey.objects(), survey.footprint_bytes), counts, "{name}");
    survey
}

#[test]
fn key_value_and_web_traces_match_the_manifest() {
    let Some(folder) = shared() else { return };
    let auto = OpenOptions::default();
    let kv = "libcachesim/kv_twitter_c52_1m.csv.zst";
    let survey = check(&folder, kv, None, "plain", &auto, (1_000_000, 143_542, 29_227_218));
    assert_eq!((survey.size_changes, survey.span_ns()), (0, 509_000_000_000));
    let recs = "caffeine/kv_scarab_recs.csv.zst";
    check(&folder, recs, None, "plain", &auto, (1_245_184, 258_368, 264_568_832));
    let web = "caffeine/web_adaptsize.csv.zst";
    let survey = check(&folder, web, None, "plain", &auto, (66_987, 36_815, 278_854_232));
    assert_eq!(survey.size_changes, 5_799);
}

#[test]
fn prefix_block_traces_match_in_source_and_plain_format() {
    let Some(folder) = shared() else { return };
    let counts = (288_500, 182_790, 182_790 * 524_288);
    let auto = OpenOptions::default();
    check(&folder, "mooncake/llm_mooncake_conversation.csv.zst", None, "plain", &auto, counts);
    check(&folder, "mooncake/conversation_trace.jsonl.zst", None, "mooncake", &auto, counts);
}

#[test]
fn disk_trace_is_equal_in_three_formats() {
    let Some(folder) = shared() else { return };
    let counts = (113_872, 48_974, 2_029_769_728);
    let auto = OpenOptions::default();
    let plain = check(&folder, "libcachesim/block_cloudphysics_io.csv.zst", None, "plain", &auto, counts);
    let vscsi = check(&folder, "libcachesim/cloudPhysicsIO.vscsi.zst", None, "vscsi", &auto, counts);
    for survey in [&plain, &vscsi] {
        assert_eq!((survey.gets, survey.sets, survey.size_changes), (46_974, 66_898, 13_671));
    }
    assert_eq!(vscsi.span_ns() / 1_000_000_000, 7_200);
    // This format has no operations, and every request has the size of the object's first request.
    let oracle = "libcachesim/cloudPhysicsIO.oracleGeneral.bin.zst";
    let oracle = check(&folder, oracle, None, "oracle-general", &auto, counts);
    assert_eq!((oracle.gets, oracle.size_changes), (113_872, 0));
}

#[test]
fn database_recording_is_equal_in_two_formats() {
    let Some(folder) = shared() else { return };
    let counts = ["blkparse.txt", "blktrace.bin"].map(|form| {
        let path = folder.join(format!("block/local-mariadb-head20k.{form}.gz"));
        let (survey, report) = survey(&path, None, &OpenOptions::default());
        assert_eq!(report.format, form.split('.').next().unwrap());
        (survey.requests(), survey.objects(), survey.gets, survey.sets)
    });
    assert_eq!(counts[0], counts[1]);
    assert!(counts[0].0 > 1000, "{counts:?}");
    let (survey, report) =
        survey(&folder.join("block/local-mariadb-sysbench-Q.csv.gz"), None, &OpenOptions::default());
    assert_eq!((report.format, report.bad_rows), ("block-csv", 0));
    assert!(survey.objects() > 100);
}

#[test]
fn unknown_tables_of_numbers_are_not_detected() {
    let Some(folder) = shared() else { return };
    for name in ["reference_flash_designs.csv", "MANIFEST.md", "caffeine/orm-busy.trace.xz"] {
        let message = open(&[folder.join(name)], None, &OpenOptions::default()).err();
        let message = message.unwrap_or_else(|| panic!("{name} was detected as a trace")).to_string();
        assert!(message.contains("matches none of the formats"), "{message}");
    }
}

#[test]
fn drive_simulator_traces_are_detected_and_valid() {
    let Some(folder) = shared() else { return };
    for name in ["mqsim/tpcc-small.trace", "mqsim/wsrch-small.trace"] {
        let (survey, report) = survey(&folder.join(name), None, &OpenOptions::default());
        assert_eq!((report.format, report.bad_rows), ("mqsim", 0), "{name}");
        assert!(survey.requests() > report.rows && survey.gets > 0, "{name}: {report:?}");
    }
}

#[test]
fn block_lists_match_the_manifest() {
    let Some(folder) = shared() else { return };
    check(&folder, "arc/OLTP.lis.zst", None, "arc", &OpenOptions::default(), (914_145, 186_880, 765_460_480));
    check(&folder, "arc/P3.lis.zst", None, "arc", &paged(512), (3_912_296, 762_543, 390_422_016));
    for (name, requests, objects) in [
        ("2_pools", 100_000, 9_939),
        ("sprite", 133_996, 7_075),
        ("multi3", 30_241, 7_454),
        // The manifest counts the empty line at the end as a request.
        ("gli", 6_015, 2_529),
    ] {
        let path = format!("caffeine/{name}.trace.gz");
        check(&folder, &path, None, "lirs", &OpenOptions::default(), (requests, objects, objects * 4096));
    }
}

#[test]
fn binary_number_traces_match_the_manifest() {
    let Some(folder) = shared() else { return };
    for (name, format, requests, objects) in [
        ("web07.trace.xz", "u32be", 76_118, None),
        ("web12.trace.xz", "u32be", 95_607, None),
        ("trace_vaultservice.gz", "u64be", 135_702, Some(90_468)),
        ("orm-busy.trace.xz", "u32le", 5_000_000, Some(76_349)),
    ] {
        let (survey, _) = survey(&folder.join("caffeine").join(name), Some(format), &OpenOptions::default());
        assert_eq!(survey.requests(), requests, "{name}");
        assert_eq!(survey.objects(), objects.unwrap_or(survey.objects()), "{name}");
    }
}

#[test]
fn cachebench_samples_match_their_counts() {
    let Some(folder) = shared() else { return };
    let folder = folder.with_file_name("cachelib_test_configs").join("trace_replay");
    let kv = [1, 2].map(|number| folder.join(format!("kvcache/kv_traces_{number}.csv")));
    let mut trace = open(&kv, None, &OpenOptions::default()).unwrap();
    let (mut survey, mut batch) = (Survey::default(), Vec::new());
    while trace.next_batch(&mut batch).unwrap() {
        survey.add(&batch);
    }
    let report = trace.report();
    assert_eq!((report.format, report.rows, report.bad_rows), ("kvcache", 198, 0));
    let zero_sized = report.zero_sizes;
    assert!(zero_sized > 0, "recorded misses have no size");
    assert_eq!(survey.requests() + zero_sized, rows_times_count(&kv));

    let (_, report) =
        self::survey(&folder.join("block_chunk/block_traces_1.csv"), None, &OpenOptions::default());
    assert_eq!((report.format, report.rows, report.bad_rows), ("storage", 999, 0));
}

/// The sum of the column `op_count`.
fn rows_times_count(files: &[PathBuf]) -> u64 {
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let count = |line: &str| line.split(',').nth(4).unwrap().parse::<u64>().unwrap();
    texts.map(|text| text.lines().skip(1).map(count).sum::<u64>()).sum()
}

/// The folder of shared traces, if it exists: `FLASHWRIGHT_SHARED`, or `shared` beside a parent folder.
fn shared() -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(|folder| PathBuf::from(folder).join("traces"));
    let beside = || {
        let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        parents.map(|parent| parent.join("shared/traces")).find(|folder| folder.is_dir())
    };
    let found = named.or_else(beside).filter(|folder| folder.is_dir());
    if found.is_none() {
        println!("skipped: the sample traces are missing");
    }
    found
}
