//! Forecasts from the first fifth of logs of real and emulated drives, and the model beside the logs. Skipped without the logs.
use std::path::{Path, PathBuf};

use flashwright_bench::drive::expected::Test;
use flashwright_bench::drive::forecast::{Forecast, Known, forecast};
use flashwright_bench::drive::learn::{Observed, Settings, learn};
use flashwright_bench::drive::log::DriveLog;
use flashwright_bench::jobs::replay::{Replay, smallest_scale};
use flashwright_bench::run::stop::Stop;
use flashwright_bench::study::warp::{Series, model};
use flashwright_bench::study::{Progress, Runner};
use ssd::{Card, VictimPolicy};

fn folder() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(2);
    let found = folders.find_map(|it| Some(it.join("shared/drive_logs")).filter(|it| it.is_dir()));
    if found.is_none() {
        println!("SKIPPED: no drive logs beside the sources");
    }
    found
}

/// Capacity and log of each series.
fn series() -> Vec<(String, u64, DriveLog)> {
    let all = folder().map_or_else(Vec::new, |folder| Series::read_all(&folder).unwrap());
    let mut all: Vec<_> = all.into_iter().map(|it| (it.name, it.capacity_bytes, it.log)).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn of(log: &DriveLog, capacity_bytes: u64, share: f64) -> Forecast {
    let cut = log.until((log.host_bytes() as f64 * share) as u64);
    forecast(&cut, Known { capacity_bytes, op_ratio: None, wrap_capacities: None })
}

#[test]
fn final_values_lie_in_the_intervals_forecast_from_the_first_fifth() {
    let all = series();
    let mut inside = 0;
    for (name, capacity, log) in &all {
        let end = log.host_bytes() as f64;
        let last = log.dlwa_between(0.9 * end, end);
        let forecast = of(log, *capacity, 0.2);
        let is_inside = (forecast.interval.0..=forecast.interval.1).contains(&last.max(1.0));
        inside += usize::from(is_inside);
        println!(
            "{name}: final {last:.3}, interval {:.2} to {:.2}, steady {}, {}{}",
            forecast.interval.0,
            forecast.interval.1,
            forecast.is_steady,
            forecast.op_ratio.0,
            if is_inside { "" } else { "  OUTSIDE" }
        );
    }
    assert!(inside * 10 >= all.len() * 9, "{inside} of {}", all.len());
}

/// A run of the jobs on the model narrows the bounds: nine of ten final values lie inside, and the mean half width is at most 13 %. The series
/// of three streams are left out for their time; the tests below compare their ends with the model.
#[test]
fn final_values_lie_in_the_narrow_intervals_of_model_runs() {
    let Some(folder) = folder() else { return };
    let (mut count, mut inside, mut widths) = (0, 0, 0.0);
    for series in Series::read_all(&folder).unwrap() {
        let (Some(card), Some(file)) = (series.card(), series.job()) else { continue };
        if series.name.contains("3syn") {
            continue;
        }
        let end = series.log.host_bytes() as f64;
        let capacities = (end / series.capacity_bytes as f64).min(32.0);
        let log = series.log.until((end * 0.2) as u64);
        let test = Test { card: &card, file: &file, capacities, seed: 1 };
        let expected = test.expected(&log, &Stop::default()).unwrap().unwrap();
        let last = series.dlwa(0.9, 1.0).max(1.0);
        let is_inside = (expected.interval.0..=expected.interval.1).contains(&last);
        let width = (expected.interval.1 - expected.interval.0) / 2.0 / expected.value;
        (count, inside, widths) = (count + 1, inside + usize::from(is_inside), widths + width);
        println!(
            "{}: final {last:.3}, model {:.3} ± {:.0} %{}",
            series.name,
            expected.value,
            width * 100.0,
            if is_inside { "" } else { "  OUTSIDE" }
        );
    }
    println!("{inside} of {count} inside, mean half width {:.3}", widths / f64::from(count));
    assert!(inside * 10 >= count as usize * 9, "{inside} of {count}");
    assert!(widths / f64::from(count) <= 0.13, "{}", widths / f64::from(count));
}

/// The plateau before a ring's first wrap is level for eight capacities, at 1.14 where 3.57 is final.
#[test]
fn forecast_before_the_last_rise_is_absent() {
    for (name, capacity, log) in series() {
        let end = log.host_bytes() as f64;
        let last = log.dlwa_between(0.9 * end, end);
        for percent in 1..=20 {
            let share = f64::from(percent) / 20.0;
            let forecast = of(&log, capacity, share);
            if let Some(value) = forecast.value {
                assert!((last / value - 1.0).abs() < 0.15, "{name} at {share}: {value:.2}, final {last:.2}");
            }
        }
    }
}

/// Series that the model misses by more than the accepted difference, with the measured difference of the last tenth in percent. Update a
/// value when a change of the model moves it by more than a point.
const MISSES: [(&str, f64); 3] = [
    ("FIO/cylon448-II/3syn/zipf_1.2/fdp_share/samsung", -12.1),
    ("FIO/cylon448-II/3syn/zipf_1.2/nofdp/samsung", -5.8),
    ("FIO/cylon448-II/3syn/zoned/fdp/samsung", 5.2),
];

/// Three streams on an emulator whose parameters are known, within 5 %.
#[test]
fn three_stream_series_match_the_model_within_5_percent() {
    compare("FIO/cylon448-II/3syn/", 12, 0.05);
}

/// One stream on real drives, within 5 %.
#[test]
fn one_stream_series_match_the_model_within_5_percent() {
    compare("FIO/ssd", 2, 0.05);
}

/// Caches on real drives, within 10 %; the share of buckets comes from the log.
#[test]
fn cache_series_match_the_model_within_10_percent() {
    compare("Cachelib/samsung/", 9, 0.10);
}

#[track_caller]
fn compare(prefix: &str, count: usize, tolerance: f64) {
    let Some(folder) = folder() else { return };
    let mut all = Series::read_all(&folder).unwrap();
    all.retain(|series| series.name.starts_with(prefix));
    assert_eq!(all.len(), count, "{prefix}");
    let mut wrong = Vec::new();
    for series in all {
        let runner = Runner::new(1, 1, Stop::default(), Progress::new(true));
        let modelled = model(&series, &runner, &|_| ()).unwrap().unwrap();
        let (logged, ours) = (series.dlwa(0.9, 1.0), modelled.last_tenth);
        let percent = (ours / logged - 1.0) * 100.0;
        let line = format!("{}: log {logged:.3}, model {ours:.3}, {percent:+.1} %", series.name);
        println!("{line}");
        let is_expected = match MISSES.iter().find(|(name, _)| *name == series.name) {
            Some((_, known)) => (percent - known).abs() <= 1.0,
            None => percent.abs() <= tolerance * 100.0,
        };
        if !is_expected {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A card fitted to three caches on the PM9D3a, from a card whose over-provisioning is wrong, predicts the other series of the drive.
#[test]
fn card_learned_from_three_series_of_a_drive_predicts_its_other_series() {
    let fitted = ["kv202206/soc40/nofdp/", "kv202206/soc40/fdp/", "kv202206/soc20/fdp/"];
    learn_and_predict("pm9d3a", &["Cachelib/samsung/", "FIO/ssda/"], fitted, (0.18, 0.05));
}

#[test]
fn card_learned_from_three_series_of_the_emulator_predicts_its_other_series() {
    let fitted = ["3syn/uniform/nofdp/", "3syn/zoned/fdp_share/", "3syn/zipf_2.2/fdp/"];
    learn_and_predict("warp448", &["FIO/cylon448-II/3syn/"], fitted, (0.1084, 0.02));
}

/// Learns a card from the series `fitted`. It must have the over-provisioning `op` within `margin` and intervals of at most 15 %, and eight
/// of ten other series must end inside the interval around their model.
#[track_caller]
fn learn_and_predict(card: &str, drive: &[&str], fitted: [&str; 3], (op, margin): (f64, f64)) {
    let Some(folder) = folder() else { return };
    let all = Series::read_all(&folder).unwrap();
    let of_drive = all.iter().filter(|series| drive.iter().any(|prefix| series.name.starts_with(prefix)));
    let (known, others): (Vec<&Series>, Vec<&Series>) =
        of_drive.partition(|series| fitted.iter().any(|part| series.name.contains(part)));
    assert_eq!(known.len(), 3);
    let mut base = Card::load(card).unwrap();
    base.space.raw_bytes =
        base.space.usable_bytes / base.space.unit_bytes * 107 / 100 * base.space.unit_bytes;
    let observe = |series: &&Series| Observed {
        name: series.name.clone(),
        log: series.log.clone(),
        file: series.job().unwrap(),
    };
    let observed: Vec<Observed> = known.iter().map(observe).collect();
    let settings = Settings { base: &base, policies: &[VictimPolicy::Greedy, VictimPolicy::Fifo], seed: 1 };
    let fit = learn(&observed, &settings, &Stop::default(), &Progress::new(true)).unwrap();
    let learned = fit.card.learned.unwrap();
    println!("{:?}\n{:?}\n{learned:?}", fit.policies, fit.logs);
    let op_ratio = fit.card.shape(false).op_ratio();
    assert!((op_ratio - op).abs() <= margin, "{op_ratio}");
    assert!(learned.dlwa_error <= 0.15, "{}", learned.dlwa_error);
    let is_inside = |series: &&&Series| {
        let capacities = series.log.host_bytes() as f64 / series.capacity_bytes as f64;
        let file = series.job().unwrap();
        let scale = smallest_scale(&fit.card, &file);
        let replay = Replay { card: &fit.card, file: &file, scale, capacities, seed: 2 };
        let replayed = replay.run(&Stop::default(), &|_| ()).unwrap().unwrap();
        let end = capacities.min(replayed.capacities());
        let (logged, ours) = (series.dlwa(0.9, 1.0).max(1.0), replayed.dlwa(0.9 * end, end));
        let is_inside = (logged / ours - 1.0).abs() <= learned.dlwa_error;
        println!(
            "{}: log {logged:.3}, model {ours:.3}{}",
            series.name,
            if is_inside { "" } else { "  OUTSIDE" }
        );
        is_inside
    };
    let inside = others.iter().filter(is_inside).count();
    assert!(inside * 10 >= others.len() * 8, "{inside} of {}", others.len());
}
