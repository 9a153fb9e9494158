//! How often the interval of `simulate --sample` holds the ratio of all objects.
//!
//! Prints the table of `docs/simulate.md`, for more policies:
//!
//!     cargo test --release -p flashwright-bench --test bench sample_intervals -- --ignored --nocapture
//!
//! Its real traces are in the folder that `FLASHWRIGHT_SHARED` names, or in a folder `shared` beside one of ours.

use std::path::{Path, PathBuf};

use flashwright_bench::run::stop::Stop;
use flashwright_bench::simulate::{self, FlashSettings, Outcome, Plan, RuleBook, Settings, Size, Warmup};
use workload::trace::{Accesses, OpenOptions, open};

const POLICIES: [&str; 6] = ["lru", "fifo", "sieve", "s3fifo", "slru4", "arc"];
const SIZES: [Size; 4] =
    [Size::Footprint(0.01), Size::Footprint(0.03), Size::Footprint(0.1), Size::Footprint(0.3)];

fn run(trace: &Path, sample: Option<f64>, seed: u64) -> Outcome {
    let plan = Plan {
        policies: POLICIES.iter().map(|name| name.parse().unwrap()).collect(),
        sizes: SIZES.to_vec(),
        settings: Settings { rule_book: RuleBook::Reference, seed, ..Settings::default() },
        flash: FlashSettings::default(),
        warmup: Warmup::Share(0.2),
        first_size: false,
        ignore_size: false,
        ignore_ttl: false,
        sample,
        tenants: None,
        series: None,
        shard: None,
        threads: 2,
    };
    let trace: Box<dyn Accesses> = open(&[trace], None, &OpenOptions::default()).unwrap();
    simulate::run(&plan, trace, &Stop::default(), |_, _| ()).unwrap()
}

/// Intervals of a policy, those that hold the exact ratio by requests and by bytes, and the sum of errors and of half widths.
#[derive(Default, Clone, Copy)]
struct Coverage {
    intervals: u32,
    within: u32,
    within_bytes: u32,
    errors: f64,
    margins: f64,
}

impl Coverage {
    fn add(&mut self, ours: &simulate::Row, exact: &simulate::Row) {
        let Some(interval) = ours.interval else { return };
        let holds = |(low, high): (f64, f64), ratio: f64| u32::from((low..=high).contains(&ratio));
        let (ratio, found) = (exact.object_hit_ratio().unwrap(), ours.object_hit_ratio().unwrap());
        self.intervals += 1;
        self.within += holds(interval.object_hit_ratio, ratio);
        self.within_bytes += holds(interval.byte_hit_ratio, exact.byte_hit_ratio().unwrap());
        self.errors += (found - ratio).abs();
        self.margins += (interval.object_hit_ratio.1 - interval.object_hit_ratio.0) / 2.0;
    }
}

/// The coverage by policy, over all sizes and seeds.
fn coverage(trace: &Path, rate: f64, seeds: u64) -> Vec<Coverage> {
    let exact = run(trace, None, 1);
    let mut all = vec![Coverage::default(); POLICIES.len()];
    for seed in 1..=seeds {
        let sampled = run(trace, Some(rate), seed);
        for (place, (ours, exact)) in sampled.rows.iter().zip(&exact.rows).enumerate() {
            all[place / SIZES.len()].add(ours, exact);
        }
    }
    all
}

fn print(name: &str, rate: f64, all: &[Coverage]) {
    for (policy, of) in POLICIES.iter().zip(all).filter(|(_, of)| of.intervals > 0) {
        let percent = |part: f64| 100.0 * part / f64::from(of.intervals);
        println!(
            "| {name} | {} % | {policy} | {} | {:.0} % | {:.0} % | {:.1} | {:.1} |",
            rate * 100.0,
            of.intervals,
            percent(f64::from(of.within)),
            percent(f64::from(of.within_bytes)),
            percent(of.errors),
            percent(of.margins),
        );
    }
}

/// Popular objects of different sizes, between scans of objects that are never requested again.
fn made(folder: &Path, requests: u64) -> PathBuf {
    use std::fmt::Write as _;
    let (mut text, mut state) = (String::from("ts,key,op,size\n"), 88_172_645_463_325_252_u64);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for request in 0..requests {
        let key = match request % 40 {
            0..10 => 1_000_000 + request,
            _ => ((random() % 1_000_000) as f64 / 1e6).powi(3).mul_add(20_000.0, 0.0) as u64,
        };
        let size = 100 + key.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 4000;
        let _ = writeln!(text, "{request},{key},GET,{size}");
    }
    let path = folder.join("made.csv");
    std::fs::write(&path, text).unwrap();
    path
}

/// By traces, rates and policies, an interval of the sampling error alone held the exact ratio in 32 to 98 % of samples.
#[test]
fn interval_holds_exact_ratio_in_95_percent_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(folder.path(), 60_000);
    let all = coverage(&trace, 0.2, 4);
    print("made", 0.2, &all);
    let sum = |of: fn(&Coverage) -> u32| all.iter().map(of).sum::<u32>();
    let (intervals, within, bytes) = (sum(|it| it.intervals), sum(|it| it.within), sum(|it| it.within_bytes));
    assert!(intervals >= 60, "{intervals}");
    assert!(within * 100 >= intervals * 95, "{within} of {intervals}");
    assert!(bytes * 100 >= intervals * 95, "{bytes} of {intervals} by bytes");
    // Intervals of any width hold the ratio.
    for (policy, of) in POLICIES.iter().zip(&all).filter(|(_, of)| of.intervals > 0) {
        let margin = of.margins / f64::from(of.intervals);
        assert!(margin < 0.03, "{policy}: mean margin {margin}");
    }
}

#[test]
#[ignore = "prints the table of docs/simulate.md, in minutes"]
fn intervals_of_real_traces_are_printed() {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(|shared| Path::new(&shared).join("traces"));
    let beside = || {
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        folders.map(|folder| folder.join("shared/traces")).find(|traces| traces.is_dir())
    };
    let folder = tempfile::tempdir().unwrap();
    let made = made(folder.path(), 400_000);
    let mut traces = vec![("made", made)];
    if let Some(shared) = named.or_else(beside) {
        traces.push(("block_cloudphysics_io", shared.join("libcachesim/block_cloudphysics_io.csv.zst")));
        traces.push(("web_adaptsize", shared.join("caffeine/web_adaptsize.csv.zst")));
        traces.push(("kv_twitter_c52_1m", shared.join("libcachesim/kv_twitter_c52_1m.csv.zst")));
    }
    let seeds = 10;
    for (name, trace) in traces.iter().filter(|(_, trace)| trace.is_file()) {
        for rate in [0.01, 0.05, 0.2] {
            print(name, rate, &coverage(trace, rate, seeds));
        }
    }
}
