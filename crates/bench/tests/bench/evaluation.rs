//! Verdicts and offered rates of evaluations, with simulated drives.
use crate::made;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use cache::stats::{FlashStats, SocStats};
use flashwright_bench::evaluate::criteria::{Criteria, Criterion};
use flashwright_bench::evaluate::life::{Life, WriteRates, Years};
use flashwright_bench::evaluate::run::{Measured, Row};
use flashwright_bench::evaluate::stages::{Lengths, Offer, Progress, Stage, Stages, WarmUp};
use flashwright_bench::run::counts::Counts;
use flashwright_bench::run::latency::{Histogram, Latencies};
use flashwright_bench::run::stop::Stop;
use flashwright_bench::run::target::{FlashDevice, Snapshot};
use flashwright_bench::run::{InstanceReport, Observable, Watcher};
use ssd::model::lifetime::Endurance;

const CRITERIA: Criteria = Criteria {
    max_read_p99: Duration::from_millis(5),
    max_write_p99: Some(Duration::from_millis(20)),
    min_years: 5.0,
    min_reached: 0.95,
    min_hit_ratio: 0.8,
    min_rate: Some(500),
};

/// A row that just meets all criteria: 950 of 1000 operations per second, 80 hits of 100.
fn row() -> Row {
    let counts = Counts { ops: 9500, gets: 100, get_misses: 20, ..Counts::default() };
    let soc = Some(SocStats::default());
    let device =
        FlashDevice { latency: Some((times(4_900_000), times(19_000_000))), ..FlashDevice::default() };
    let snapshot = made::with_flash(FlashStats { soc, ..FlashStats::default() }, device);
    Row {
        offered: Some(1000),
        report: InstanceReport { counts, snapshot, ..made::instance(10.0) },
        writes: WriteRates { host_bytes_per_second: 1.0, dlwa: None, is_carried_over: false },
        years: Years::AtMost(5.0),
        drive_writes_per_day: 1.0,
    }
}

fn times(latency_ns: u64) -> Histogram {
    let mut histogram = Histogram::default();
    (0..100).for_each(|_| histogram.record(latency_ns));
    histogram
}

fn flash(row: &mut Row) -> &mut FlashStats {
    row.report.snapshot.stats.flash.as_mut().unwrap()
}

fn device(row: &mut Row) -> &mut FlashDevice {
    row.report.snapshot.device.as_mut().unwrap()
}

