//! Forecasts from the first fifth of logs of real and emulated drives, and the model beside the logs. Skipped without the logs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says what it skips")]

use std::collections::HashMap;
use std::path::Path;

use flashwright_bench::drive::forecast::{Forecast, Known, forecast};
use flashwright_bench::drive::log::DriveLog;
use flashwright_bench::jobs::plan::{Plan, Target};
use flashwright_bench::jobs::report::last_tenth;
use flashwright_bench::jobs::run::run;
use flashwright_bench::run::stop::Stop;
use ssd::{Card, Drive, Upkeep};
use workload::fio::JobFile;

/// Capacity and log of each series.
fn series() -> Vec<(String, u64, DriveLog)> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(2);
    let Some(folder) = folders.map(|it| it.join("shared/drive_logs")).find(|it| it.is_dir()) else {
        println!("SKIPPED: no drive logs beside the sources");
        return Vec::new();
    };
    let meta = std::fs::read_to_string(folder.join("warp_series_meta.csv")).unwrap();
    let text = std::fs::read_to_string(folder.join("warp_series.csv")).unwrap();
    let capacities = meta.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].to_owned(), cells[2].parse().unwrap())
    });
    let capacities: HashMap<String, u64> = capacities.collect();
    let log = |(name, capacity): (String, u64)| {
        let log = DriveLog::parse(&text, Some(&name)).unwrap();
        (name, capacity, log)
    };
    let mut all: Vec<(String, u64, DriveLog)> = capacities.into_iter().map(log).collect();
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

/// The plateau before a ring's first wrap is level for eight capacities, at 1.14 where 3.57 is final.
#[test]
fn no_series_is_called_steady_before_its_last_rise() {
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

/// A drive of the given geometry on which a job file runs; the write amplification of the last tenth of its writes.
fn modelled(geometry: (u64, u64, u64), scale: u32, text: &str) -> f64 {
    let mut card = Card::load("pm9d3").unwrap();
    (card.space.raw_bytes, card.space.usable_bytes, card.space.unit_bytes) = geometry;
    let card = card.scaled(scale).unwrap();
    let shape = card.shape(false);
    let capacity_bytes = u64::from(shape.logical_pages) * u64::from(shape.page_bytes);
    let mut drive = Drive::new(&card, &shape, Upkeep::default()).unwrap();
    let file = JobFile::parse(text, |_| None).unwrap();
    let plan = Plan::new(&file, Target { capacity_bytes, handles: 1, scale }, 1).unwrap();
    last_tenth(&run(plan, &mut drive, (capacity_bytes / 50, 1), &Stop::default(), |_| ())).unwrap()
}

fn logged(name: &str) -> Option<f64> {
    let (_, _, log) = series().into_iter().find(|it| it.0 == name)?;
    let end = log.host_bytes() as f64;
    Some(log.dlwa_between(0.9 * end, end))
}

#[track_caller]
fn compare(name: &str, model: f64) {
    let Some(logged) = logged(name) else { return };
    let difference = (model / logged - 1.0) * 100.0;
    println!("{name}: log {logged:.3}, model {model:.3}, {difference:+.1} %");
    assert!(difference.abs() < 5.0, "{name}: log {logged:.3}, model {model:.3}, {difference:+.1} %");
}

/// Three writers on one frontier. The emulator has 4086 units of 128 MiB and keeps 1 % of them free.
#[test]
fn three_streams_without_placement_match_the_emulator_within_5_percent() {
    const UNIT_BYTES: u64 = 128 << 20;
    let geometry = (4045 * UNIT_BYTES, 448 << 30, UNIT_BYTES);
    for (series, distribution) in [
        ("uniform", "random"),
        ("zoned", "zoned:80/20:10/20:10/60"),
        ("zipf_1.2", "zipf:1.2"),
        ("zipf_2.2", "zipf:2.2"),
    ] {
        let text = format!(
            "[global]\nioengine=libaio\nfilename=/dev/x\n[fill]\nrw=write\nbs=128k\nsize=90%\n[fill-random]\nrw=randwrite\nnorandommap\noffset=90%\nsize=10%\n[sequential]\nstonewall\nrw=write\nbs=128k\nsize=90%\nio_size=235%\nexitall\n[overwrite]\nrw=randwrite\nnorandommap\nsize=90%\nio_size=900%\niodepth=32\nrandom_distribution={distribution}\n[random]\nrw=randwrite\nnorandommap\noffset=90%\nsize=10%\nio_size=900%\niodepth=32\n"
        );
        if logged(&format!("FIO/cylon448-II/3syn/{series}/nofdp/samsung")).is_none() {
            return;
        }
        compare(&format!("FIO/cylon448-II/3syn/{series}/nofdp/samsung"), modelled(geometry, 128, &text));
    }
}

/// fio's default random writes of 128 KiB: a permutation in each pass.
#[test]
fn one_stream_of_fio_matches_two_real_drives_within_5_percent() {
    let text = "[j]\nrw=randwrite\nbs=128k\nioengine=libaio\niodepth=128\nfilename=/dev/x\nio_size=2000%\n";
    if logged("FIO/ssda/warmup/samsung").is_none() {
        return;
    }
    let pm9d3 = Card::load("pm9d3").unwrap().space;
    let geometry = (pm9d3.raw_bytes, pm9d3.usable_bytes, pm9d3.unit_bytes);
    compare("FIO/ssda/warmup/samsung", modelled(geometry, 256, text));
    // The second drive's spare space is the difference between binary and decimal units.
    let geometry = (3840 << 30, 3_840_000_000_000, 4 << 30);
    compare("FIO/ssdb/warmup/fadu", modelled(geometry, 256, text));
}
