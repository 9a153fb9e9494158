//! The names and lines of results are a stable interface; these tests fix them.
use crate::made;
use std::time::Duration;

use crate::made::{report, settings};
use cache::stats::{ChainStats, ClassStats, FlashStats, InsertStats, PutStats, SocStats, UpkeepStats};
use flashwright_bench::config::plan::ArrivalsPlan;
use flashwright_bench::report::interval::Previous;
use flashwright_bench::report::text::{self, TextOptions, results};
use flashwright_bench::report::{RunReport, json, totals};
use flashwright_bench::run::counts::Counts;
use flashwright_bench::run::latency::{Histogram, Latencies, Timed};
use flashwright_bench::run::listed_drives::DriveBytes;
use flashwright_bench::run::punctuality::Punctuality;
use flashwright_bench::run::stop::StopReason;
use flashwright_bench::run::target::{FlashDevice, Snapshot};
use flashwright_bench::run::{InstanceReport, Observable};

fn counts() -> Counts {
    Counts {
        ops: 3_200_000,
        gets: 480_592,
        get_misses: 427_871,
        get_hits_dram: 40_000,
        get_hits_flash: 12_721,
        sets: 2_559_176,
        deletes: 160_232,
        delete_misses: 142_878,
        ..Counts::default()
    }
}

fn snapshot() -> Snapshot {
    let mut reads = Histogram::default();
    (0..100).for_each(|_| reads.record(132_000));
    let soc =
        SocStats { stored_items: 1_000, lost_items: 3, removes: 11, evictions: 4_321, ..SocStats::default() };
    let puts = PutStats {
        offered: 2_000,
        stored: 1_900,
        clean: 88,
        overtaken: 12,
        stayed: 5,
        rejected_worn_out: 12,
        ..PutStats::default()
    };
    let mut flash = FlashStats { puts, soc: Some(soc), ..FlashStats::default() };
    (flash.written_logical_bytes, flash.device.written_bytes) = (1 << 30, 3 << 29);
    let class = ClassStats {
        items: 96_995,
        allocated_bytes: 2 << 20,
        allocation_attempts: 2_559_176,
        evictions: 2_163_672,
        ..ClassStats::default()
    };
    let device = FlashDevice { latency: Some((reads, Histogram::default())), ..FlashDevice::default() };
    let mut snapshot = made::with_flash(flash, device);
    let stats = &mut snapshot.stats;
    stats.pools = vec![made::pool(class)];
    stats.inserts =
        InsertStats { stored: 2_559_000, overtaken: 6, rejected_too_large: 170, ..InsertStats::default() };
    stats.chained = ChainStats { stored: 400, rejected_no_parent: 1, ..ChainStats::default() };
    stats.upkeep = UpkeepStats {
        slabs_released: 21,
        release_evictions: 3_027,
        release_evictions_failed: 13,
        ..UpkeepStats::default()
    };
    snapshot
}

fn instance() -> InstanceReport {
    let mut latencies = Latencies::default();
    latencies.record(Timed::GetDram, 255);
    InstanceReport {
        settings: settings(),
        seconds: 10.0,
        counts: counts(),
        latencies,
        timed_all: false,
        snapshot: snapshot(),
        largest_refused_bytes: 0,
        inconsistencies: Vec::new(),
        stopped: None,
        punctuality: None,
        warmup: None,
        trace: None,
        tenants: None,
        misses: None,
        destructors: None,
        stressor: None,
        sweeps: None,
        events: None,
    }
}