/// A change of a row, the criterion that then fails, and its message.
type Change = (fn(&mut Row), Criterion, &'static str);

#[test]
fn each_criterion_fails_alone_and_row_at_limits_passes() {
    let changes: [Change; 13] = [
        (|row| flash(row).device.errors = 1, Criterion::Errors, "had 1 I/O errors"),
        (
            |row| flash(row).soc.as_mut().unwrap().checksum_errors = 2,
            Criterion::Errors,
            "had 2 checksum errors",
        ),
        (|row| row.report.counts.inconsistencies = 3, Criterion::Errors, "had 3 inconsistencies"),
        (
            |row| row.report.counts.ops = 9490,
            Criterion::Reached,
            "reached 94.9 % of the offered rate, less than 95 %",
        ),
        (
            |row| device(row).latency = Some((times(6_000_000), times(1))),
            Criterion::ReadLatency,
            "had a read p99 of 6.0 ms, more than 5.0 ms",
        ),
        (
            |row| device(row).latency = Some((times(1), times(25_000_000))),
            Criterion::WriteLatency,
            "had a write p99 of 25 ms, more than 20 ms",
        ),
        (
            |row| row.report.counts.get_misses = 21,
            Criterion::HitRatio,
            "answered 79.0 % of the gets, less than 80 %",
        ),
        (|row| row.years = Years::Known(4.94), Criterion::Years, "lasts 4.9 years, less than 5"),
        (|row| row.years = Years::AtMost(0.5), Criterion::Years, "lasts at most 0.50 years, less than 5"),
        // A value that rounds to the limit needs more digits.
        (|row| row.years = Years::Known(4.96), Criterion::Years, "lasts 4.96 years, less than 5"),
        (
            |row| row.years = Years::AtMost(4.9996),
            Criterion::Years,
            "lasts at most 4.9996 years, less than 5",
        ),
        (
            |row| row.report.counts.ops = 9497,
            Criterion::Reached,
            "reached 94.97 % of the offered rate, less than 95 %",
        ),
        (
            |row| device(row).latency = Some((times(5_010_000), times(1))),
            Criterion::ReadLatency,
            "had a read p99 of 5.01 ms, more than 5.0 ms",
        ),
    ];
    let (read, max_write_p99) = row().device_quantiles(0.99);
    let limits = Criteria { max_read_p99: read.unwrap(), max_write_p99, ..CRITERIA };
    assert_eq!(limits.missed(&row()), []);
    for (change, criterion, text) in changes {
        let mut changed = row();
        change(&mut changed);
        let missed = CRITERIA.missed(&changed);
        assert_eq!(
            missed.iter().map(|it| (it.criterion, it.text.as_str())).collect::<Vec<_>>(),
            [(criterion, text)]
        );
    }
    let mut unknown = Row { offered: None, years: Years::Unknown, ..row() };
    (unknown.report.counts, device(&mut unknown).latency) = (Counts::default(), None);
    assert_eq!(CRITERIA.missed(&unknown), [], "an unknown value does not fail");
    let slow = |row: &mut Row| device(row).latency = Some((times(1), times(1_000_000_000)));
    let mut slow_writes = row();
    slow(&mut slow_writes);
    assert_eq!(
        Criteria { max_write_p99: None, ..CRITERIA }.missed(&slow_writes),
        [],
        "without a limit it does not fail"
    );
}

#[test]
fn best_is_highest_passing_offered_rate() {
    let at = |offered: Option<u64>, misses: u64| {
        let mut at = Row { offered, ..row() };
        at.report.counts.ops = 10 * offered.unwrap_or(9000);
        at.report.counts.get_misses = misses;
        at
    };
    let measured = |rows: Vec<Row>| Measured {
        profile: "kv",
        placement: false,
        warm_up: WarmUp::default(),
        rows,
        interrupted: false,
        failures: Vec::new(),
        warnings: Vec::new(),
        wear: None,
    };
    let some =
        measured(vec![at(None, 0), at(Some(300), 0), at(Some(500), 0), at(Some(400), 0), at(Some(600), 50)]);
    let best = CRITERIA.best(&some).unwrap();
    assert_eq!(best.offered, Some(500));
    assert!(CRITERIA.is_enough(best) && !CRITERIA.is_enough(&at(Some(499), 0)));
    assert!(Criteria { min_rate: None, ..CRITERIA }.is_enough(&at(Some(1), 0)));
    assert!(CRITERIA.best(&measured(vec![at(None, 0), at(Some(300), 50)])).is_none());
}

/// A drive of a million bytes, observed every second. It completes a thousand operations per second, or the offered rate.
struct Drive {
    /// Bytes per operation at a rate.
    op_bytes: fn(u64) -> u64,
    /// Ten times the write amplification after this many host bytes; `None` if the drive does not report media bytes.
    media_tenths: Option<fn(u64) -> u64>,
    rate: Cell<u64>,
    ops: Cell<u64>,
    host_bytes: Cell<u64>,
    media_tenths_so_far: Cell<u64>,
}

const CAPACITY_BYTES: f64 = 1e6;
const MOST: u64 = 1000;

impl Drive {
    fn new(op_bytes: fn(u64) -> u64, media_tenths: Option<fn(u64) -> u64>) -> Self {
        let zero = || Cell::new(0);
        let (ops, host_bytes, media_tenths_so_far) = (zero(), zero(), zero());
        Self { op_bytes, media_tenths, rate: Cell::new(u64::MAX), ops, host_bytes, media_tenths_so_far }
    }

    fn run_one_second(&self) {
        let ops = self.rate.get().min(MOST);
        let bytes = ops * (self.op_bytes)(ops);
        let tenths = self.media_tenths.map_or(0, |tenths| tenths(self.host_bytes.get()));
        self.ops.update(|all| all + ops);
        self.host_bytes.update(|all| all + bytes);
        self.media_tenths_so_far.update(|all| all + bytes * tenths);
    }
}

impl Observable for Drive {
    fn counts(&self) -> Counts {
        Counts { ops: self.ops.get(), ..Counts::default() }
    }
    fn latencies(&self) -> Latencies {
        Latencies::default()
    }
    fn snapshot(&self) -> Snapshot {
        let mut flash = FlashStats::default();
        flash.device.written_bytes = self.host_bytes.get();
        flash.device.media_written_bytes = self.media_tenths.map(|_| self.media_tenths_so_far.get() / 10);
        made::with_flash(flash, FlashDevice::default())
    }
    fn total_ops(&self) -> u64 {
        0
    }
    fn set_rate(&self, ops_per_second: u64) {
        self.rate.set(ops_per_second);
    }
}

const BY_BYTES: Lengths = Lengths { by_time: false, warm_up: 20.0, stage: 2.0 };
const FOREVER: Life = Life { endurance: None, min_years: 5.0, capacity_bytes: CAPACITY_BYTES };

/// Runs `drive` through its stages. Returns the fill, the stages, and the progress after each second.
fn run(drive: &Drive, lengths: Lengths, offers: &[Offer], life: Life) -> (WarmUp, Vec<Stage>, Vec<f64>) {
    run_with_looks(drive, lengths, offers, life, &[1])
}

/// Like [`run`], with observations at these intervals in seconds, repeated.
fn run_with_looks(
    drive: &Drive,
    lengths: Lengths,
    offers: &[Offer],
    life: Life,
    gaps: &[u64],
) -> (WarmUp, Vec<Stage>, Vec<f64>) {
    run_stages(drive, (lengths, false), offers, life, gaps)
}

/// Like [`run_with_looks`]; the flag beside the lengths is that of a fill that ends by its forecast.
fn run_stages(
    drive: &Drive,
    (lengths, stop_early): (Lengths, bool),
    offers: &[Offer],
    life: Life,
    gaps: &[u64],
) -> (WarmUp, Vec<Stage>, Vec<f64>) {
    let reported = RefCell::new(Vec::new());
    let stop = Stop::default();
    let mut stages = Stages {
        lengths,
        stop_early,
        offers,
        life,
        capacity_bytes: CAPACITY_BYTES,
        drive: None,
        interrupt: Stop::default(),
        stop: stop.clone(),
        advance: &|share| reported.borrow_mut().push(share),
        progress: Progress::default(),
    };
    let mut second = 0;
    for gap in gaps.iter().cycle().take(100_000) {
        (0..*gap).for_each(|_| drive.run_one_second());
        second += gap;
        stages.sample(&[drive], Duration::from_secs(second));
        if stop.is_set() {
            break;
        }
    }
    assert!(stop.is_set(), "it never ended");
    let (warm_up, done) = stages.progress.results();
    (warm_up, done, reported.into_inner())
}

/// Offered rate, operations and seconds of each stage.
fn rates(stages: &[Stage]) -> Vec<(Option<u64>, u64, u64)> {
    stages.iter().map(|it| (it.offered, it.counted.counts.ops, it.counted.at.as_secs())).collect()
}

#[test]
fn stages_fill_until_steady_and_measure_each_rate() {
    let offers = [Offer::Share(0.5), Offer::Rate(200), Offer::Rate(500)];
    // A round is three seconds, until a quarter of the capacity has been written. All rounds are equal.
    let drive = Drive::new(|_| 100, Some(|host_bytes| 10 + 10 * (host_bytes / 100_000 % 3)));
    let (warm_up, stages, reported) = run(&drive, BY_BYTES, &offers, FOREVER);
    assert_eq!((warm_up.capacities, warm_up.steady), (5.0, true), "not before the minimum");
    // One capacity is 10,000 operations; a tenth of a stage passes before its measurement.
    let expected = [(None, 20_000, 20), (Some(200), 20_000, 100), (Some(500), 20_000, 40)];
    assert_eq!(rates(&stages), expected, "ascending, without duplicates");
    assert_eq!(drive.ops.get(), 50_000 + 3 * 22_000);
    // Progress is the share of 28.8 capacities: 20 of warm-up, and 2.2 of each of four stages. Two seconds write 0.2 capacities; after
    // 56 seconds, 0.6 capacities of the first stage are written.
    assert!((reported[1] - 0.2 / 28.8).abs() < 1e-9, "{}", reported[1]);
    assert!((reported[55] - 20.6 / 28.8).abs() < 1e-9, "{}", reported[55]);
}

#[test]
fn progress_never_decreases_and_ends_at_one() {
    let constant: fn(u64) -> u64 = |rate| if rate == MOST { 100 } else { 45_000 / rate };
    for offers in [&[Offer::Rate(200), Offer::Rate(500)][..], &[Offer::Life]] {
        let (.., reported) = run(&Drive::new(constant, Some(|_| 20)), BY_BYTES, offers, lasting_at(300.0));
        assert!(reported.is_sorted() && reported.last() == Some(&1.0), "{offers:?}: {reported:?}");
    }
}

#[test]
fn unsteady_drive_is_filled_up_to_the_maximum() {
    let swinging: fn(u64) -> u64 = |host_bytes| 10 + 10 * (host_bytes / 300_000 % 2);
    let (warm_up, ..) = run(&Drive::new(|_| 100, Some(swinging)), BY_BYTES, &[], FOREVER);
    assert_eq!((warm_up.capacities, warm_up.steady), (20.0, false));
    let (warm_up, ..) = run(&Drive::new(|_| 100, None), BY_BYTES, &[], FOREVER);
    assert_eq!(
        (warm_up.capacities, warm_up.steady, warm_up.forecast),
        (5.0, true, None),
        "by the write rate if media writes are not reported"
    );
    for media_tenths in [None, Some((|_| 20) as fn(u64) -> u64)] {
        let drive = Drive::new(|_| 100, media_tenths);
        let (warm_up, ..) = run_with_looks(&drive, BY_BYTES, &[], FOREVER, &[1, 2, 9]);
        assert_eq!((warm_up.capacities, warm_up.steady), (5.1, true), "rounds may differ in length");
    }
    let by_time = Lengths { by_time: true, warm_up: 30.0, stage: 20.0 };
    let (warm_up, stages, _) = run(&Drive::new(|_| 100, None), by_time, &[Offer::Rate(10)], FOREVER);
    assert_eq!((warm_up.capacities, warm_up.steady), (3.0, false));
    assert_eq!(rates(&stages), [(None, 20_000, 20), (Some(10), 200, 20)]);
}

/// A low level may be that of a ring before its first wrap. A high one cannot rise much more.
#[test]
fn fill_that_stops_early_passes_a_low_plateau_and_ends_at_a_high_one() {
    for (media_tenths, expected) in
        [((|_| 11) as fn(u64) -> u64, (20.0, false)), ((|_| 40) as fn(u64) -> u64, (5.1, true))]
    {
        let drive = Drive::new(|_| 100, Some(media_tenths));
        let (warm_up, ..) = run_stages(&drive, (BY_BYTES, true), &[], FOREVER, &[1]);
        assert_eq!((warm_up.capacities, warm_up.steady), expected);
        let forecast = warm_up.forecast.unwrap();
        assert_eq!(forecast.is_steady, expected.1, "{forecast:?}");
    }
}

/// A drive that lasts five years at this rate, with 100 bytes per operation and a write amplification of 2.
fn lasting_at(rate: f64) -> Life {
    let writes_per_day = rate * 100.0 * 2.0 * 86_400.0 / CAPACITY_BYTES;
    Life { endurance: Some(Endurance::from_dwpd(CAPACITY_BYTES, writes_per_day, 5.0, 1.0)), ..FOREVER }
}

#[test]
fn lifetime_rate_is_offered_and_corrected_by_its_own_writes() {
    let offers = [Offer::Life, Offer::Rate(700)];
    let by_time = Lengths { by_time: true, warm_up: 100.0, stage: 20.0 };
    let offered = |op_bytes: fn(u64) -> u64, life: Life| -> Vec<Option<u64>> {
        let (_, stages, _) = run(&Drive::new(op_bytes, Some(|_| 20)), by_time, &offers, life);
        stages.iter().map(|it| it.offered).collect()
    };
    // 97 % of 300, rounded down to two digits.
    assert_eq!(offered(|_| 100, lasting_at(300.0)), [None, Some(290), Some(700)]);
    // Below full speed each operation writes 50 % more, so the drive lasts at 200; 97 % of that are offered.
    let more: fn(u64) -> u64 = |rate| if rate == MOST { 100 } else { 150 };
    assert_eq!(offered(more, lasting_at(300.0)), [None, Some(190), Some(290), Some(700)]);
    // The write rate is constant, so the correction is repeated twice at most.
    let constant: fn(u64) -> u64 = |rate| if rate == MOST { 100 } else { 45_000 / rate };
    assert_eq!(offered(constant, lasting_at(300.0)).len(), 5);
    assert_eq!(offered(|_| 100, lasting_at(1001.0)), [None, Some(700)], "it lasts at full speed");
    assert_eq!(
        offered(|_| 100, lasting_at(0.01)),
        [None, Some(1), Some(700)],
        "at least 1/1000 of full speed"
    );
    assert_eq!(offered(|_| 100, FOREVER), [None, Some(700)], "the endurance is unknown");
}
