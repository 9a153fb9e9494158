//! Steadiness of a run, with constructed intervals.
use crate::made;
use cache::stats::{FlashStats, RegionStats};
use flashwright_bench::report::series::{Moment, Series};
use flashwright_bench::report::tails::Tails;
use flashwright_bench::report::{RunReport, Steadiness};
use flashwright_bench::run::InstanceReport;
use flashwright_bench::run::counts::Counts;
use flashwright_bench::run::target::{FlashDevice, Snapshot};
use flashwright_bench::run::warmup::Warmup;
use serde_json::json;

/// Counters of a second. Bytes of items are the same in each second.
#[derive(Clone, Copy)]
struct Second {
    ops: u64,
    gets: u64,
    hits: u64,
    host_bytes: u64,
}

const USUAL: Second = Second { ops: 1000, gets: 1000, hits: 500, host_bytes: 200 };

/// A warm-up of 10 seconds and a measurement of 20. The first 20 seconds vary; from second 20 on, the counters follow `second`,
/// in five parts of two seconds each. Seconds in `unseen` have no observation.
fn run(second: impl Fn(u32) -> Second, unseen: &[u32], has_flash: bool) -> RunReport {
    let (mut series, mut counts, mut host, mut media) = (Series::default(), Counts::default(), 0, 0);
    for number in 0..30 {
        let wild = Second { ops: 10, gets: 10, hits: u64::from(number) % 10, host_bytes: 9000 };
        let it = if number < 20 { wild } else { second(number) };
        counts.ops += it.ops;
        counts.gets += it.gets;
        counts.get_misses += it.gets - it.hits;
        host += it.host_bytes;
        media += it.host_bytes * 3 / 2;
        let regions = RegionStats {
            waiting_bytes: if number % 2 == 0 { 30 } else { 0 },
            settled_bytes: 100 * (u64::from(number) + 1),
            settled_written_bytes: host,
            ..RegionStats::default()
        };
        let mut flash = FlashStats { regions: Some(regions), ..FlashStats::default() };
        flash.puts.logical_bytes = 100 * (u64::from(number) + 1);
        (flash.device.written_bytes, flash.device.media_written_bytes) = (host, Some(media));
        let moment = Moment { seconds: f64::from(number) + 1.0, counts, flash: has_flash.then_some(flash) };
        if !unseen.contains(&number) {
            series.add(moment, &Tails::default());
        }
    }
    let warmup = Warmup { ended: true, seconds: 10.0, ..Warmup::default() };
    let report = made::report(instance(20.0, Some(warmup), Snapshot::default()));
    RunReport { series, ..report }
}

fn instance(seconds: f64, warmup: Option<Warmup>, snapshot: Snapshot) -> InstanceReport {
    InstanceReport { warmup, snapshot, ..made::instance(seconds) }
}

/// Whether a figure is steady, and its first and last value.
type Judged = Option<(bool, f64, f64)>;

fn judged(report: &RunReport) -> [(&'static str, Judged); 4] {
    let figures = Steadiness::of(report).figures;
    figures.map(|(name, it)| (name, it.map(|it| (it.steady, it.first, it.last))))
}

#[test]
fn steadiness_judges_last_half_in_five_parts() {
    let report = run(|number| if number < 28 { USUAL } else { Second { hits: 700, ..USUAL } }, &[], true);
    let steadiness = Steadiness::of(&report);
    assert_eq!((steadiness.from_seconds, steadiness.part_seconds), (20.0, 2.0));
    assert_eq!(
        judged(&report),
        [
            ("hit_ratio", Some((false, 0.5, 0.7))),
            ("throughput_ops_per_second", Some((true, 1000.0, 1000.0))),
            ("alwa", Some((true, 2.0, 2.0))),
            ("dlwa", Some((true, 1.5, 1.5))),
        ]
    );
    let result = steadiness.to_json(Some(true));
    assert_eq!((&result["from_seconds"], &result["part_seconds"]), (&json!(20.0), &json!(2.0)));
    assert_eq!((&result["parts"], &result["flash_filled"]), (&json!(5), &json!(true)));
    assert_eq!(result["hit_ratio"], json!({ "steady": false, "first": 0.5, "last": 0.7 }));
}

#[test]
fn figure_unknown_in_a_part_is_not_judged() {
    let unknown = |report: &RunReport| -> Vec<&str> {
        judged(report).into_iter().filter(|(_, it)| it.is_none()).map(|(name, _)| name).collect()
    };
    assert_eq!(unknown(&run(|_| USUAL, &[], false)), ["alwa", "dlwa"], "there is no flash");
    let idle =
        |number: u32| if number < 28 { USUAL } else { Second { gets: 0, hits: 0, host_bytes: 0, ..USUAL } };
    assert_eq!(unknown(&run(idle, &[], true)), ["hit_ratio", "dlwa"], "a part had no gets and no writes");
    let all = ["hit_ratio", "throughput_ops_per_second", "alwa", "dlwa"];
    assert_eq!(unknown(&run(|_| USUAL, &[24], true)), all, "nine observations are too few for five parts");
    assert!(unknown(&run(|_| USUAL, &[14], true)).is_empty(), "earlier gaps do not matter");
}

#[test]
fn remark_describes_change_of_each_figure() {
    let remark = |second: fn(u32) -> Second| Steadiness::of(&run(second, &[], true)).remark();
    assert_eq!(remark(|_| USUAL), None);
    assert_eq!(
        remark(|_| Second { gets: 1000, hits: 0, host_bytes: 0, ops: 1000 }),
        None,
        "constant zeros are steady"
    );
    let text =
        |figure: &str| Some(format!("Not steady from 20.0 s to the end at 30.0 s: {figure}. Run longer"));
    let slower = |number| Second { ops: 3000 - 100 * u64::from(number - number % 2 - 20), ..USUAL };
    assert_eq!(remark(slower), text("throughput was falling (3000 to 2200 ops/s)"));
    let wavy = |number| Second { host_bytes: if (24..28).contains(&number) { 300 } else { 200 }, ..USUAL };
    assert_eq!(remark(wavy), text("alwa fluctuated (2.00 to 2.00)"));
}

#[test]
fn remark_on_flash_not_filled_includes_warm_up_writes() {
    const GIB: u64 = 1 << 30;
    let snapshot = |written_bytes: u64, recovered: bool, device: Option<FlashDevice>| {
        let mut flash = FlashStats { recovered, ..FlashStats::default() };
        flash.device.written_bytes = written_bytes;
        Snapshot { device, ..made::with_flash(flash, FlashDevice::default()) }
    };
    let remarks = |snapshot| {
        let warmup = Warmup { ended: true, seconds: 1.0, flash_bytes: GIB, ..Warmup::default() };
        made::report(instance(1.0, Some(warmup), snapshot)).remarks()
    };
    let device = || Some(FlashDevice { capacity_bytes: 4 * GIB, ..FlashDevice::default() });
    let text = "Flash was not filled once (2.00 of 4.00 GiB, 50%): its write amplification is not yet that of a full cache";
    assert_eq!(remarks(snapshot(GIB, false, device())), [text]);
    assert!(
        remarks(snapshot(3 * GIB, false, device())).is_empty(),
        "filled by the warm-up and the measurement together"
    );
    assert!(remarks(snapshot(GIB, true, device())).is_empty(), "an earlier run filled it");
    assert!(remarks(snapshot(GIB, false, None)).is_empty(), "the capacity is unknown");
    let unwritten = made::report(instance(1.0, None, snapshot(0, false, device())));
    assert!(unwritten.remarks().is_empty(), "a run without writes has no write amplification");
}