#[test]
fn text_results_have_the_lines_of_cachebench() {
    let text = results(&instance(), TextOptions::default());
    let expected = "\
== Test Results ==
== Allocator Stats ==
Items in RAM  : 96,995
Items in NVM  : 1,000
Alloc Attempts: 2,559,176 Success: 100.00%
Evict Attempts: 2,163,672 Success: 100.00%
RAM Evictions : 2,163,672
Fraction of pool 0 used : 0.50
Cache Gets    : 480,592
Hit Ratio     : 10.97%
";
    assert!(text.starts_with(expected), "{text}");
    for line in [
        "NVM bytes written (physical)  :   1.50 GB",
        "NVM bytes written (nand)      : unknown GB",
        "NVM app write amplification   :   1.50",
        "NVM dev write amplification   : unknown",
        "NVM Puts      : 2,000, Success   : 95.00%, Clean   : 4.40%, AbortsFromDel   : 7, AbortsFromGet   : 5",
        "NVM Deletes   : 11 Skipped Deletes: 0",
        "Released 21 slabs",
        "  Evictions : attempts:      3,040, success: 99.57%",
        "== Throughput Stats ==",
        "Total Ops : 3.20 million",
        "Total sets: 2,559,176",
        "get       :    48,059/s, success   :  10.97%",
        "set       :   255,917/s, success   : 100.00%",
        "del       :    16,023/s, found     :  10.83%",
    ] {
        assert!(text.lines().any(|it| it == line), "`{line}` is missing in:\n{text}");
    }
}

#[test]
fn text_results_have_latency_in_the_sixth_word() {
    let text = results(&instance(), TextOptions::default());
    let sixth = |label: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(label));
        lines.map(|line| line.split_whitespace().nth(5).unwrap().to_owned()).collect()
    };
    let reads = sixth("NVM Read  Latency");
    assert_eq!(reads.len(), 8);
    assert!(reads.iter().all(|it| (131.0..133.0).contains(&it.parse::<f64>().unwrap())), "{reads:?}");
    assert_eq!(sixth("NVM Write Latency"), vec!["unknown"; 8]);
}

#[test]
fn json_result_has_documented_names() {
    let result = json::render(&report(instance()));
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let top = [
        "flashwright",
        "command",
        "config",
        "environment",
        "seed",
        "world",
        "drive",
        "instances",
        "totals",
        "intervals",
        "steady",
        "verdict",
    ];
    assert_eq!(names(&result), top);
    let figures = [
        "ops",
        "seconds",
        "throughput_ops_per_second",
        "hit_ratio",
        "hit_ratio_dram",
        "hit_ratio_flash",
        "gets",
        "sets",
        "deletes",
        "items_dram",
        "items_flash",
        "alloc_attempts",
        "evictions_dram",
        "flash_bytes_logical",
        "flash_bytes_host",
        "flash_bytes_media",
        "alwa",
        "dlwa",
        "gc_relocated_bytes",
        "inconsistencies",
        "io_errors",
        "checksum_errors",
        "latency_ns",
        "warnings",
    ];
    for part in [&result["instances"][0], &result["totals"]] {
        for name in figures {
            assert!(part.get(name).is_some(), "{name} is missing");
        }
        assert_eq!(part["flash_bytes_media"], serde_json::Value::Null);
        assert_eq!(part["dlwa"], serde_json::Value::Null);
        assert_eq!(part["alwa"], 1.5);
        let hit_ratio = part["hit_ratio"].as_f64().unwrap();
        assert!((0.109..0.110).contains(&hit_ratio), "a ratio is 0 to 1, not percent: {hit_ratio}");
        let get = &part["latency_ns"]["cache"]["get"];
        assert_eq!(names(get), ["count", "mean", "p50", "p90", "p99", "p999", "p9999", "max"]);
    }
}

const TOO_LARGE: &str = "Warning: 170 of 2,559,176 inserts into DRAM (less than 0.01 %) were refused as too large for a chunk of DRAM, which \
                         has at most 4 MiB: raise allocSizes if it is set, otherwise maxAllocSize, or cacheSizeMB if it is small\n";

/// The verdict, without the warning that all these instances have.
fn verdict(report: &RunReport) -> String {
    let text = text::verdict(report);
    let others = text.split_inclusive('\n').filter(|line| !line.contains("refused as too large"));
    others.collect()
}

