//! Tests of opening, running and closing a session.
use std::path::Path;

use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::{Config, Loaded, Override};
use flashwright_bench::run::Watcher;
use flashwright_bench::session::{Session, SessionError, SessionOptions};

struct NoWatcher;
impl Watcher for NoWatcher {}

fn config(folder: &Path) -> Config {
    let text = format!(
        r#"{{ "cache_config": {{ "cacheSizeMB": 4, "nvmCacheSizeMB": 16, "navyRegionSizeMB": 1,
          "nvmCachePaths": [{:?}], "cacheDir": {:?} }},
        "test_config": {{ "generator": "replay", "traceFileName": "trace.csv", "enableLookaside": true, "numOps": 300,
          "numThreads": 1 }} }}"#,
        folder.join("flash"),
        folder.join("state"),
    );
    match load_text(&folder.join("run.json"), &text, &[]) {
        Ok(Loaded::Config(config)) => *config,
        _ => panic!("bad config"),
    }
}

fn open(config: &Config) -> Session {
    Session::open(config, SessionOptions::default()).unwrap()
}

/// A persistent cache that is opened but not closed is empty at the next start.
#[test]
fn run_that_fails_to_start_keeps_persistent_cache() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.csv");
    let rows: String = (0..300).map(|row| format!("key{row},GET,3000,1\n")).collect();
    let write = || std::fs::write(&trace, format!("key,op,size,op_count\n{rows}")).unwrap();
    write();
    let config = config(folder.path());
    let gets = || open(&config).run(&config, &mut NoWatcher).map(|report| report.instances[0].counts);
    let first = gets().unwrap();
    assert_eq!((first.gets, first.get_misses), (300, 300));
    let session = open(&config);
    std::fs::remove_file(&trace).unwrap();
    assert!(matches!(session.run(&config, &mut NoWatcher), Err(SessionError::Run(_))));
    write();
    let again = gets().unwrap();
    assert!(again.get_misses < 10, "{} of 300 were lost", again.get_misses);
}

/// Rounding up to whole blocks must not overflow to 0.
#[test]
fn max_write_size_of_u32_max_can_run() {
    let text = r#"{ "cache_config": { "cacheSizeMB": 4, "nvmCacheSizeMB": 16, "navyRegionSizeMB": 1, "deviceMaxWriteSize": 4294967295 },
        "test_config": { "generator": "online", "numOps": 10, "numThreads": 1, "numKeys": 100, "keySizeRange": [8, 16],
          "keySizeRangeProbability": [1.0], "valSizeRange": [1, 100], "valSizeRangeProbability": [1.0], "setRatio": 1.0 } }"#;
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), text, &[]) else { panic!("bad config") };
    assert_eq!(open(&config).run(&config, &mut NoWatcher).unwrap().instances[0].counts.ops, 10);
}

/// Writes in flight at the start and end of the measurement are counted by the drive before the caches count them.
#[test]
fn model_drive_media_bytes_are_at_least_host_bytes() {
    let text = r#"{ "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 200, "navyBlockSize": 4096, "navyBigHashSizePct": 6,
          "navyRegionSizeMB": 8, "navySmallItemMaxSize": 900, "deviceEnableFDP": true },
        "test_config": { "generator": "online", "numOps": 20000, "numThreads": 8, "numKeys": 600000, "enableLookaside": true,
          "warmupFlashWriteMB": 50, "keySizeRange": [16, 30], "keySizeRangeProbability": [1.0], "valSizeRange": [50, 800, 4000, 9000],
          "valSizeRangeProbability": [0.7, 0.0, 0.3], "getRatio": 0.5, "setRatio": 0.5 } }"#;
    let device = ["sim:test".parse().map(Override::Device).unwrap()];
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), text, &device) else {
        panic!("bad config")
    };
    for seed in 3..6 {
        let session = Session::open(&config, SessionOptions { seed, ..SessionOptions::default() }).unwrap();
        let report = session.run(&config, &mut NoWatcher).unwrap();
        let drive = report.drive.as_ref().unwrap();
        assert!(
            report.instances[0].warmup.as_ref().is_some_and(|it| it.ended),
            "{:?}",
            report.instances[0].counts
        );
        for flash in [report.totals().snapshot.stats.flash, report.instances[0].snapshot.stats.flash.clone()]
        {
            let device = flash.unwrap().device;
            assert_eq!(
                (device.written_bytes, device.media_written_bytes),
                (drive.host_bytes(), Some(drive.media_bytes()))
            );
            assert!(drive.media_bytes() >= drive.host_bytes());
        }
        for span in report.series.spans() {
            let device = span.flash.unwrap().device;
            let media_bytes = device.media_written_bytes.unwrap();
            assert!(
                media_bytes >= device.written_bytes,
                "seed {seed}: {device:?} until {} s",
                span.until_seconds
            );
        }
    }
}