#[test]
fn verdict_warns_of_items_refused_as_too_large() {
    assert_eq!(text::verdict(&report(instance())), format!("{TOO_LARGE}Finished!\n"));
}

#[test]
fn verdict_lists_failures_and_fails() {
    assert!(verdict(&report(instance())).ends_with("Finished!\n"));
    let mut bad = instance();
    bad.counts.inconsistencies = 3;
    bad.snapshot.stats.flash.as_mut().unwrap().soc.as_mut().unwrap().checksum_errors = 2;
    let bad = report(bad);
    assert!(!bad.passed());
    assert_eq!(verdict(&bad), "Found 3 inconsistent cases\nNVM error. checksum_errors : 2\nFailed.\n");
}

#[test]
fn verdict_has_first_io_error() {
    let mut bad = instance();
    bad.snapshot.stats.flash.as_mut().unwrap().device.errors = 2;
    bad.snapshot.device.as_mut().unwrap().first_error =
        Some("writing 4096 bytes at 0 of flash: No space left on device".into());
    let (good, mut several) = (instance(), report(bad.clone()));
    let first = "first error: writing 4096 bytes at 0 of flash: No space left on device";
    assert_eq!(verdict(&several), format!("NVM error. io_errors : 2; {first}\nFailed.\n"));
    let text = "writing 4096 bytes at 0 of flash: No space left on device";
    assert_eq!(json::render(&several)["instances"][0]["flash_first_io_error"], text);
    several.instances = vec![good, bad];
    assert_eq!(verdict(&several), format!("Instance 1: NVM error. io_errors : 2; {first}\nFailed.\n"));
    assert_eq!(json::render(&several)["totals"]["flash_first_io_error"], text);
}

#[test]
fn verdict_reports_early_end() {
    let mut early = instance();
    early.stopped = Some(StopReason::Timeout);
    early.counts.ops = 1_000;
    assert_eq!(
        verdict(&report(early)),
        "Ended early, time limit reached: 1,000 of 3,200,000 operations\nFinished!\n"
    );
}

#[test]
fn totals_add_up_instances() {
    let both = totals(&[instance(), instance()]);
    assert_eq!(both.counts.ops, 6_400_000);
    assert_eq!(both.snapshot.stats.dram_total().items, 2 * 96_995);
    assert!((both.seconds - 10.0).abs() < 1e-9, "they ran concurrently");
    assert_eq!(both.snapshot.stats.flash.unwrap().device.media_written_bytes, None);
}

/// Drives by path, with their media bytes and whether other instances list them.
#[test]
fn drive_listed_by_several_instances_counts_once_in_totals() {
    let listing = |drives: &[(&str, Option<u64>)]| {
        let mut report = instance();
        let listed = |(path, media_bytes): &(&str, Option<u64>)| DriveBytes {
            path: path.into(),
            media_bytes: *media_bytes,
            is_shared: true,
        };
        report.snapshot.device.as_mut().unwrap().listed_drives = drives.iter().map(listed).collect();
        report
    };
    let reporting = |media_bytes| {
        let mut report = instance();
        report.snapshot.stats.flash.as_mut().unwrap().device.media_written_bytes = media_bytes;
        report
    };
    let media =
        |reports: &[InstanceReport]| totals(reports).snapshot.stats.flash.unwrap().device.media_written_bytes;
    let (both, one) = (listing(&[("a", Some(7)), ("b", Some(20))]), listing(&[("a", Some(7))]));
    assert!(both.snapshot.device.as_ref().unwrap().listed_drives[0].of_this_instance().is_none());
    assert_eq!(media(&[both.clone(), one.clone(), both.clone()]), Some(27));
    assert_eq!(media(&[both, listing(&[("c", None)])]), None, "the sum is unknown if one drive is unknown");
    assert_eq!(media(&[one, reporting(Some(5))]), None, "it may be the same drive");
    assert_eq!(media(&[reporting(Some(5)), reporting(Some(6))]), Some(11));
}

#[test]
fn text_and_json_list_outcomes_of_inserts_and_flash_writes() {
    let expected = "
== How Inserts Ended ==
RAM inserts   : 2,559,000 stored, 6 dropped: overtaken, 170 rejected: too large
RAM chained   : 400 stored, 1 rejected: no parent
NVM inserts   : 1,900 stored, 88 clean, 12 dropped: overtaken, 12 rejected: worn out
NVM lost items: 3, to failed writes or damage
";
    let text = results(&instance(), TextOptions::default());
    assert!(text.contains(expected), "{text}");
    let rendered = json::render(&report(instance()));
    assert_eq!(rendered["totals"]["insert_ends"]["present"], 0);
    assert_eq!(rendered["totals"]["chain_ends"]["rejected_no_parent"], 1);
    assert_eq!(rendered["totals"]["flash_put_ends"]["rejected_worn_out"], 12);
    assert_eq!(rendered["totals"]["flash_items_lost"], 3);

    let both = totals(&[instance(), instance(), instance()]);
    assert_eq!(both.snapshot.stats.flash.unwrap().puts.rejected_worn_out, 36);
    assert_eq!(both.snapshot.stats.inserts.rejected_too_large, 510);
}

struct Frozen(Counts);

impl Observable for Frozen {
    fn counts(&self) -> Counts {
        self.0
    }
    fn latencies(&self) -> Latencies {
        Latencies::default()
    }
    fn snapshot(&self) -> Snapshot {
        snapshot()
    }
    fn total_ops(&self) -> u64 {
        10_000_000
    }
    fn set_rate(&self, _ops_per_second: u64) {}
}

#[test]
fn progress_line_has_total_counts_and_interval_ratios() {
    let mut last = Previous::default();
    last.advance(&Frozen(counts()));
    let mut later = counts();
    later.ops += 800_000;
    later.gets += 100;
    later.get_hits_dram += 75;
    later.get_misses += 25;
    let interval = last.advance(&Frozen(later));
    let line = interval.progress_line(3, 12 * 3600 + 7 * 60 + 12, 2.0);
    assert_eq!(
        line,
        "Instance   3: 12:07:12       4.00M ops completed. 96,995 items in cache. 1,000 items in nvm cache. 4,321 items \
         evicted from nvm cache. Hit Ratio  75.00% (RAM  75.00%, NVM   0.00%). 400,000 ops/s, 0.0 MB/s written to nvm."
    );
    let block = interval.block(&line, Duration::from_secs(1).as_secs_f64());
    assert!(
        block.contains("== Hit Ratio Stats Since Last ==\nCache Gets    : 100\nHit Ratio     : 75.00%\n"),
        "{block}"
    );
}

#[test]
fn offered_rate_of_totals_is_the_sum_of_instances() {
    let open = |arrivals| {
        let mut report = instance();
        report.settings.arrivals = arrivals;
        report.punctuality = Some(Punctuality::default());
        report
    };
    let offered = |reports: &[InstanceReport]| {
        let all = RunReport { instances: reports.to_vec(), ..report(instance()) };
        json::render(&all)["totals"]["arrivals"]["offered_ops_per_second"].clone()
    };
    let (even, random) =
        (ArrivalsPlan::Uniform { per_second: 1000 }, ArrivalsPlan::Poisson { per_second: 300 });
    assert_eq!(offered(&[open(even), open(even), open(even)]), 3000.0);
    assert_eq!(offered(&[open(random), open(random)]), 600.0);
    // Instances with different kinds of arrivals have no common rate.
    for pair in [[open(even), instance()], [instance(), open(even)], [open(even), open(random)]] {
        assert!(offered(&pair).is_null());
    }
}
